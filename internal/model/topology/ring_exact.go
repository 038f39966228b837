package topology

import "slices"

// search finds the cheapest ring by branch and bound. It tries rings in the
// order of addresses and keeps the first that is cheaper than all before it;
// the ring that it starts from stays if none is.
func (p *ringProblem) search(start []int) []int {
	s := &ringSearch{
		ringProblem: p,
		best:        p.cost(start), order: slices.Clone(start),
		path: []int{0}, used: make([]bool, p.n),
		left: make([]int, len(p.groups)), todo: make([]int, len(p.groups)),
		least: p.least(),
	}
	if p.n < 3 {
		return start
	}
	s.used[0] = true
	for i := range p.groups {
		s.todo[i] = p.groups[i].members
		if p.groups[i].in[0] {
			s.todo[i]--
		}
	}
	s.extend(0)
	return s.order
}

// ringSearch is the state of a search: a path from GPU 0, and for every group
// how often the path left it and how many members are still to visit.
type ringSearch struct {
	*ringProblem
	best  Cost
	order []int
	least Cost

	path []int
	used []bool
	left []int
	todo []int
}

// bound is the least that a ring beginning with the path can cost, with load
// the largest measured one so far.
func (s *ringSearch) bound(load float64) Cost {
	last := s.path[len(s.path)-1]
	c := Cost{Load: load}
	for i := range s.groups {
		gr := &s.groups[i]
		leaves := s.left[i]
		switch {
		case gr.in[last] && (!gr.in[0] || s.outside(i) > 0):
			leaves++ // it has to go out again: to what is outside, or to the start
		case !gr.in[last] && s.todo[i] > 0 && !gr.in[0]:
			leaves++ // in again, and out to the start
		}
		c.count(gr, leaves)
	}
	c.Load = max(c.Load, s.least.Load)
	return c
}

// outside is the number of GPUs still to visit that are not in group i.
func (s *ringSearch) outside(i int) int { return s.n - len(s.path) - s.todo[i] }

func (s *ringSearch) extend(load float64) {
	if s.best.Compare(s.least) == 0 {
		return // nothing can be better
	}
	last := s.path[len(s.path)-1]
	if len(s.path) == s.n {
		c := s.cost(s.path)
		if c.Compare(s.best) < 0 {
			s.best, s.order = c, slices.Clone(s.path)
		}
		return
	}
	for next := range s.n {
		if s.used[next] {
			continue
		}
		s.step(last, next, 1)
		through := max(load, s.edge(last, next))
		if s.bound(through).Compare(s.best) < 0 {
			s.extend(through)
		}
		s.step(last, next, -1)
	}
}

// step goes from last to next (by 1) or takes that back (by -1).
func (s *ringSearch) step(last, next, by int) {
	for i := range s.groups {
		gr := &s.groups[i]
		if gr.in[last] && !gr.in[next] {
			s.left[i] += by
		}
		if gr.in[next] {
			s.todo[i] -= by
		}
	}
	if by > 0 {
		s.path, s.used[next] = append(s.path, next), true
	} else {
		s.path, s.used[next] = s.path[:len(s.path)-1], false
	}
}
