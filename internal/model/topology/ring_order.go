package topology

import "math"

// Of an order and of islands that follow from measurements the ratio to the fastest
// path alone counts, in steps of two: so x16, x8 and x4, or two generations of
// PCIe, are in the middle of a step, and figures that scatter do not change it.

// Steps says how many times two slower than the fastest path each is, -1 where
// nothing was measured.
func (b Bandwidths) Steps() [][]int {
	fastest := 0.0
	for _, row := range b {
		for _, v := range row {
			fastest = max(fastest, v)
		}
	}
	steps := make([][]int, len(b))
	for i, row := range b {
		steps[i] = make([]int, len(row))
		for j, v := range row {
			steps[i][j] = -1
			if v > 0 {
				steps[i][j] = int(math.Round(math.Log2(fastest / v)))
			}
		}
	}
	return steps
}

// Order is the order in which a ring visits n places of which nothing is known but
// measured bandwidths, in coarse steps, and islands, by place, which it then leaves
// as seldom as it can: nil for none. The slowest path of the ring is as fast as
// there is a ring with. Of equal ones it is the first, so that places stay in their
// order where nothing speaks against it.
func Order(n int, measured Bandwidths, islands []int) []int {
	coarse := make(Bandwidths, len(measured))
	for i, row := range measured.Steps() {
		coarse[i] = make([]float64, len(row))
		for j, step := range row {
			if step >= 0 {
				coarse[i][j] = math.Pow(2, float64(-step))
			}
		}
	}
	p := &ringProblem{n: n, measured: coarse}
	for place, island := range islands {
		for len(p.groups) <= island {
			p.groups = append(p.groups, group{kind: uplinkGroup, in: make([]bool, n)})
		}
		p.groups[island].in[place] = true
		p.groups[island].members++
	}
	order := p.hierarchical()
	if n <= exactUpTo {
		return p.search(order)
	}
	return p.improve(order)
}

// Nearest are the islands of places that reach each other, both ways, by the
// fastest paths: numbered in the order of their first places, or nil unless there
// are several and none is alone in its own. A path that was not measured is none.
func (b Bandwidths) Nearest() []int {
	steps := b.Steps()
	return Join(len(b), func(i, j int) bool { return steps[i][j] == 0 && steps[j][i] == 0 })
}

// Join makes islands of places of which some are near each other, as Nearest does.
func Join(n int, near func(i, j int) bool) []int {
	islands, members := make([]int, n), []int{}
	for i := range islands {
		islands[i] = -1
	}
	var fill func(i, island int)
	fill = func(i, island int) {
		islands[i] = island
		members[island]++
		for j := range n {
			if islands[j] < 0 && near(i, j) {
				fill(j, island)
			}
		}
	}
	for i := range n {
		if islands[i] < 0 {
			members = append(members, 0)
			fill(i, len(members)-1)
		}
	}
	if len(members) < 2 {
		return nil
	}
	for _, m := range members {
		if m < 2 {
			return nil
		}
	}
	return islands
}
