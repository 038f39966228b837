// Package binding divides the cores of a machine among its ranks.
package binding

import (
	"cmp"
	"fmt"
	"slices"

	"ringlane/internal/model/cpu"
)

// Unlimited is the quota of a process whose CPU time nothing bounds.
const Unlimited = int(^uint(0) >> 1)

// Cores is the number of whole cores among the CPUs. A core counts where any
// of its threads does.
func Cores(cpus []cpu.CPU) int { return len(cores(cpus)) }

// Divide gives each rank cores of its own out of cpus, those that the ranks
// may use, and returns the CPUs of every rank.
//
// Cores stay whole: SMT threads that share one go to the same rank. No rank
// has more than one core more than another. Ranks with neighbouring numbers
// have neighbouring cores, and no rank has cores of two NUMA nodes, or if that
// cannot be of two packages, as long as that costs none of them more than a
// quarter of its cores. Where cores differ in speed, every rank has its share
// of the fast ones.
//
// near[r] is the NUMA node whose cores rank r had best be on, for its GPU is
// there; it counts where all are known and it costs no rank more than half of
// its cores. A nil near states no wish.
//
// An error says why ranks cannot have cores of their own: they are more than
// the cores, or than the whole cores that a quota of CPU time amounts to. A
// quota below the number of CPUs does not say which of them others leave free,
// so each rank still has its part of all cores, for the kernel to choose from.
func Divide(cpus []cpu.CPU, quota, ranks int, near []int) ([]cpu.Set, error) {
	all := cores(cpus)
	fast, slow := bySpeed(all)
	switch {
	case ranks > len(all):
		return nil, fmt.Errorf("%d ranks are more than %s", ranks, counted(len(all), "usable core"))
	case ranks > quota:
		return nil, fmt.Errorf("%d ranks are more than the %s of the CPU quota", ranks, counted(quota, "core"))
	case ranks > len(fast):
		return nil, fmt.Errorf("%d ranks are more than the %s of this machine", ranks, counted(len(fast), "fast core"))
	}
	parts := divide(fast, ranks, near)
	for i, part := range slowParts(slow, parts) {
		parts[i] = append(parts[i], part...)
	}
	sets := make([]cpu.Set, ranks)
	for i, part := range parts {
		for _, c := range part {
			sets[i] = append(sets[i], c.threads...)
		}
		slices.Sort(sets[i])
	}
	return sets, nil
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}

// core is one core and those of its threads that may be used.
type core struct {
	cpu.CPU // the first of them
	threads cpu.Set
}

// cores gathers CPUs into cores, near ones next to each other.
func cores(cpus []cpu.CPU) []core {
	cpus = slices.Clone(cpus)
	slices.SortFunc(cpus, func(a, b cpu.CPU) int {
		return cmp.Or(cmp.Compare(a.Core, b.Core), cmp.Compare(a.ID, b.ID))
	})
	var all []core
	for _, c := range cpus {
		if last := len(all) - 1; last >= 0 && all[last].Core == c.Core {
			all[last].threads = append(all[last].threads, c.ID)
		} else {
			all = append(all, core{c, cpu.Set{c.ID}})
		}
	}
	slices.SortFunc(all, func(a, b core) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.Cache, b.Cache), cmp.Compare(a.Core, b.Core))
	})
	return all
}

// bySpeed parts cores into fast and slow ones. The capacities of equal cores
// differ a little, by their highest clock.
func bySpeed(all []core) (fast, slow []core) {
	most := 0
	for _, c := range all {
		most = max(most, c.Capacity)
	}
	for _, c := range all {
		if 4*c.Capacity >= 3*most {
			fast = append(fast, c)
		} else {
			slow = append(slow, c)
		}
	}
	return fast, slow
}

// level names the part of the machine that a core is in.
type level func(core) [3]int

func inMachine(core) [3]int   { return [3]int{} }
func inPackage(c core) [3]int { return [3]int{c.Package} }
func inNode(c core) [3]int    { return [3]int{c.Package, c.Node} }
func inCache(c core) [3]int   { return [3]int{c.Package, c.Node, c.Cache} }

