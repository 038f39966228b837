package topology

import (
	"cmp"
	"math"
	"slices"
)

// A Ring is an order in which a ring visits all GPUs: each sends to the next,
// the last to the first.
type Ring struct {
	Order []*Node
	Cost  Cost
	// Exact is set where no ring is better; else a heuristic found it.
	Exact bool
	// GBs is what the ring can stream, one way: the busiest link's bandwidth
	// over the number of times the ring takes it. 0 if not known.
	GBs float64
	// Busiest is the node whose link that is, nil if not known.
	Busiest *Node
}

// Cost is what a ring costs; rings are compared field by field, in order.
type Cost struct {
	// Load is the time that the most loaded link takes for a gigabyte from
	// every GPU to the next, in seconds: the streams over it, divided by its
	// bandwidth. Measured bandwidths count as links of their own.
	Load float64
	// Sockets is how often the ring crosses from one CPU to another, Nodes
	// from one NUMA node to another, and Uplinks how often it leaves a
	// switch, all switches together.
	Sockets, Nodes, Uplinks int
}

// Compare orders costs. Loads within a twentieth are the same: measurements
// scatter, and a socket crossing is worse than that.
func (c Cost) Compare(o Cost) int {
	return cmp.Or(cmp.Compare(step(c.Load), step(o.Load)),
		cmp.Compare(c.Sockets, o.Sockets), cmp.Compare(c.Nodes, o.Nodes), cmp.Compare(c.Uplinks, o.Uplinks))
}

// step puts loads on a logarithmic scale in steps of 5 %, so that comparing
// stays transitive.
func step(load float64) float64 {
	if load == 0 {
		return math.Inf(-1)
	}
	return math.Round(math.Log(load) / math.Log(1.05))
}

// Bandwidths are measured gigabytes a second one way: Bandwidths[i][j] from
// GPU i of Graph.GPUs to GPU j. What is 0 was not measured.
type Bandwidths [][]float64

// exactUpTo is the number of GPUs up to which every ring is considered.
const exactUpTo = 12

// Ring returns the order that loads the most loaded link least, then crosses
// sockets least, then uplinks. Of equal ones it is the walk of the tree by
// address, in which all that share a switch are in a row, or else the first by
// address. It starts at the GPU with the lowest address. Measured bandwidths
// may be nil.
func (g *Graph) Ring(measured Bandwidths) Ring {
	n := len(g.GPUs)
	if n == 0 {
		return Ring{}
	}
	p := newRingProblem(g, measured)
	order, exact := p.hierarchical(), n <= exactUpTo
	if exact {
		order = p.search(order)
	} else {
		order = p.improve(order)
		exact = p.cost(order).Compare(p.least()) == 0
	}
	out := Ring{Cost: p.cost(order), Exact: exact}
	for _, i := range order {
		out.Order = append(out.Order, g.GPUs[i])
	}
	out.Busiest, out.GBs = p.busiest(order)
	return out
}

// kinds of groups in a ring problem.
type groupKind uint8

const (
	uplinkGroup groupKind = iota // GPUs below one switch
	leafGroup                    // one GPU with its own link
	nodeGroup
	socketGroup
)

// A group is a set of GPUs that a ring should leave, and so enter, as seldom
// as it can.
type group struct {
	kind    groupKind
	in      []bool // by GPU
	members int
	seconds float64 // a gigabyte takes on its link, 0 if not known
	at      *Node
}

// ringProblem is the machine as far as the ring sees it. The groups of a tree
// are nested or apart, never overlapping.
type ringProblem struct {
	n        int
	groups   []group
	measured Bandwidths
	g        *Graph
}

func newRingProblem(g *Graph, measured Bandwidths) *ringProblem {
	p := &ringProblem{n: len(g.GPUs), g: g, measured: measured}
	index := map[*Node]int{}
	for i, n := range g.GPUs {
		index[n] = i
	}
	sockets := map[int]*group{}
	var socketless []*Node
	var visit func(n *Node)
	visit = func(n *Node) {
		gr := group{in: make([]bool, p.n), at: n}
		for _, e := range n.Endpoints() {
			if i, ok := index[e]; ok {
				gr.in[i] = true
				gr.members++
			}
		}
		if gr.members == 0 {
			return
		}
		if bw := n.Up.GBs(); bw > 0 {
			gr.seconds = 1 / bw
		}
		switch n.Kind {
		case GPU:
			gr.kind = leafGroup
			p.groups = append(p.groups, gr)
		case Switch:
			gr.kind = uplinkGroup
			p.groups = append(p.groups, gr)
		case NUMA:
			gr.kind, gr.seconds = nodeGroup, 0
			p.groups = append(p.groups, gr)
			if n.Socket == nil {
				socketless = append(socketless, n)
				break
			}
			s := sockets[*n.Socket]
			if s == nil {
				s = &group{kind: socketGroup, in: make([]bool, p.n)}
				sockets[*n.Socket] = s
			}
			for i, in := range gr.in {
				s.in[i] = s.in[i] || in
			}
			s.members += gr.members
		}
		for _, c := range n.Children {
			visit(c)
		}
	}
	visit(g.Root)
	for _, s := range sockets {
		p.groups = append(p.groups, *s)
	}
	for _, n := range socketless { // a node whose socket is not known counts as one
		i := slices.IndexFunc(p.groups, func(gr group) bool { return gr.at == n })
		gr := p.groups[i]
		gr.kind = socketGroup
		p.groups = append(p.groups, gr)
	}
	p.groups = slices.DeleteFunc(p.groups, func(gr group) bool { return gr.members == p.n })
	return p
}

