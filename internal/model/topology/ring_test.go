package topology_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringlane/internal/model/topology"
	"ringlane/internal/model/topology/topologytest"
)

func TestRing(t *testing.T) {
	for name, want := range map[string]string{
		"two-sockets-eight-gpus":    "0000:03:00.0 0000:04:00.0 0000:43:00.0 0000:44:00.0 0000:83:00.0 0000:84:00.0 0000:c3:00.0 0000:c4:00.0",
		"two-levels-of-switches":    "0000:22:00.0 0000:32:00.0 0000:2a:00.0 0000:3a:00.0",
		"bridges-that-do-not-exist": "0001:00:00.0 0002:00:00.0 0003:00:00.0 0004:00:00.0 000b:00:00.0 000c:00:00.0 000d:00:00.0 10e00:00:00.0",
		"matrix-alone":              "GPU0 GPU1 GPU2 GPU3 GPU4 GPU5",
		"no-gpu":                    "",
	} {
		if got := ids(load(t, name).Ring(nil).Order); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
}

// TestRingPrice says what a ring costs, by hand.
func TestRingPrice(t *testing.T) {
	r := load(t, "two-sockets-eight-gpus").Ring(nil)
	if c := r.Cost; c.Sockets != 2 || c.Nodes != 2 || c.Uplinks != 4 || !near(r.GBs, 63.02) || !r.Exact {
		t.Errorf("cost %+v, %.2f GB/s, exact %v", c, r.GBs, r.Exact)
	}
}

// TestMeasuredRing lets one slow direction turn the ring away from it.
func TestMeasuredRing(t *testing.T) {
	g := load(t, "two-sockets-eight-gpus")
	measured := make(topology.Bandwidths, 8)
	for i := range measured {
		measured[i] = slices.Repeat([]float64{50}, 8)
	}
	measured[1][2], measured[3][4] = 5, 5
	r := g.Ring(measured)
	for i, n := range r.Order {
		from, to := n.Index, r.Order[(i+1)%8].Index
		if measured[from][to] == 5 {
			t.Errorf("the ring takes the slow way from %d to %d: %s", from, to, ids(r.Order))
		}
	}
	if r.Cost.Sockets != 2 || r.Cost.Uplinks != 4 {
		t.Errorf("cost %+v of %s", r.Cost, ids(r.Order))
	}
	measured[0][1] = 51 // within the scatter: not worth a crossing
	if again := g.Ring(measured); ids(again.Order) != ids(r.Order) {
		t.Errorf("a difference of 2 %% turned %s into %s", ids(r.Order), ids(again.Order))
	}
}

// randomMachine draws a tree with n GPUs at shuffled addresses.
func randomMachine(t *rapid.T, n int) *topology.Graph {
	buses := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	})).Draw(t, "buses")
	var text strings.Builder
	text.WriteString("machine\n")
	bridge, left := 0, n
	bdf := func() string {
		bridge++
		return fmt.Sprintf("0001:%02x:00.0", bridge)
	}
	link := func() string {
		return rapid.SampledFrom([]string{"8x16", "16x16", "32x16", "16x8"}).Draw(t, "link")
	}
	gpus := func(indent string, most int) {
		for range rapid.IntRange(1, min(left, most)).Draw(t, "gpus") {
			left--
			fmt.Fprintf(&text, "%sdown %s 32x16\n%s  gpu 0000:%02x:00.0 32x16\n", indent, bdf(), indent, buses[left])
		}
	}
	nodes := rapid.IntRange(1, 3).Draw(t, "nodes")
	for left > 0 {
		for node := range nodes {
			if left == 0 {
				break
			}
			fmt.Fprintf(&text, "numa %d socket=%d\n", node, node/2)
			speed := link()
			fmt.Fprintf(&text, " root %s %s\n  up %s %s\n", bdf(), speed, bdf(), speed)
			if rapid.Bool().Draw(t, "two levels") {
				for left > 0 && rapid.IntRange(0, 2).Draw(t, "more") > 0 {
					inner := link()
					fmt.Fprintf(&text, "   down %s %s\n    up %s %s\n", bdf(), inner, bdf(), inner)
					gpus("     ", 3)
				}
			}
			if left > 0 {
				gpus("   ", 4)
			}
		}
	}
	m, err := topologytest.Parse(text.String())
	if err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	g := topology.New(m)
	if len(g.GPUs) != n {
		t.Fatalf("%d GPUs, want %d in\n%s", len(g.GPUs), n, text.String())
	}
	return g
}

func randomBandwidths(t *rapid.T, n int) topology.Bandwidths {
	if rapid.Bool().Draw(t, "unmeasured") {
		return nil
	}
	out := make(topology.Bandwidths, n)
	for i := range out {
		out[i] = make([]float64, n)
		for j := range out[i] {
			out[i][j] = rapid.SampledFrom([]float64{0, 6, 12, 24, 48}).Draw(t, "bandwidth")
		}
	}
	return out
}

