package collective

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ringlane/internal/model/schedule"
)

// define is the plain definition of each collective over whole vectors: what
// each rank ends with, nil for nothing. count is the number of elements that
// one rank has for another.
func define(c schedule.Collective, in [][]int64, count, root int) [][]int64 {
	n := len(in)
	out := make([][]int64, n)
	sum := make([]int64, len(in[0]))
	if c == schedule.AllReduce || c == schedule.Reduction || c == schedule.ReduceScatter {
		for _, v := range in {
			for i := range sum {
				sum[i] += v[i]
			}
		}
	}
	part := func(v []int64, i int) []int64 { return v[i*count : (i+1)*count] }
	for r := range n {
		switch c {
		case schedule.AllReduce:
			out[r] = sum
		case schedule.ReduceScatter:
			out[r] = part(sum, r)
		case schedule.AllGather, schedule.Barrier:
			out[r] = slices.Concat(in...)
		case schedule.Broadcast:
			out[r] = in[root]
		case schedule.Reduction:
			if r == root {
				out[r] = sum
			}
		case schedule.Gather:
			if r == root {
				out[r] = slices.Concat(in...)
			}
		case schedule.Scatter:
			out[r] = part(in[root], r)
		case schedule.AllToAll:
			for s := range n {
				out[r] = append(out[r], part(in[s], r)...)
			}
		case schedule.SendRecv:
			out[r] = in[(r+n-1)%n]
		}
	}
	return out
}

// vectors makes a job for c with count elements: out is what a rank ends with
// once the job has run, want what each has to end with, longest the elements of
// the longest chunk. With inPlace an output lies in the memory of the input of
// the same chunk where a rank has both.
func vectors(c schedule.Collective, a schedule.Algorithm, n, root, count int, inPlace bool, element func() int64) (j *job, out func(rank int) []int64, want [][]int64, longest int) {
	chunks, goal := a.Chunks(n), Goal(c, n, root)
	length := func(chunk int) int {
		if c == schedule.AllReduce {
			return (chunk+1)*count/chunks - chunk*count/chunks
		}
		return count
	}
	j = &job{programs: a.Programs(n, root)}
	whole := make([][]int64, n)
	for r := range n {
		inputs, outputs := make([][]int64, chunks), make([][]int64, chunks)
		for chunk := range chunks {
			longest = max(longest, length(chunk))
			if goal.Input(r, chunk) {
				inputs[chunk] = make([]int64, length(chunk))
				for i := range inputs[chunk] {
					inputs[chunk][i] = element()
				}
				whole[r] = append(whole[r], inputs[chunk]...)
			}
			if goal.Output(r, chunk) != 0 {
				outputs[chunk] = make([]int64, length(chunk))
				if inPlace && inputs[chunk] != nil {
					outputs[chunk] = inputs[chunk]
				}
			}
		}
		j.input, j.output = append(j.input, inputs), append(j.output, outputs)
	}
	return j, func(rank int) []int64 { return slices.Concat(j.output[rank]...) }, define(c, whole, count, root), longest
}

// TestVectors runs every algorithm on vectors of any size, cut into segments of
// any size, in any order of the ranks, and compares with the definition.
func TestVectors(t *testing.T) {
	everyPlacedCase(func(c schedule.Collective, a schedule.Algorithm) {
		t.Run(fmt.Sprintf("%v/%s", c, a.Name), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.IntRange(1, 9).Draw(t, "ranks")
				root := rapid.IntRange(0, n-1).Draw(t, "root")
				count := rapid.IntRange(0, 40).Draw(t, "count")
				seed := rapid.Uint64().Draw(t, "seed")
				random := func() uint64 { // xorshift64*, nonzero state
					seed |= 1
					seed ^= seed >> 12
					seed ^= seed << 25
					seed ^= seed >> 27
					return seed * 0x2545f4914f6cdd1d
				}
				j, out, want, longest := vectors(c, a, n, root, count, rapid.Bool().Draw(t, "in place"),
					func() int64 { return int64(random() >> 32) })
				j.segment = rapid.IntRange(1, 12).Draw(t, "segment")
				j.slots = rapid.IntRange(1, 3).Draw(t, "slots")
				if err := j.run(longest, func(k int) int { return int(random() >> 33 % uint64(k)) }); err != nil {
					t.Fatal(err)
				}
				for r := range n {
					if !slices.Equal(out(r), want[r]) {
						t.Fatalf("rank %d ends with %v, want %v", r, out(r), want[r])
					}
				}
			})
		})
	})
}
