package topology

import (
	"fmt"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

const acsRedirect = pcie.ACSRedirect

// Verdict says whether two GPUs can reach each other's memory directly.
type Verdict string

// The verdicts.
const (
	PeerYes      Verdict = "yes"      // a driver or NCCL said so
	PeerLikely   Verdict = "likely"   // nothing that was seen speaks against it
	PeerDetour   Verdict = "detour"   // it works at best by way of the root complex
	PeerDoubtful Verdict = "doubtful" // it depends on what no input tells
	PeerNo       Verdict = "no"
	PeerUnknown  Verdict = "unknown"
)

// Peer is a verdict and its reason.
type Peer struct {
	Verdict Verdict
	Reason  string
}

// refusals are the words of nvidia-smi topo -p2p.
var refusals = map[string]string{
	"CNS": "the chipset is not supported",
	"GNS": "the GPU is not supported",
	"TNS": "the topology is not supported",
	"NS":  "not supported",
	"DR":  "disabled by the driver's registry key",
}

// peer judges a path: what was said of this very pair first, then what the
// hardware shows.
func (g *Graph) peer(p *Path) Peer {
	for _, judge := range []func(*Path) (Peer, bool){g.peerSaid, g.peerCards, g.peerPath} {
		if v, ok := judge(p); ok {
			return v
		}
	}
	return Peer{PeerUnknown, "no input tells how the two are connected"}
}

// peerSaid is what the driver or NCCL says.
func (g *Graph) peerSaid(p *Path) (Peer, bool) {
	for _, n := range []*Node{p.A, p.B} {
		if n.Device != nil && n.Device.GPU != nil && n.Device.GPU.MIG != nil && *n.Device.GPU.MIG {
			return Peer{PeerNo, n.ID + " is in MIG mode, which has no peer access"}, true
		}
	}
	switch {
	case p.NVLinks > 0:
		return Peer{PeerYes, fmt.Sprintf("%d direct links (NVLink or XGMI)", p.NVLinks)}, true
	case p.NVLinks < 0:
		return Peer{PeerYes, "NVLink through a switch"}, true
	}
	if p.A.Matrix != "" && p.B.Matrix != "" {
		for i := range g.Machine.P2P {
			m := &g.Machine.P2P[i]
			if m.Kind != "read" && m.Kind != "write" && m.Kind != "p2p" {
				continue
			}
			cell := m.Cell(p.A.Matrix, p.B.Matrix)
			if cell == "OK" {
				return Peer{PeerYes, "the driver says OK (nvidia-smi topo -p2p)"}, true
			}
			if why, ok := refusals[cell]; ok {
				return Peer{PeerNo, fmt.Sprintf("the driver says %s: %s (nvidia-smi topo -p2p)", cell, why)}, true
			}
		}
	}
	switch via := g.transport(p); {
	case strings.HasPrefix(via, "P2P"):
		return Peer{PeerYes, "NCCL's log shows " + via}, true
	case strings.HasPrefix(via, "SHM"):
		return Peer{PeerDoubtful, "NCCL's log shows " + via + ": it staged through host memory"}, true
	}
	return Peer{}, false
}

// transport is the way that NCCL's log names for the pair, "" if none.
func (g *Graph) transport(p *Path) string {
	n := g.Machine.NCCL
	if n == nil || p.A.Device == nil || p.B.Device == nil {
		return ""
	}
	at := map[int]string{}
	for _, r := range n.Ranks {
		if r.BDF != nil {
			at[r.Rank] = r.BDF.String()
		}
	}
	for _, t := range n.Transports {
		from, to := at[t.From], at[t.To]
		if from == p.A.ID && to == p.B.ID || from == p.B.ID && to == p.A.ID {
			return t.Via
		}
	}
	return ""
}

// peerCards is what the cards themselves rule out.
func (g *Graph) peerCards(p *Path) (Peer, bool) {
	var makers [2]uint16
	for i, n := range []*Node{p.A, p.B} {
		d := n.Device
		if d == nil {
			return Peer{}, false
		}
		if d.Unreachable() {
			return Peer{PeerNo, n.ID + " does not answer"}, true
		}
		if d.Vendor.Known {
			makers[i] = d.Vendor.Code
		}
	}
	if makers[0] != 0 && makers[1] != 0 && makers[0] != makers[1] {
		return Peer{PeerNo, "GPUs of different makers"}, true
	}
	for _, n := range []*Node{p.A, p.B} {
		if strings.Contains(n.Name, "GeForce RTX") {
			return Peer{PeerNo, "GeForce RTX: NVIDIA's driver refuses peer access over PCIe"}, true
		}
	}
	return Peer{}, false
}

// peerPath is what the way between the two allows.
func (g *Graph) peerPath(p *Path) (Peer, bool) {
	if p.Kind == "" {
		return Peer{}, false
	}
	if g.Machine.Virtual.Likely() {
		return Peer{PeerDoubtful, "virtual machine: the hypervisor decides, and the real path is hidden"}, true
	}
	// Above a switch the packets pass the root complex in any case.
	if len(p.Redirects) > 0 && p.turn.Kind == Switch {
		return Peer{PeerDetour, "ACS redirect is on at " + addresses(p.Redirects) + ": peer packets go up to the root complex"}, true
	}
	for _, n := range []*Node{p.A, p.B} {
		if n.Device != nil && strings.HasPrefix(n.Device.IOMMUDomain, "DMA") {
			return Peer{PeerDetour, "the IOMMU translates the addresses of " + n.ID + ": peer packets go up to the root complex"}, true
		}
	}
	unread := ""
	if len(p.Unread) > 0 && p.turn.Kind == Switch {
		unread = "; ACS of ports on the way was not readable"
	}
	switch p.Kind {
	case SYS:
		switch {
		case p.A.Socket == nil || p.B.Socket == nil:
			return Peer{PeerDoubtful, "crosses NUMA nodes: the platform decides" + unread}, true
		case p.Sockets:
			return Peer{PeerDoubtful, "crosses sockets: the platform decides, and it is slow" + unread}, true
		}
		return Peer{PeerLikely, "crosses NUMA nodes of one socket" + unread}, true
	case NODE, PHB:
		return Peer{PeerLikely, "through the root complex" + unread}, true
	}
	return Peer{PeerLikely, "inside the switch" + unread}, true
}

func addresses(ports []*machine.Device) string {
	var out []string
	for _, d := range ports {
		out = append(out, d.BDF.String())
	}
	return strings.Join(out, ", ")
}
