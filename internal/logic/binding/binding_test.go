package binding

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringlane/internal/model/cpu"
)

// shape is a machine whose parts are alike.
type shape struct{ packages, nodes, caches, cores, threads int }

// cpus numbers them as Linux does on x86: first one thread of every core.
func (s shape) cpus() []cpu.CPU {
	var all []cpu.CPU
	perPackage := s.nodes * s.caches * s.cores
	total := s.packages * perPackage
	for thread := range s.threads {
		for c := range total {
			all = append(all, cpu.CPU{
				ID: thread*total + c, Core: c, Cache: c / s.cores * s.cores,
				Node: c / (s.caches * s.cores), Package: c / perPackage,
			})
		}
	}
	return all
}

// only keeps the CPUs of a list.
func only(all []cpu.CPU, list string) []cpu.CPU {
	set, err := cpu.Parse(list)
	if err != nil {
		panic(err)
	}
	return slices.DeleteFunc(all, func(c cpu.CPU) bool { return !slices.Contains(set, c.ID) })
}

// hybrid is a desktop processor: fast cores of two threads, then slow ones.
func hybrid(fast, slow int) []cpu.CPU {
	var all []cpu.CPU
	for i := range fast {
		top := 1024 - i%2*15 // favoured cores clock a little higher
		all = append(all, cpu.CPU{ID: 2 * i, Core: 2 * i, Capacity: top}, cpu.CPU{ID: 2*i + 1, Core: 2 * i, Capacity: top})
	}
	for i := range slow {
		all = append(all, cpu.CPU{ID: 2*fast + i, Core: 2*fast + i, Capacity: 600})
	}
	return all
}

