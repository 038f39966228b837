package topology

import (
	"slices"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// role is what a bridge is to the tree.
type role uint8

const (
	notBridge role = iota
	rootPort
	upstream
	downstream
	conventional
)

// roles tells root ports from the ports of switches. Registers say it; without
// privilege they cannot be read, but upstream and downstream ports alternate.
type roles struct {
	m    *machine.Machine
	of   map[pcie.BDF]role
	busy map[pcie.BDF]bool // for parents that lead in a circle
}

func (r *roles) role(d *machine.Device) role {
	if !d.IsBridge() && !d.Virtual {
		return notBridge
	}
	if known, ok := r.of[d.BDF]; ok {
		return known
	}
	if r.busy[d.BDF] {
		return upstream
	}
	r.busy[d.BDF] = true
	out := r.find(d)
	r.of[d.BDF] = out
	return out
}

func (r *roles) find(d *machine.Device) role {
	if x := d.Registers.Express; x != nil {
		switch x.Port {
		case pcie.RootPort:
			return rootPort
		case pcie.UpstreamPort:
			return upstream
		case pcie.DownstreamPort:
			return downstream
		case pcie.ExpressToPCI, pcie.PCIToExpress:
			return conventional
		}
	}
	if fromNCCL(d) { // which lists upstream ports only
		return upstream
	}
	if d.Parent == nil {
		return rootPort
	}
	p := r.m.Device(*d.Parent)
	if p == nil {
		return upstream
	}
	switch r.role(p) {
	case upstream:
		if fromNCCL(p) {
			return upstream
		}
		return downstream
	case conventional:
		return conventional
	}
	return upstream
}

// fromNCCL reports whether NCCL's topology file alone spoke of the device.
func fromNCCL(d *machine.Device) bool {
	return d.Virtual || len(d.Sources) == 1 && d.Sources[0] == machine.KindNCCLXML
}

// functions groups the functions of one device, and virtual functions with
// their physical one. The first of a group stands for it.
func functions(m *machine.Machine) (groups [][]*machine.Device) {
	virtual := map[pcie.BDF]pcie.BDF{}
	for _, d := range m.Devices {
		if d.PhysicalFunction != nil {
			virtual[d.BDF] = *d.PhysicalFunction
		}
		if s := d.Registers.SRIOV; s != nil && s.Enabled {
			for i := range int(s.VFs) {
				virtual[s.VF(d.BDF, i)] = d.BDF
			}
		}
	}
	at := map[pcie.BDF]int{}
	var folded []*machine.Device
	for _, d := range m.Devices {
		if d.IsBridge() || d.Virtual || d.IsHostBridge() && !carriesNets(m, d.BDF) {
			continue
		}
		if pf, ok := virtual[d.BDF]; ok && pf != d.BDF && m.Device(pf) != nil {
			folded = append(folded, d)
			continue
		}
		key := d.BDF
		key.Function = 0
		i, ok := at[key]
		if !ok {
			i = len(groups)
			at[key] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], d)
	}
	for _, d := range folded {
		key := virtual[d.BDF]
		key.Function = 0
		if i, ok := at[key]; ok {
			groups[i] = append(groups[i], d)
		}
	}
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b *machine.Device) int { return importance(a) - importance(b) })
	}
	return groups
}

var kindOrder = []Kind{GPU, NIC, NVMe, Other}

func kindOf(d *machine.Device) Kind {
	switch {
	case d.IsGPU():
		return GPU
	case d.IsNIC():
		return NIC
	case d.IsNVMe():
		return NVMe
	}
	return Other
}

func importance(d *machine.Device) int {
	if d.PhysicalFunction != nil {
		return len(kindOrder)
	}
	return slices.Index(kindOrder, kindOf(d))
}

// carriesNets reports whether NCCL's file has network interfaces right at the
// address, as virtual machines show them.
func carriesNets(m *machine.Machine, at pcie.BDF) bool { return len(nets(m, at)) > 0 }

func nets(m *machine.Machine, at pcie.BDF) []machine.NCCLNet {
	if m.NCCL == nil {
		return nil
	}
	for i := range m.NCCL.Nodes {
		if m.NCCL.Nodes[i].BDF == at {
			return m.NCCL.Nodes[i].Nets
		}
	}
	return nil
}

// isCard reports whether a switch is part of the card of the one GPU below
// it: its maker is the GPU's, and nothing else is below but the GPU's audio.
func isCard(sw, gpu *Node) bool {
	s, g := sw.Device, gpu.Device
	switch {
	case g.Of(machine.VendorAMD):
		return s.Of(machine.VendorAMD) || s.Of(machine.VendorAMDCPU) || fromNCCL(s)
	case g.Of(machine.VendorIntel):
		return s.Of(machine.VendorIntel)
	case !g.Vendor.Known: // NCCL's older files; AMD's class is its own
		return fromNCCL(s) && !s.Virtual && g.Class.Known && g.Class.Code>>8 == 0x0380
	}
	return false
}

func isAudio(n *Node) bool {
	return n.Kind == Other && n.Device != nil && n.Device.Class.Known && n.Device.Class.Code>>8 == 0x0403
}
