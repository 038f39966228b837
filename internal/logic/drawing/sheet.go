// Package drawing shows the map of a machine: as text, JSON, DOT, SVG, and as
// the XML files that NCCL reads.
package drawing

import (
	"fmt"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/topology"
)

// A Sheet is a graph and everything that is drawn of it.
type Sheet struct {
	Graph   *topology.Graph
	Paths   []topology.Path
	Uplinks []*topology.Uplink
	Ring    topology.Ring
	// Problems are those of the document, then those of the graph.
	Problems []machine.Problem
	// Measured is what Measure was given.
	Measured []Measurement

	shared map[*topology.Node]*topology.Uplink // by switch
	place  map[*topology.Node]int              // in the ring, from 1
}

// NewSheet works out what is drawn. Measured bandwidths may be nil.
func NewSheet(g *topology.Graph, measured topology.Bandwidths) *Sheet {
	s := &Sheet{
		Graph: g, Paths: g.Paths(), Uplinks: g.SharedUplinks(), Ring: g.Ring(measured),
		shared: map[*topology.Node]*topology.Uplink{}, place: map[*topology.Node]int{},
	}
	s.Problems = append(append(s.Problems, g.Machine.Problems...), g.Problems...)
	for _, u := range s.Uplinks {
		s.shared[u.Switch] = u
	}
	for i, n := range s.Ring.Order {
		s.place[n] = i + 1
	}
	return s
}

// view is the part of the tree that is drawn: the ways to GPUs, NICs and NVMe
// drives, or, in a machine with none of these, the ways to anything. Like
// drives and ports of one switch are drawn as one.
type view struct {
	node     *topology.Node
	same     []*topology.Node // further endpoints that look the same
	children []*view
}

func (s *Sheet) view() *view {
	wanted := func(n *topology.Node) bool { return n.Kind != topology.Other }
	if !has(s.Graph.Root, wanted) {
		wanted = func(*topology.Node) bool { return true }
	}
	return newView(s.Graph.Root, wanted)
}

func has(n *topology.Node, wanted func(*topology.Node) bool) bool {
	for _, e := range n.Endpoints() {
		if wanted(e) {
			return true
		}
	}
	return false
}

func newView(n *topology.Node, wanted func(*topology.Node) bool) *view {
	v := &view{node: n}
	for _, c := range n.Children {
		if !has(c, wanted) {
			continue
		}
		if twin := v.twin(c); twin != nil {
			twin.same = append(twin.same, c)
			continue
		}
		child := newView(c, wanted)
		if c.Kind == topology.HostBridge && len(child.children) == 1 {
			child = child.children[0] // it joins nothing
		}
		v.children = append(v.children, child)
	}
	return v
}

// twin finds an endpoint below the same switch that differs from n in nothing
// but its address. GPUs are always drawn one by one.
func (v *view) twin(n *topology.Node) *view {
	if !n.Kind.Endpoint() || n.Kind == topology.GPU || v.node.Kind != topology.Switch || n.Device == nil {
		return nil
	}
	for _, c := range v.children {
		o := c.node
		if o.Kind == n.Kind && o.Name == n.Name && o.Device != nil && linkText(o) == linkText(n) {
			return c
		}
	}
	return nil
}

// label names a GPU by number, everything else by what it is.
func label(n *topology.Node) string {
	switch n.Kind {
	case topology.GPU:
		return fmt.Sprintf("GPU%d", n.Index)
	case topology.NIC:
		return "NIC"
	case topology.NVMe:
		return "NVMe"
	case topology.RootPort:
		return "root port"
	case topology.Switch, topology.Bridge:
		return string(n.Kind)
	}
	return ""
}

// nameOf is the name of a node, "" where it says no more than the label does.
func nameOf(n *topology.Node) string {
	generic := n.Device != nil && n.Name == n.Device.Class.Name && (n.Kind == topology.GPU || !n.Kind.Endpoint())
	if generic || n.Name == label(n) || n.Name == n.ID {
		return ""
	}
	return n.Name
}

// summary is the heading: the machine's name and what is in it.
func (s *Sheet) summary() string {
	m := s.Graph.Machine
	parts := []string{count(len(s.Graph.GPUs), "GPU")}
	if len(s.Graph.GPUs) == 0 {
		parts[0] = "no GPU found"
	}
	known := 0
	for _, n := range s.Graph.Root.Children {
		if n.Node != nil {
			known++
		}
	}
	if known > 0 {
		parts = append(parts, count(known, "NUMA node"))
	}
	if n := len(s.Uplinks); n > 0 {
		parts = append(parts, count(n, "shared uplink"))
	}
	if m.Virtual.Likely() {
		name := "virtual machine"
		if m.Virtual.Hypervisor != "" {
			name += " (" + topology.Printable(m.Virtual.Hypervisor) + ")"
		}
		parts = append(parts, name)
	}
	head := strings.Join(parts, ", ")
	if name := strings.TrimSpace(topology.Printable(m.Host + " " + m.Product)); name != "" {
		head = name + ": " + head
	}
	return head
}