// leaves counts how often a ring leaves a group.
func (gr *group) leaves(order []int) int {
	count := 0
	for i, at := range order {
		if gr.in[at] && !gr.in[order[(i+1)%len(order)]] {
			count++
		}
	}
	return count
}

func (c *Cost) count(gr *group, leaves int) {
	c.Load = max(c.Load, float64(leaves)*gr.seconds)
	switch gr.kind {
	case uplinkGroup:
		c.Uplinks += leaves
	case nodeGroup:
		c.Nodes += leaves
	case socketGroup:
		c.Sockets += leaves
	}
}

func (p *ringProblem) edge(from, to int) float64 {
	if from < len(p.measured) && to < len(p.measured[from]) && p.measured[from][to] > 0 {
		return 1 / p.measured[from][to]
	}
	return 0
}

func (p *ringProblem) cost(order []int) (c Cost) {
	for i := range p.groups {
		c.count(&p.groups[i], p.groups[i].leaves(order))
	}
	for i, at := range order {
		c.Load = max(c.Load, p.edge(at, order[(i+1)%len(order)]))
	}
	return c
}

// least is a bound that no ring can beat: every group is left once, and the
// best way out of the worst GPU is taken.
func (p *ringProblem) least() (c Cost) {
	for i := range p.groups {
		c.count(&p.groups[i], 1)
	}
	for i := range p.n {
		best := math.Inf(1)
		for j := range p.n {
			if i != j {
				best = min(best, p.edge(i, j))
			}
		}
		if p.n > 1 {
			c.Load = max(c.Load, best)
		}
	}
	return c
}

// busiest finds the link that limits a ring.
func (p *ringProblem) busiest(order []int) (at *Node, bandwidth float64) {
	worst := 0.0
	for i := range p.groups {
		gr := &p.groups[i]
		load := float64(gr.leaves(order)) * gr.seconds
		if (gr.kind == leafGroup || gr.kind == uplinkGroup) && load > worst {
			worst, at = load, gr.at
		}
	}
	if worst == 0 {
		return nil, 0
	}
	return at, 1 / worst
}

// hierarchical walks the tree by address: whatever shares a switch, a NUMA
// node or a socket stays together, so that every group is left once.
func (p *ringProblem) hierarchical() []int {
	bySize := make([]*group, len(p.groups))
	for i := range p.groups {
		bySize[i] = &p.groups[i]
	}
	slices.SortStableFunc(bySize, func(a, b *group) int { return b.members - a.members })
	// walk parts a set by the largest groups inside it, then goes into each.
	var walk func(set []int) []int
	walk = func(set []int) []int {
		var parts [][]int
		rest := slices.Clone(set)
		for _, gr := range bySize {
			inside := func(x int) bool { return gr.in[x] }
			if gr.members >= len(set) || !slices.ContainsFunc(rest, inside) {
				continue
			}
			var part []int
			for _, x := range rest {
				if gr.in[x] {
					part = append(part, x)
				}
			}
			rest = slices.DeleteFunc(rest, inside)
			parts = append(parts, walk(part))
		}
		for _, x := range rest {
			parts = append(parts, []int{x})
		}
		slices.SortFunc(parts, func(a, b []int) int { return a[0] - b[0] })
		return slices.Concat(parts...)
	}
	all := make([]int, p.n)
	for i := range all {
		all[i] = i
	}
	return walk(all)
}

// canonical turns a ring so that it starts at the lowest GPU. Its direction
// stays: bandwidths may differ by direction.
func canonical(order []int) []int {
	at := slices.Index(order, slices.Min(order))
	return append(slices.Clone(order[at:]), order[:at]...)
}

// improve exchanges pairs of edges (2-opt) and moves rows of GPUs while that
// makes the ring better. The load of the worst edge alone has many plateaus,
// so the first pass takes what relieves the slow edges together; the second
// takes the cost itself. The cheapest ring seen wins.
func (p *ringProblem) improve(start []int) []int {
	best, cost, least := start, p.cost(start), p.least()
	for _, better := range []func(a, b []int) bool{
		func(a, b []int) bool { return p.strain(a) < p.strain(b)*(1-1e-9) },
		func(a, b []int) bool { return p.cost(a).Compare(p.cost(b)) < 0 },
	} {
		order := best
		for moved := true; moved && cost.Compare(least) > 0; {
			moved = false
			for _, candidate := range neighbours(order) {
				if c := p.cost(candidate); c.Compare(cost) < 0 {
					best, cost = candidate, c
				}
				if better(candidate, order) {
					order, moved = candidate, true
				}
			}
		}
	}
	return canonical(best)
}

// strain adds up the loads of a ring's edges and links so that slow ones
// weigh most.
func (p *ringProblem) strain(order []int) float64 {
	sum := 0.0
	for i, at := range order {
		sum += math.Pow(p.edge(at, order[(i+1)%len(order)]), 4)
	}
	for i := range p.groups {
		gr := &p.groups[i]
		sum += math.Pow(float64(gr.leaves(order))*gr.seconds, 4)
	}
	return sum
}

// neighbours are the orders with one stretch reversed (2-opt), or with up to
// three GPUs in a row moved elsewhere (or-opt).
func neighbours(order []int) (out [][]int) {
	n := len(order)
	for i := range order {
		for j := i + 1; j < n; j++ {
			reversed := slices.Clone(order)
			slices.Reverse(reversed[i : j+1])
			out = append(out, reversed)
		}
		for length := 1; length <= min(3, n-2); length++ {
			turned := append(slices.Clone(order[i:]), order[:i]...)
			row, rest := turned[:length], turned[length:]
			for at := 1; at < len(rest); at++ {
				out = append(out, slices.Concat(rest[:at], row, rest[at:]))
			}
		}
	}
	return out
}