// divide gives each rank a run of cores; there are at least as many as ranks.
func divide(all []core, ranks int, near []int) [][]core {
	chosen := plan(all, inMachine, ranks)
	for _, at := range []level{inPackage, inNode} {
		if p := plan(all, at, ranks); 4*p.each() >= 3*(len(all)/ranks) {
			chosen = p
		}
	}
	if p := plan(all, inCache, ranks); p.used() >= chosen.used() {
		chosen = p
	}
	for _, at := range []level{inNode, inPackage} {
		if p, ok := planNear(all, at, ranks, near); ok && 2*p.each() >= chosen.each() {
			chosen = p
			break
		}
	}
	return chosen.parts(ranks)
}

// part is a part of the machine and the ranks that have their cores there.
type part struct {
	cores []core
	ranks []int
}

type partition []part

func partitionBy(all []core, at level) partition {
	var p partition
	for i, c := range all {
		if i == 0 || at(c) != at(all[i-1]) {
			p = append(p, part{})
		}
		last := &p[len(p)-1]
		last.cores = append(last.cores, c)
	}
	return p
}

// plan places each rank in one part of the machine so that the rank with the
// fewest cores has as many as can be: the method of highest averages.
func plan(all []core, at level, ranks int) partition {
	p := partitionBy(all, at)
	counts := make([]int, len(p))
	for range ranks {
		best := 0
		for i := range p {
			if len(p[i].cores)*(counts[best]+1) > len(p[best].cores)*(counts[i]+1) {
				best = i
			}
		}
		counts[best]++
	}
	rank := 0
	for i, n := range counts {
		for ; n > 0; n-- {
			p[i].ranks = append(p[i].ranks, rank)
			rank++
		}
	}
	return p
}

// planNear places each rank in the part that holds its NUMA node. It reports
// false where a rank has no such part, or a part too few cores.
func planNear(all []core, at level, ranks int, near []int) (partition, bool) {
	if len(near) < ranks {
		return nil, false
	}
	p := partitionBy(all, at)
	for rank, node := range near[:ranks] {
		home := slices.IndexFunc(p, func(x part) bool {
			return slices.ContainsFunc(x.cores, func(c core) bool { return c.Node == node })
		})
		if home < 0 {
			return nil, false
		}
		p[home].ranks = append(p[home].ranks, rank)
	}
	return p, p.each() > 0
}

// each is the number of cores that every rank can have.
func (p partition) each() int {
	least := Unlimited
	for _, x := range p {
		if len(x.ranks) > 0 {
			least = min(least, len(x.cores)/len(x.ranks))
		}
	}
	return least
}

// used is the number of cores that all ranks have together.
func (p partition) used() (n int) {
	most := p.each() + 1
	for _, x := range p {
		n += min(len(x.cores), len(x.ranks)*most)
	}
	return n
}

// parts deals the cores out: what each can have, and one more where the part
// of the machine has it.
func (p partition) parts(ranks int) [][]core {
	parts := make([][]core, ranks)
	each := p.each()
	for _, x := range p {
		rest, more := x.cores, len(x.cores)-each*len(x.ranks)
		for i, rank := range x.ranks {
			n := each
			if i < more {
				n++
			}
			parts[rank], rest = slices.Clone(rest[:n]), rest[n:]
		}
	}
	return parts
}

// slowParts deals slow cores out evenly, those that are left over to the ranks
// that have fewer of the fast ones.
func slowParts(slow []core, fast [][]core) [][]core {
	n := len(fast)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(fast[a]), len(fast[b])) })
	sizes := make([]int, n)
	for i, rank := range order {
		sizes[rank] = len(slow) / n
		if i < len(slow)%n {
			sizes[rank]++
		}
	}
	parts := make([][]core, n)
	for rank, size := range sizes {
		parts[rank], slow = slow[:size], slow[size:]
	}
	return parts
}