// title is the name of a NUMA node with its socket and CPUs.
func (s *Sheet) title(n *topology.Node) string {
	out := n.Name
	if len(s.Graph.Root.Children) == 1 && n.Node == nil {
		out = "host"
	}
	if n.Socket != nil {
		out = fmt.Sprintf("socket %d, %s", *n.Socket, out)
	}
	return out
}

func (s *Sheet) cpus(n *topology.Node) string {
	if n.Node == nil {
		return ""
	}
	for _, numa := range s.Graph.Machine.NUMANodes {
		if numa.ID == *n.Node {
			return topology.Printable(numa.CPUs)
		}
	}
	return ""
}

// dead reports whether the device of a node does not answer.
func dead(n *topology.Node) bool {
	d := n.Device
	return d != nil && (d.Unreachable() || d.GPU != nil && d.GPU.Broken != "")
}

// linkText is speed and width of the link above a node, "" if there is none.
func linkText(n *topology.Node) string {
	switch {
	case n.Up == nil || n.Kind == topology.RootPort:
		return ""
	case n.Up.Negotiated.Known():
		return n.Up.Negotiated.String()
	case n.Up.Effective.Known():
		return n.Up.Effective.String()
	}
	return "?"
}

// remark is what must be known beside speed and width.
func remark(l *topology.Link) string {
	if l == nil {
		return ""
	}
	var out []string
	if l.Idle {
		out = append(out, "idle; up to "+l.Effective.String())
	}
	n, c := l.Negotiated, l.Capable
	if !l.Idle && n.Slower(c) || n.Narrower(c) {
		out = append(out, "both ends can "+c.String())
	}
	if l.Note != "" {
		out = append(out, l.Note)
	}
	return strings.Join(out, "; ")
}

func gbs(v float64) string {
	if v == 0 {
		return "?"
	}
	return fmt.Sprintf("%.2f", v)
}

func ids(nodes []*topology.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.ID
	}
	return out
}

func labels(nodes []*topology.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = label(n)
	}
	return out
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// sharers is "4 GPUs, 2 NICs".
func sharers(u *topology.Uplink) string {
	out := count(len(u.GPUs), "GPU")
	for _, k := range []struct {
		kind topology.Kind
		word string
	}{{topology.NIC, "NIC"}, {topology.NVMe, "NVMe drive"}} {
		n := 0
		for _, o := range u.Others {
			if o.Kind == k.kind {
				n++
			}
		}
		if n > 0 {
			out += ", " + count(n, k.word)
		}
	}
	return out
}

// why explains the ring in a few sentences.
func (s *Sheet) why() []string {
	r, c := s.Ring, s.Ring.Cost
	if len(r.Order) < 2 {
		return nil
	}
	var out []string
	switches := 0
	for _, u := range s.Uplinks {
		if len(u.GPUs) > 1 && len(u.GPUs) < len(r.Order) {
			switches++
		}
	}
	if switches > 0 {
		out = append(out, "GPUs of one switch stand side by side, so that no shared uplink carries more of the ring than it must")
	}
	nodes := 0
	for _, n := range s.Graph.Root.Children {
		if has(n, func(e *topology.Node) bool { return e.Kind == topology.GPU }) {
			nodes++
		}
	}
	switch {
	case nodes > 1 && c.Nodes == nodes:
		out = append(out, fmt.Sprintf("it crosses between NUMA nodes %d times, the least that there can be", c.Nodes))
	case nodes > 1:
		out = append(out, fmt.Sprintf("it crosses between NUMA nodes %d times, of at least %d", c.Nodes, nodes))
	}
	if r.Busiest != nil {
		out = append(out, fmt.Sprintf("its narrowest place is the link above %s: %s GB/s one way", placeName(r.Busiest), gbs(r.GBs)))
	}
	switch {
	case len(r.Order) <= 3:
	case r.Exact:
		out = append(out, "no order is better")
	default:
		out = append(out, "it was found by rule: with so many GPUs not every order was tried")
	}
	return out
}

func placeName(n *topology.Node) string {
	return strings.TrimSpace(label(n) + " " + n.ID)
}
