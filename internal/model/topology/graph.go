// Package topology draws the map of a machine: what hangs below what, what
// every link carries, which uplinks are shared, how two devices reach each
// other, and in which order a ring should visit the GPUs.
package topology

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// A Graph is the tree of one machine. It is not changed once New has made it.
type Graph struct {
	Machine *machine.Machine
	Root    *Node   // the host; its children are NUMA nodes
	GPUs    []*Node // in order of address, or of the matrix's names

	// Problems are what the documents say that does not make a tree.
	Problems []machine.Problem
}

// Kind says what a node of the tree is.
type Kind string

// The kinds of nodes.
const (
	Host       Kind = "host"
	NUMA       Kind = "numa"
	HostBridge Kind = "host-bridge"
	RootPort   Kind = "root-port"
	Switch     Kind = "switch" // all ports of one chip, or of one virtual switch of a chip
	Bridge     Kind = "bridge" // to conventional PCI
	GPU        Kind = "gpu"
	NIC        Kind = "nic"
	NVMe       Kind = "nvme"
	Other      Kind = "other"
)

// Endpoint reports whether nodes of the kind are devices, not ways to them.
func (k Kind) Endpoint() bool { return k == GPU || k == NIC || k == NVMe || k == Other }

// A Node is a place in the tree.
type Node struct {
	Kind Kind
	// ID names the node: the address of a device (for a switch that of its
	// upstream port), "0000:80" for the host bridge of that bus, "numa1", or
	// the name in a matrix ("GPU0") where no address is known.
	ID   string
	Name string // for people

	// Device is the function that stands for the node, nil where no address
	// is known; Functions are the others of the same device, and the virtual
	// functions.
	Device    *machine.Device
	Functions []*machine.Device
	// Ports are the downstream ports of a switch.
	Ports []*machine.Device
	// Card are the ports of a switch that is part of the GPU's own card.
	Card []*machine.Device

	Parent   *Node
	Children []*Node
	// Up is the link towards the root, nil where there is none (on a root
	// bus) or nothing is known of it.
	Up *Link

	// Node is the number of a NUMA node, and of the one a GPU belongs to; nil
	// where it is not known.
	Node   *int
	Socket *int // of a NUMA node

	// Unplaced is set where no input tells what is above the node: it hangs
	// below its NUMA node for want of better knowledge.
	Unplaced bool
	// Index is nvidia-smi's number of a GPU, else its place in the order of
	// addresses.
	Index int
	// Matrix is the name of the device in nvidia-smi's matrices, "" if it is
	// not there.
	Matrix string
}

// Depth returns the number of nodes above n.
func (n *Node) Depth() int {
	d := 0
	for p := n.Parent; p != nil; p = p.Parent {
		d++
	}
	return d
}

// Endpoints returns the endpoints at and below n, in the order of the tree.
func (n *Node) Endpoints() []*Node {
	if n.Kind.Endpoint() {
		return []*Node{n}
	}
	var out []*Node
	for _, c := range n.Children {
		out = append(out, c.Endpoints()...)
	}
	return out
}

// under returns the nearest node of the kind at or above n, nil if there is none.
func (n *Node) under(k Kind) *Node {
	for ; n != nil; n = n.Parent {
		if n.Kind == k {
			return n
		}
	}
	return nil
}

func (n *Node) add(c *Node) {
	c.Parent = n
	n.Children = append(n.Children, c)
}

// compare orders nodes by address, and those without one by the numbers in
// their names.
func compare(a, b *Node) int {
	if a.Device != nil && b.Device != nil {
		return a.Device.BDF.Compare(b.Device.BDF)
	}
	return compareNames(a.ID, b.ID)
}

// compareNames puts GPU2 before GPU10.
func compareNames(a, b string) int {
	pa, na := splitNumber(a)
	pb, nb := splitNumber(b)
	return cmp.Or(cmp.Compare(pa, pb), cmp.Compare(na, nb), cmp.Compare(a, b))
}

func splitNumber(s string) (string, int) {
	i := len(s)
	for i > 0 && s[i-1] >= '0' && s[i-1] <= '9' {
		i--
	}
	n, err := strconv.Atoi(s[i:])
	if err != nil {
		return s, -1
	}
	return s[:i], n
}

// sortTree orders the children of every node by the first GPU below them,
// then by the first other device.
func sortTree(n *Node) {
	for _, c := range n.Children {
		sortTree(c)
	}
	slices.SortStableFunc(n.Children, func(a, b *Node) int {
		if n.Kind == Host {
			return cmp.Compare(number(a), number(b))
		}
		return compare(lead(a), lead(b))
	})
}

// number orders NUMA nodes; one that is not known comes last.
func number(n *Node) int {
	if n.Node == nil {
		return math.MaxInt
	}
	return *n.Node
}

func lead(n *Node) *Node {
	all := n.Endpoints()
	if len(all) == 0 {
		return n
	}
	best := all[0]
	for _, e := range all[1:] {
		if (e.Kind == GPU) != (best.Kind == GPU) {
			if e.Kind == GPU {
				best = e
			}
		} else if compare(e, best) < 0 {
			best = e
		}
	}
	return best
}

// A Link joins a node to the one above it.
type Link struct {
	// Upper and Lower are its two ends; nil where no input shows the end.
	Upper, Lower *machine.Device

	// Negotiated is how the link runs, Capable what both ends can do; either
	// is zero where no input tells.
	Negotiated, Capable pcie.Link
	// Effective is what calculations use: Negotiated, but for an idle GPU the
	// speed that the link can take up.
	Effective pcie.Link
	// Idle is set where Effective is faster than Negotiated because the GPU
	// is taken to save power.
	Idle bool
	// Emulated is set below a port that a hypervisor made up: then Effective
	// is what the card can do, or zero.
	Emulated bool
	// Note is what else a reader must know, "" if nothing.
	Note string
}

// GBs returns the bandwidth one way after line encoding, 0 if not known.
func (l *Link) GBs() float64 {
	if l == nil {
		return 0
	}
	return l.Effective.GBs()
}

// Component names the link for reports: "0000:00:01.1<->0000:01:00.0", or the
// one end that is known.
func (l *Link) Component() string {
	switch {
	case l == nil:
		return ""
	case l.Upper == nil && l.Lower == nil:
		return ""
	case l.Upper == nil:
		return l.Lower.BDF.String()
	case l.Lower == nil:
		return l.Upper.BDF.String()
	}
	return l.Upper.BDF.String() + "<->" + l.Lower.BDF.String()
}
