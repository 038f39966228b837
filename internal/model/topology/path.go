package topology

import (
	"slices"

	"ringlane/internal/model/machine"
)

// PathKind is how two devices reach each other, as nvidia-smi topo -m names it.
type PathKind string

// The kinds of path, from near to far.
const (
	PIX  PathKind = "PIX"  // at most one switch
	PXB  PathKind = "PXB"  // several switches, no host bridge
	PHB  PathKind = "PHB"  // one host bridge
	NODE PathKind = "NODE" // several host bridges of a NUMA node
	SYS  PathKind = "SYS"  // the interconnect between NUMA nodes
)

var pathKinds = []PathKind{PIX, PXB, PHB, NODE, SYS}

func (k PathKind) farther(than PathKind) bool {
	return slices.Index(pathKinds, k) > slices.Index(pathKinds, than)
}

// A Path is the way between two nodes.
type Path struct {
	A, B *Node
	// Kind is "" where no input tells it.
	Kind PathKind
	// GBs is the bandwidth one way of the narrowest link, 0 where a link of
	// the path is not known. What the CPU's own interconnect carries is not
	// in it.
	GBs float64
	// Narrowest is that link.
	Narrowest *Link
	// Via are the ports, host bridges and NUMA nodes on the way, from A to B.
	Via []string
	// Redirects are the ports on the way whose ACS sends peer traffic up to
	// the root complex; Unread those whose ACS could not be read.
	Redirects, Unread []*machine.Device
	// Sockets is set where the path crosses from one CPU to another, as far
	// as it is known; without knowledge of sockets NUMA nodes count as such.
	Sockets bool
	// NVLinks is the number of NVLinks (or XGMI links) between two GPUs; -1
	// where they are joined by a switch of such links.
	NVLinks int
	Peer    Peer

	turn *Node // the nearest node above both
}

// Path returns the way from a to b.
func (g *Graph) Path(a, b *Node) Path {
	p := Path{A: a, B: b}
	p.turn = common(a, b)
	up, knownUp := g.climb(&p, a)
	down, knownDown := g.climb(&p, b)
	slices.Reverse(down)
	p.Via = append(p.Via, up...)
	if p.turn.Kind == HostBridge || p.turn.Kind == NUMA {
		p.Via = append(p.Via, p.turn.ID)
	}
	p.Via = append(p.Via, down...)
	if p.Narrowest != nil && knownUp && knownDown {
		p.GBs = p.Narrowest.GBs()
	}
	p.Kind = g.kind(&p)
	p.Sockets = apart(a.under(NUMA), b.under(NUMA))
	p.NVLinks = g.nvlinks(a, b)
	p.Peer = g.peer(&p)
	return p
}

// apart reports whether two NUMA nodes are of different sockets.
func apart(a, b *Node) bool {
	if a == nil || b == nil || a == b || a.Node == nil || b.Node == nil {
		return false
	}
	return a.Socket == nil || b.Socket == nil || *a.Socket != *b.Socket
}

func common(a, b *Node) *Node {
	above := map[*Node]bool{}
	for n := a; n != nil; n = n.Parent {
		above[n] = true
	}
	for n := b; n != nil; n = n.Parent {
		if above[n] {
			return n
		}
	}
	return nil
}

// climb goes from an endpoint to the turn of the path and notes what it meets.
func (g *Graph) climb(p *Path, from *Node) (via []string, known bool) {
	known = true
	for n := from; n != p.turn && n != nil; n = n.Parent {
		if n != from && (n.Kind == HostBridge || n.Kind == NUMA) {
			via = append(via, n.ID)
		}
		onLink := n.Kind.Endpoint() || n.Kind == Switch
		if !onLink {
			continue
		}
		if n.Up.GBs() == 0 {
			known = false
		} else if p.Narrowest == nil || n.Up.GBs() < p.Narrowest.GBs() {
			p.Narrowest = n.Up
		}
		if n.Kind == Switch && n.Device != nil {
			via = append(via, n.ID)
		}
		if n.Up == nil || n.Up.Upper == nil {
			continue
		}
		port := n.Up.Upper
		via = append(via, port.BDF.String())
		switch acs := port.Registers.ACS; {
		case acs != nil && acs.Enabled&acsRedirect != 0:
			p.Redirects = append(p.Redirects, port)
		case acs == nil && (port.Registers.CapabilitiesDenied || len(port.Registers.Capabilities) == 0):
			p.Unread = append(p.Unread, port)
		}
	}
	return via, known
}

// kind derives the kind of a path from where it turns. Where the tree is only
// known in part, what nvidia-smi says is better.
func (g *Graph) kind(p *Path) PathKind {
	said := PathKind("")
	if p.A.Matrix != "" && p.B.Matrix != "" {
		said = cellKind(g.Machine.Matrix, p.A.Matrix, p.B.Matrix)
	}
	whole := p.A.Device != nil && p.B.Device != nil
	for _, end := range []*Node{p.A, p.B} {
		for n := end; n != p.turn && n != nil; n = n.Parent {
			whole = whole && !n.Unplaced
		}
	}
	switch p.turn.Kind {
	case Host:
		a, b := p.A.under(NUMA), p.B.under(NUMA)
		if a.Node != nil && b.Node != nil {
			return SYS
		}
		return said
	case NUMA:
		if said != "" && (!whole || fromNCCL(p.A.Device) || p.turn.Node == nil) {
			return said
		}
		if !whole || p.turn.Node == nil && len(g.Root.Children) > 1 {
			return ""
		}
		return NODE
	case HostBridge:
		if !whole && said != "" {
			return said
		}
		return PHB
	}
	if !whole && said != "" {
		return said
	}
	for _, end := range []*Node{p.A, p.B} {
		for n := end.Parent; n != p.turn; n = n.Parent {
			if n.Kind == Switch || n.Kind == Bridge {
				return PXB
			}
		}
	}
	return PIX
}

// nvlinks counts the direct links between two GPUs that NCCL's file lists.
func (g *Graph) nvlinks(a, b *Node) int {
	if a.Matrix != "" && b.Matrix != "" {
		cell := g.Machine.Matrix.Cell(a.Matrix, b.Matrix)
		if len(cell) > 2 && cell[:2] == "NV" {
			if _, n := splitNumber(cell); n > 0 {
				return n
			}
		}
	}
	if g.Machine.NCCL == nil || a.Device == nil || b.Device == nil {
		return 0
	}
	switched := 0
	for i := range g.Machine.NCCL.Nodes {
		node := &g.Machine.NCCL.Nodes[i]
		if node.GPU == nil || node.BDF != a.Device.BDF && node.BDF != b.Device.BDF {
			continue
		}
		for _, l := range node.GPU.NVLinks {
			other := b
			if node.BDF == b.Device.BDF {
				other = a
			}
			if l.Target == other.ID {
				return l.Count
			}
			if l.Class == "0x068000" && !g.isGPU(l.Target) {
				switched++
				break
			}
		}
	}
	if switched == 2 {
		return -1
	}
	return 0
}

func (g *Graph) isGPU(id string) bool {
	return slices.ContainsFunc(g.GPUs, func(n *Node) bool { return n.ID == id })
}

// Paths returns the paths between all pairs of GPUs, in order.
func (g *Graph) Paths() []Path {
	var out []Path
	for i, a := range g.GPUs {
		for _, b := range g.GPUs[i+1:] {
			out = append(out, g.Path(a, b))
		}
	}
	return out
}
