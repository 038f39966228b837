package topology_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ringlane/internal/model/topology"
)

func TestIslands(t *testing.T) {
	for _, test := range []struct {
		machine string
		gpus    []int // places among the tree's GPUs; nil for all
		want    []int
	}{
		{"two-sockets-eight-gpus", nil, []int{0, 0, 1, 1, 2, 2, 3, 3}}, // by switches
		{"two-sockets-eight-gpus", []int{4, 0, 5, 1}, []int{0, 1, 0, 1}},
		{"two-sockets-eight-gpus", []int{0, 0, 2, 2}, []int{0, 0, 1, 1}}, // ranks that share a GPU
		{"two-sockets-eight-gpus", []int{0, 2, 4, 6}, []int{0, 0, 1, 1}}, // by sockets
		{"two-sockets-eight-gpus", []int{0, 1, 2}, nil},                  // one would be alone
		{"two-levels-of-switches", nil, nil},                             // all below one
	} {
		g := load(t, test.machine)
		gpus := g.GPUs
		if test.gpus != nil {
			gpus = nil
			for _, i := range test.gpus {
				gpus = append(gpus, g.GPUs[i])
			}
		}
		if got := g.Islands(gpus); !slices.Equal(got, test.want) {
			t.Errorf("%s, GPUs %v: %v, want %v", test.machine, test.gpus, got, test.want)
		}
	}
}

// flat is the bandwidth between n places that are all as near.
func flat(n int) topology.Bandwidths {
	b := make(topology.Bandwidths, n)
	for i := range b {
		b[i] = slices.Repeat([]float64{24}, n)
		b[i][i] = 0
	}
	return b
}

func TestNearest(t *testing.T) {
	b := flat(4)
	if got := b.Nearest(); got != nil {
		t.Errorf("places that are all as near are the islands %v", got)
	}
	for i := range b {
		for j := range b {
			if i%2 != j%2 {
				b[i][j] = 11
			}
		}
	}
	if got := b.Nearest(); !slices.Equal(got, []int{0, 1, 0, 1}) {
		t.Errorf("islands %v", got)
	}
	b[1][3] = 11 // one way: 1 and 3 are alone now
	if got := b.Nearest(); got != nil {
		t.Errorf("with one alone: islands %v", got)
	}
	for i := range b {
		clear(b[i])
	}
	if got := b.Nearest(); got != nil {
		t.Errorf("nothing was measured, and there are the islands %v", got)
	}
}

// TestOrder takes the widest ring there is, and leaves places in their order where
// figures do no more than scatter.
func TestOrder(t *testing.T) {
	for _, test := range []struct {
		name    string
		n       int
		change  func(b topology.Bandwidths)
		islands []int
		want    []int
	}{
		{"nothing measured", 4, func(b topology.Bandwidths) { clear(b[0]); clear(b[1]); clear(b[2]); clear(b[3]) }, nil, []int{0, 1, 2, 3}},
		{"scatter", 4, func(b topology.Bandwidths) { b[0][1], b[2][3], b[3][0] = 21, 27, 22 }, nil, []int{0, 1, 2, 3}},
		{"one slow direction", 4, func(b topology.Bandwidths) { b[1][2] = 6 }, nil, []int{0, 1, 3, 2}},
		{"islands", 6, func(topology.Bandwidths) {}, []int{0, 1, 0, 1, 0, 1}, []int{0, 2, 4, 1, 3, 5}},
		{"islands and a slow direction", 4, func(b topology.Bandwidths) { b[1][2], b[3][0] = 6, 6 }, []int{0, 0, 1, 1}, []int{0, 1, 3, 2}},
		{"many", 16, func(b topology.Bandwidths) { b[4][5], b[11][12] = 3, 3 }, nil, nil},
	} {
		b := flat(test.n)
		test.change(b)
		got := topology.Order(test.n, b, test.islands)
		if test.want != nil && !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		for i, from := range got {
			if to := got[(i+1)%len(got)]; b[from][to] > 0 && b[from][to] < 12 && test.n != 4 {
				t.Errorf("%s: %v goes the slow way from %d to %d", test.name, got, from, to)
			}
		}
	}
}

// TestOrderIsSteady has figures that scatter by a seventh change neither order nor
// islands, and every order be one of all places.
func TestOrderIsSteady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "places")
		first, second := flat(n), flat(n)
		for i := range n {
			for j := range n {
				if i == j {
					continue
				}
				rate := []float64{64, 32, 16, 8}[rapid.IntRange(0, 3).Draw(t, "step")]
				first[i][j] = rate * rapid.Float64Range(0.86, 1.15).Draw(t, "first")
				second[i][j] = rate * rapid.Float64Range(0.86, 1.15).Draw(t, "second")
			}
		}
		first[0][1], second[0][1] = 64, 64
		a, b := topology.Order(n, first, nil), topology.Order(n, second, nil)
		if !slices.Equal(a, b) || !slices.Equal(first.Nearest(), second.Nearest()) {
			t.Fatalf("orders %v and %v, islands %v and %v", a, b, first.Nearest(), second.Nearest())
		}
		seen := slices.Clone(a)
		slices.Sort(seen)
		for i, place := range seen {
			if place != i {
				t.Fatalf("the order %v", a)
			}
		}
	})
}
