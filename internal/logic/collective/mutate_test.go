package collective

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"ringlane/internal/model/schedule"
)

// mutant is a program with one thing wrong.
type mutant struct {
	what     string
	program  schedule.Program
	harmless bool // see mutants
}

// mutants breaks a program in every small way. A mutant is harmless, so that it
// may be proved, in two cases only:
//
//   - Two steps have changed places that touch neither the same channel nor the
//     same data as each other or as a step between them. Each step then does
//     exactly what it did; only a deadlock can come of it.
//   - Two terms of a Reduce have changed places. The sum is the same set of
//     terms; whether it must be combined in one order, because other ranks make
//     it too, is for the prover to see.
func mutants(p schedule.Program, ranks, chunks int) []mutant {
	var all []mutant
	add := func(harmless bool, q schedule.Program, format string, args ...any) {
		if !reflect.DeepEqual(p, q) {
			all = append(all, mutant{fmt.Sprintf(format, args...), q, harmless})
		}
	}
	// edit adds a copy of p whose step i is changed by f.
	edit := func(i int, harmless bool, what string, f func(s *schedule.Step)) {
		q := slices.Clone(p)
		q[i].From = slices.Clone(q[i].From)
		f(&q[i])
		add(harmless, q, "step %d (%v): %s", i, p[i], what)
	}
	for i, step := range p {
		add(false, slices.Delete(slices.Clone(p), i, i+1), "step %d (%v) dropped", i, step)
		add(false, slices.Insert(slices.Clone(p), i, step), "step %d (%v) done twice", i, step)
		for j := i + 1; j < len(p); j++ {
			q := slices.Clone(p)
			q[i], q[j] = q[j], q[i]
			add(commute(p, i, j), q, "steps %d (%v) and %d (%v) swapped", i, step, j, p[j])
		}
		for _, chunk := range []int{-1, (step.Chunk + 1) % chunks, (step.Chunk + chunks/2) % chunks, chunks} {
			edit(i, false, fmt.Sprintf("chunk %d", chunk), func(s *schedule.Step) { s.Chunk = chunk })
		}
		if step.Kind == schedule.Send || step.Kind == schedule.Recv {
			for peer := schedule.Everyone; peer <= ranks; peer++ {
				edit(i, false, fmt.Sprintf("peer %d", peer), func(s *schedule.Step) { s.Peer = peer })
			}
		}
		if step.Kind == schedule.Send || step.Kind == schedule.Reduce {
			for v := schedule.Input; v <= schedule.Output; v++ {
				edit(i, false, fmt.Sprintf("value %v", v), func(s *schedule.Step) { s.Value = v })
			}
		}
		if step.Kind == schedule.Recv {
			edit(i, false, "the other channel", func(s *schedule.Step) { s.Shared = !s.Shared })
		}
		for k, from := range step.From {
			edit(i, false, fmt.Sprintf("term %d dropped", k), func(s *schedule.Step) { s.From = slices.Delete(s.From, k, k+1) })
			edit(i, false, fmt.Sprintf("term %d twice", k), func(s *schedule.Step) { s.From = slices.Insert(s.From, k, from) })
			edit(i, false, fmt.Sprintf("term %d from the other channel", k), func(s *schedule.Step) { s.From[k].Shared = !from.Shared })
			for rank := -1; rank <= ranks; rank++ {
				edit(i, false, fmt.Sprintf("term %d of rank %d", k, rank), func(s *schedule.Step) { s.From[k].Rank = rank })
			}
			for v := schedule.Input; v <= schedule.Output; v++ {
				edit(i, false, fmt.Sprintf("term %d is %v", k, v), func(s *schedule.Step) { s.From[k].Value = v })
			}
			for l := range k {
				edit(i, true, fmt.Sprintf("terms %d and %d swapped", l, k), func(s *schedule.Step) { s.From[k], s.From[l] = s.From[l], s.From[k] })
			}
		}
	}
	return all
}

// commute reports whether steps i and j of p can change places without any step
// from i to j meeting another content.
func commute(p schedule.Program, i, j int) bool {
	for k := i; k <= j; k++ {
		if k > i && !independent(p[i], p[k]) || k < j && !independent(p[k], p[j]) {
			return false
		}
	}
	return true
}