var (
	laptop  = shape{1, 1, 1, 8, 2}
	desktop = shape{1, 1, 2, 8, 2}  // two chiplets with a cache each
	epyc    = shape{2, 4, 2, 8, 2}  // 2 × 64 cores, 4 nodes a socket, 8 cores a cache
	xeon    = shape{2, 1, 1, 32, 2} // 2 × 32 cores
)

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		name  string
		cpus  []cpu.CPU
		quota int
		ranks int
		near  []int
		want  string // the sets, or why not
	}{
		{name: "two cores", cpus: shape{1, 1, 1, 2, 1}.cpus(), ranks: 2, want: "0 1"},
		{name: "one rank has them all", cpus: laptop.cpus(), ranks: 1, want: "0-15"},
		{name: "threads of a core stay together", cpus: laptop.cpus(), ranks: 8, want: "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15"},
		{name: "sizes differ by one", cpus: laptop.cpus(), ranks: 3, want: "0-2,8-10 3-5,11-13 6-7,14-15"},
		{name: "more ranks than cores, if not than threads", cpus: laptop.cpus(), ranks: 9, want: "9 ranks are more than 8 usable cores"},
		{name: "caches are kept", cpus: desktop.cpus(), ranks: 4, want: "0-3,16-19 4-7,20-23 8-11,24-27 12-15,28-31"},
		{name: "caches cost no core", cpus: desktop.cpus(), ranks: 3, want: "0-5,16-21 6-10,22-26 11-15,27-31"},
		{name: "a socket each", cpus: xeon.cpus(), ranks: 2, want: "0-31,64-95 32-63,96-127"},
		{name: "no rank on two nodes", cpus: shape{2, 1, 1, 8, 1}.cpus(), ranks: 3, want: "0-3 4-7 8-12"},
		{name: "unless that costs much", cpus: shape{4, 1, 1, 4, 1}.cpus(), ranks: 5, want: "0-3 4-6 7-9 10-12 13-15"},
		{name: "nodes of one socket", cpus: epyc.cpus(), ranks: 2, want: "0-63,128-191 64-127,192-255"},
		{name: "two nodes each", cpus: epyc.cpus(), ranks: 4, want: "0-31,128-159 32-63,160-191 64-95,192-223 96-127,224-255"},
		{name: "a node each", cpus: epyc.cpus(), ranks: 8, want: "0-15,128-143 16-31,144-159 32-47,160-175 48-63,176-191 64-79,192-207 80-95,208-223 96-111,224-239 112-127,240-255"},

		{name: "an odd mask", cpus: only(laptop.cpus(), "1,3,5-6,9,14"), ranks: 2, want: "1,3,9 5-6,14"},
		{name: "a mask of one node and a bit", cpus: only(xeon.cpus(), "0-6,40"), ranks: 2, want: "0-3 4-6"},
		{name: "the second threads alone are cores too", cpus: only(laptop.cpus(), "8-15"), ranks: 8, want: "8 9 10 11 12 13 14 15"},
		{name: "offline threads", cpus: only(laptop.cpus(), "0-7,8,10"), ranks: 4, want: "0-1,8 2-3,10 4-5 6-7"},

		{name: "a quota of enough cores", cpus: laptop.cpus(), quota: 2, ranks: 2, want: "0-3,8-11 4-7,12-15"},
		{name: "a quota of too few", cpus: laptop.cpus(), quota: 1, ranks: 2, want: "2 ranks are more than the 1 core of the CPU quota"},

		{name: "a hybrid's fast and slow cores", cpus: hybrid(8, 8), ranks: 4, want: "0-3,16-17 4-7,18-19 8-11,20-21 12-15,22-23"},
		{name: "a hybrid's left-over cores", cpus: hybrid(4, 4), ranks: 3, want: "0-3,8 4-5,9-10 6-7,11"},
		{name: "more ranks than a hybrid's fast cores", cpus: hybrid(6, 8), ranks: 8, want: "8 ranks are more than the 6 fast cores of this machine"},
		{name: "a hybrid's slow cores alone", cpus: only(hybrid(2, 4), "4-7"), ranks: 2, want: "4-5 6-7"},

		{name: "GPUs of both sockets", cpus: xeon.cpus(), ranks: 2, near: []int{1, 0}, want: "32-63,96-127 0-31,64-95"},
		{name: "GPUs of one socket", cpus: shape{2, 1, 1, 4, 1}.cpus(), ranks: 2, near: []int{1, 1, 0}, want: "4-5 6-7"},
		{name: "three GPUs here, one there", cpus: shape{2, 1, 1, 8, 1}.cpus(), ranks: 4, near: []int{0, 0, 0, 1}, want: "0-2 3-5 6-7 8-10"},
		{name: "GPUs of one node of many: their socket", cpus: shape{2, 4, 1, 4, 1}.cpus(), ranks: 4, near: []int{5, 5, 5, 5}, want: "16-19 20-23 24-27 28-31"},
		{name: "a GPU whose node is not known", cpus: xeon.cpus(), ranks: 2, near: []int{1, -1}, want: "0-31,64-95 32-63,96-127"},
		{name: "a GPU whose node is not ours", cpus: only(xeon.cpus(), "0-3"), ranks: 2, near: []int{0, 1}, want: "0-1 2-3"},
		{name: "more ranks than GPUs", cpus: xeon.cpus(), ranks: 2, near: []int{1}, want: "0-31,64-95 32-63,96-127"},
	} {
		if c.quota == 0 {
			c.quota = Unlimited
		}
		sets, err := Divide(c.cpus, c.quota, c.ranks, c.near)
		got := fmt.Sprint(err)
		if err == nil {
			var lists []string
			for _, s := range sets {
				lists = append(lists, s.String())
			}
			got = strings.Join(lists, " ")
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// What holds of every division, on any machine under any mask.
func TestDivideLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.IntRange(1, 4)
		s := shape{few.Draw(t, "packages"), few.Draw(t, "nodes"), few.Draw(t, "caches"), few.Draw(t, "cores"), few.Draw(t, "threads")}
		all := s.cpus()
		if kept := rapid.IntRange(1, 10).Draw(t, "kept"); kept < 10 {
			all = slices.DeleteFunc(all, func(cpu.CPU) bool { return rapid.IntRange(0, 9).Draw(t, "out") >= kept })
		}
		slowFrom := rapid.IntRange(1, 4).Draw(t, "slow from package")
		for i := range all {
			all[i].Capacity = 1024
			if all[i].Package >= slowFrom {
				all[i].Capacity = 500
			}
		}
		coreOf, nodeOf := map[int]int{}, map[int]int{}
		inNode := map[int]map[int]bool{} // cores of each node
		for _, c := range all {
			coreOf[c.ID], nodeOf[c.ID] = c.Core, c.Node
			if inNode[c.Node] == nil {
				inNode[c.Node] = map[int]bool{}
			}
			inNode[c.Node][c.Core] = true
		}
		total := Cores(all)
		ranks := rapid.IntRange(1, max(total, 1)+1).Draw(t, "ranks")
		quota := rapid.SampledFrom([]int{Unlimited, ranks, ranks - 1}).Draw(t, "quota")
		near := rapid.SliceOfN(rapid.IntRange(-1, s.packages*s.nodes), 0, ranks).Draw(t, "near")

		sets, err := Divide(all, quota, ranks, near)
		if ranks > total || ranks > quota {
			if err == nil {
				t.Fatalf("%d ranks on %d cores, quota %d: %v", ranks, total, quota, sets)
			}
			return
		}
		hybrid := slices.ContainsFunc(all, func(c cpu.CPU) bool { return c.Capacity != all[0].Capacity })
		if err != nil {
			if !hybrid {
				t.Fatalf("%d ranks on %d cores: %v", ranks, total, err)
			}
			return
		}
		ownerOf, cpusOf := map[int]int{}, map[int]int{} // core -> rank, core -> its CPUs given out
		least, most, split := total, 0, false
		for rank, set := range sets {
			if !slices.IsSorted(set) || len(set) == 0 {
				t.Fatalf("rank %d has %v", rank, []int(set))
			}
			mine, nodes := map[int]bool{}, map[int]bool{}
			for _, id := range set {
				c, known := coreOf[id]
				if !known {
					t.Fatalf("rank %d has CPU %d, which is not allowed", rank, id)
				}
				if owner, taken := ownerOf[c]; taken && owner != rank {
					t.Fatalf("ranks %d and %d share core %d", owner, rank, c)
				}
				ownerOf[c], mine[c], nodes[nodeOf[id]] = rank, true, true
				cpusOf[c]++
			}
			least, most, split = min(least, len(mine)), max(most, len(mine)), split || len(nodes) > 1
		}
		if most > least+1 {
			t.Fatalf("one rank has %d cores and another %d: %v", least, most, sets)
		}
		for _, c := range all {
			if n, given := cpusOf[c.Core]; given {
				threads := 0
				for _, other := range all {
					if other.Core == c.Core {
						threads++
					}
				}
				if n != threads {
					t.Fatalf("core %d has %d CPUs and rank %d got %d of them", c.Core, threads, ownerOf[c.Core], n)
				}
			}
		}
		if hybrid || len(near) >= ranks {
			return
		}
		// The most that each rank can have within a node.
		for each := total; each > 0; each-- {
			fit := 0
			for _, cores := range inNode {
				fit += len(cores) / each
			}
			if fit >= ranks {
				if 4*each >= 3*(total/ranks) && (split || least < each) {
					t.Fatalf("%d ranks could have %d cores each within a node of %d cores: %v", ranks, each, total, sets)
				}
				break
			}
		}
		if 4*least < 3*(total/ranks) {
			t.Fatalf("%d ranks on %d cores have only %d: %v", ranks, total, least, sets)
		}
	})
}

// The division depends on the CPUs, not on the order in which they were read.
func TestDivideForgetsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := epyc.cpus()
		ranks := rapid.IntRange(1, 128).Draw(t, "ranks")
		want, _ := Divide(all, Unlimited, ranks, nil)
		got, _ := Divide(rapid.Permutation(all).Draw(t, "order"), Unlimited, ranks, nil)
		if !slices.EqualFunc(got, want, slices.Equal[cpu.Set]) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
