package topology

// RingCost is the cost of an order of Graph.GPUs.
func (g *Graph) RingCost(order []int, measured Bandwidths) Cost {
	return newRingProblem(g, measured).cost(order)
}

// RingWalk is the walk of the tree by address.
func (g *Graph) RingWalk(measured Bandwidths) Ring {
	p := newRingProblem(g, measured)
	return g.ring(p, p.hierarchical())
}

// RingByRule is the ring that the heuristic finds.
func (g *Graph) RingByRule(measured Bandwidths) Ring {
	p := newRingProblem(g, measured)
	return g.ring(p, p.improve(p.hierarchical()))
}

func (g *Graph) ring(p *ringProblem, order []int) Ring {
	out := Ring{Cost: p.cost(order)}
	for _, i := range order {
		out.Order = append(out.Order, g.GPUs[i])
	}
	return out
}