// independent reports whether two steps share no channel, and no value that one
// of them writes.
func independent(a, b schedule.Step) bool {
	readsA, writesA := touches(a)
	readsB, writesB := touches(b)
	meet := func(x, y []string) bool {
		return slices.ContainsFunc(x, func(s string) bool { return slices.Contains(y, s) })
	}
	return !meet(readsA, writesB) && !meet(writesA, readsB) && !meet(writesA, writesB)
}

// touches names what a step reads and what it changes. Moving on in a channel
// changes it.
func touches(step schedule.Step) (reads, writes []string) {
	local := func(v schedule.Value) string {
		if v == schedule.Partial {
			return "partial"
		}
		// Input and Output of a chunk may share memory.
		return fmt.Sprintf("chunk %d", step.Chunk)
	}
	in := func(writer int, shared bool) string { return fmt.Sprintf("in %d %v", writer, shared) }
	switch step.Kind {
	case schedule.Send:
		return []string{local(step.Value)}, []string{fmt.Sprintf("out %d", step.Peer)}
	case schedule.Recv:
		return nil, []string{local(schedule.Output), in(step.Peer, step.Shared)}
	case schedule.Reduce:
		writes = []string{local(step.Value)}
		for _, from := range step.From {
			// The own term is counted as read from a channel of its own, too,
			// which no other step touches.
			writes = append(writes, in(from.Rank, from.Shared))
		}
		return []string{local(schedule.Input)}, writes
	}
	return nil, []string{local(schedule.Output)}
}

// TestMutants breaks every program of every algorithm. The prover must reject
// every mutant that is not harmless, and what it accepts must compute the right
// vectors, in place, in any order of the ranks.
func TestMutants(t *testing.T) {
	sizes := []int{2, 3, 4, 5, 8}
	if testing.Short() {
		sizes = []int{2, 3, 5}
	}
	everyPlacedCase(func(c schedule.Collective, a schedule.Algorithm) {
		if c == schedule.Barrier { // the programs of AllGather
			return
		}
		t.Run(fmt.Sprintf("%v/%s", c, a.Name), func(t *testing.T) {
			t.Parallel()
			rejected, accepted := 0, 0
			for _, n := range sizes {
				root := 0
				if c.Rooted() {
					root = n / 2
				}
				programs, chunks := a.Programs(n, root), a.Chunks(n)
				// Among 8, three ranks stand for the rest.
				ranks := []int{0, 1, 2, 3, 4}[:min(n, 5)]
				if n == 8 {
					ranks = []int{0, 4, 7}
				}
				for _, rank := range ranks {
					for _, m := range mutants(programs[rank], n, chunks) {
						broken := slices.Clone(programs)
						broken[rank] = m.program
						_, err := schedule.Claim{Programs: broken, Chunks: chunks, Goal: Goal(c, n, root), Slots: 2}.Prove()
						if err != nil {
							rejected++
							continue
						}
						accepted++
						if !m.harmless {
							t.Errorf("%d ranks, root %d, rank %d, %s: proved", n, root, rank, m.what)
							continue
						}
						if err := runs(c, a, broken, root); err != nil {
							t.Errorf("%d ranks, root %d, rank %d, %s: proved, but %v", n, root, rank, m.what, err)
						}
					}
				}
			}
			t.Logf("%d mutants rejected, %d harmless", rejected, accepted)
			if rejected < 20 {
				t.Errorf("only %d mutants rejected", rejected)
			}
		})
	})
}

// runs reports whether programs compute c on vectors.
func runs(c schedule.Collective, a schedule.Algorithm, programs []schedule.Program, root int) error {
	element := int64(1)
	j, out, want, longest := vectors(c, a, len(programs), root, 2*len(programs)+1, true, func() int64 {
		element = element * 6364136223846793005 >> 1
		return element
	})
	j.programs, j.segment, j.slots = programs, 1, 2
	last := 0
	if err := j.run(longest, func(n int) int { last++; return last % n }); err != nil {
		return err
	}
	for r := range programs {
		if !slices.Equal(out(r), want[r]) {
			return fmt.Errorf("rank %d ends with %v, want %v", r, out(r), want[r])
		}
	}
	return nil
}