// TestExactRing tries every order of up to 7 GPUs: the search must find the
// cheapest, and of equal ones the walk of the tree or else the first by
// address.
func TestExactRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "n")
		g := randomMachine(t, n)
		measured := randomBandwidths(t, n)
		var best []int
		var cost topology.Cost
		permute(n, func(order []int) {
			if c := g.RingCost(order, measured); best == nil || c.Compare(cost) < 0 {
				best, cost = slices.Clone(order), c
			}
		})
		r := g.Ring(measured)
		var want []*topology.Node
		for _, i := range best {
			want = append(want, g.GPUs[i])
		}
		walk := g.RingWalk(measured)
		if walk.Cost.Compare(cost) == 0 {
			want = walk.Order
		} else if measured == nil {
			t.Errorf("the walk %s costs %+v", ids(walk.Order), walk.Cost)
		}
		if r.Cost.Compare(cost) != 0 || ids(r.Order) != ids(want) {
			t.Errorf("found %s at %+v\nbest  %s at %+v", ids(r.Order), r.Cost, ids(want), cost)
		}
	})
}

// permute visits every order of n that begins with 0, in lexicographic order.
func permute(n int, visit func([]int)) {
	used := make([]bool, n)
	used[0] = true
	var extend func(order []int)
	extend = func(order []int) {
		if len(order) == n {
			visit(order)
			return
		}
		for i := range n {
			if !used[i] {
				used[i] = true
				extend(append(order, i))
				used[i] = false
			}
		}
	}
	extend([]int{0})
}

// TestRuleAgainstExact compares the heuristic with the exact search. Without
// measurements a walk of the tree is optimal; with them it may cost more, and
// TestRuleIsGood says how much.
func TestRuleAgainstExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 9).Draw(t, "n")
		g := randomMachine(t, n)
		measured := randomBandwidths(t, n)
		exact, rule := g.Ring(measured), g.RingByRule(measured)
		if d := rule.Cost.Compare(exact.Cost); d < 0 || d > 0 && measured == nil {
			t.Errorf("by rule %+v %s\nexact   %+v %s", rule.Cost, ids(rule.Order), exact.Cost, ids(exact.Order))
		}
		all := slices.Clone(rule.Order)
		slices.SortFunc(all, func(a, b *topology.Node) int { return strings.Compare(a.ID, b.ID) })
		if !slices.Equal(all, g.GPUs) {
			t.Errorf("the ring by rule is no order of all GPUs: %s", ids(rule.Order))
		}
	})
}

// TestRuleIsGood counts how often the heuristic reaches the load of the exact
// ring on matrices without any order in them, which is the worst for it.
func TestRuleIsGood(t *testing.T) {
	var text strings.Builder
	text.WriteString("machine\nnuma 0\n")
	const n, cases = 8, 200
	for i := range n {
		fmt.Fprintf(&text, "root 0001:00:%02x.0 32x16\n gpu 0000:%02x:00.0 32x16\n", i, i)
	}
	g := parse(t, text.String())
	random := rand.New(rand.NewPCG(1, 2))
	reached, ratio := 0, 0.0
	for range cases {
		measured := make(topology.Bandwidths, n)
		for i := range measured {
			measured[i] = make([]float64, n)
			for j := range measured[i] {
				measured[i][j] = 5 + 45*random.Float64()
			}
		}
		exact, rule := g.Ring(measured).Cost.Load, g.RingByRule(measured).Cost.Load
		ratio += rule / exact / cases
		if rule < exact*1.05 {
			reached++
		}
	}
	t.Logf("the rule reached the exact load in %d of %d cases; load %.3f times the exact one on average", reached, cases, ratio)
	if reached < cases*7/10 || ratio > 1.1 {
		t.Error("that is too seldom or too much")
	}
}

// BenchmarkRing is the worst that New and Ring meet: 12 GPUs with a measured
// matrix of many values.
func BenchmarkRing(b *testing.B) {
	var text strings.Builder
	text.WriteString("machine\n")
	for i := range 12 {
		if i%3 == 0 {
			fmt.Fprintf(&text, "numa %d\n root 0001:%02x:00.0 32x16\n  up 0001:%02x:01.0 32x16\n", i/6, i, i)
		}
		fmt.Fprintf(&text, "   down 0001:%02x:02.0 32x16\n    gpu 0000:%02x:00.0 32x16\n", i, (i*5)%12)
	}
	m, err := topologytest.Parse(text.String())
	if err != nil {
		b.Fatal(err)
	}
	measured := make(topology.Bandwidths, 12)
	for i := range measured {
		measured[i] = make([]float64, 12)
		for j := range measured[i] {
			measured[i][j] = float64(20 + (i*7+j*13)%31)
		}
	}
	for _, c := range []struct {
		name     string
		measured topology.Bandwidths
	}{{"computed", nil}, {"measured", measured}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				topology.New(m).Ring(c.measured)
			}
		})
	}
}
