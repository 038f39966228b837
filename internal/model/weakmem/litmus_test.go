package weakmem

import (
	"fmt"
	"slices"
	"testing"
)

// limit is far above what any test here needs.
const limit = 1 << 20

// litmus is a classic test: a program and the outcome that tells models apart.
type litmus struct {
	name     string
	build    func(p *Program)
	outcome  string
	admitted [3]bool // under SC, TSO, Weak
}

var (
	nowhere  = [3]bool{}
	weakOnly = [3]bool{false, false, true}
	tsoAndUp = [3]bool{false, true, true}
)

// pair is a thread of two steps; each is "r" (a load) or "w" (a store of v).
type pair struct {
	first, second string
	a, b          Order
}

// two builds the tests of two threads over the words x and y: the first thread
// goes x, y and the second y, x (or as words says).
func two(one, other pair, v [4]int, words string) func(p *Program) {
	return func(p *Program) {
		at := map[byte]Word{'x': p.Word("x", 0), 'y': p.Word("y", 0)}
		load := 0
		for i, th := range []pair{one, other} {
			t := p.Thread(fmt.Sprint("T", i))
			for k, step := range []string{th.first, th.second} {
				word, order := at[words[2*i+k]], []Order{th.a, th.b}[k]
				if step == "w" {
					t.Store(word, order, Const(v[2*i+k]))
					continue
				}
				p.Observe(fmt.Sprint("r", load), t.Load(word, order))
				load++
			}
		}
		if load < 2 {
			p.ObserveWord(at['x'])
			p.ObserveWord(at['y'])
		}
	}
}

func sb(store, load Order) func(p *Program) {
	th := pair{"w", "r", store, load}
	return two(th, th, [4]int{1, 0, 1, 0}, "xyyx")
}

func mp(store, load Order) func(p *Program) {
	return two(pair{"w", "w", Plain, store}, pair{"r", "r", load, Plain}, [4]int{1, 1, 0, 0}, "xyyx")
}

func nonTemporal(flag Order) func(p *Program) {
	return two(pair{"w", "w", NonTemporal, flag}, pair{"r", "r", Acquire, Plain}, [4]int{1, 1, 0, 0}, "xyyx")
}

func lb(load, store Order) func(p *Program) {
	th := pair{"r", "w", load, store}
	return two(th, th, [4]int{0, 1, 0, 1}, "xyyx")
}

func iriw(order Order) func(p *Program) {
	return func(p *Program) {
		x, y := p.Word("x", 0), p.Word("y", 0)
		p.Thread("W0").Store(x, Plain, Const(1))
		p.Thread("W1").Store(y, Plain, Const(1))
		for i, words := range [][2]Word{{x, y}, {y, x}} {
			t := p.Thread(fmt.Sprint("R", i))
			p.Observe(fmt.Sprint("r", 2*i), t.Load(words[0], order))
			p.Observe(fmt.Sprint("r", 2*i+1), t.Load(words[1], order))
		}
	}
}

func fenced(between string) func(p *Program) {
	return func(p *Program) {
		x, y := p.Word("x", 0), p.Word("y", 0)
		for i, words := range [][2]Word{{x, y}, {y, x}} {
			t := p.Thread(fmt.Sprint("T", i))
			t.Store(words[0], Plain, Const(1))
			switch between {
			case "fence":
				t.Fence()
			case "add":
				t.Add(p.Word("own", 0), SeqCst, 1)
			}
			p.Observe(fmt.Sprint("r", i), t.Load(words[1], Plain))
		}
	}
}

var litmusTests = []litmus{
	// Store buffering: both miss the other's store.
	{"SB", sb(Plain, Plain), "r0=0 r1=0", tsoAndUp},
	{"SB+rel+acq", sb(Release, Acquire), "r0=0 r1=0", tsoAndUp},
	{"SB+seq_cst stores", sb(SeqCst, Plain), "r0=0 r1=0", weakOnly},
	{"SB+seq_cst stores+acq", sb(SeqCst, Acquire), "r0=0 r1=0", weakOnly},
	{"SB+seq_cst", sb(SeqCst, SeqCst), "r0=0 r1=0", nowhere},
	{"SB+fences", fenced("fence"), "r0=0 r1=0", nowhere},
	{"SB+locked add", fenced("add"), "r0=0 r1=0", nowhere},
	{"SB+nothing", fenced(""), "r0=0 r1=0", tsoAndUp},
	// Message passing: the flag is seen, the data is not.
	{"MP", mp(Plain, Plain), "r0=1 r1=0", weakOnly},
	{"MP+rel", mp(Release, Plain), "r0=1 r1=0", weakOnly},
	{"MP+acq", mp(Plain, Acquire), "r0=1 r1=0", weakOnly},
	{"MP+rel+acq", mp(Release, Acquire), "r0=1 r1=0", nowhere},
	{"MP+rel+ctrl", func(p *Program) { // a branch does not keep a load back
		x, y := p.Word("x", 0), p.Word("y", 0)
		w, r := p.Thread("W"), p.Thread("R")
		w.Store(x, Plain, Const(1))
		w.Store(y, Release, Const(1))
		r.Await(y, Plain, Is(1))
		p.Observe("r", r.Load(x, Plain))
	}, "r=0", weakOnly},
	{"MP+non-temporal data", nonTemporal(Plain), "r0=1 r1=0", tsoAndUp},
	{"MP+non-temporal data+rel", nonTemporal(Release), "r0=1 r1=0", [3]bool{false, true, false}},
	{"MP+non-temporal data+seq_cst", nonTemporal(SeqCst), "r0=1 r1=0", nowhere},
	// Load buffering: each load sees the store after the other.
	{"LB", lb(Plain, Plain), "r0=1 r1=1", weakOnly},
	{"LB+rel", lb(Plain, Release), "r0=1 r1=1", nowhere},
	{"LB+acq", lb(Acquire, Plain), "r0=1 r1=1", nowhere},
	{"LB+data", func(p *Program) { // nothing comes out of thin air
		x, y := p.Word("x", 0), p.Word("y", 0)
		for i, words := range [][2]Word{{x, y}, {y, x}} {
			t := p.Thread(fmt.Sprint("T", i))
			r := t.Load(words[0], Plain)
			t.Store(words[1], Plain, Of(func(v []int) int { return v[0] }, r))
			p.Observe(fmt.Sprint("r", i), r)
		}
	}, "r0=1 r1=1", nowhere},
	{"LB+ctrl", func(p *Program) {
		x, y := p.Word("x", 0), p.Word("y", 0)
		for i, words := range [][2]Word{{x, y}, {y, x}} {
			t := p.Thread(fmt.Sprint("T", i))
			r := t.Load(words[0], Plain)
			t.If(Equal(r, 1), func() { t.Store(words[1], Plain, Const(1)) })
			p.Observe(fmt.Sprint("r", i), r)
		}
	}, "r0=1 r1=1", nowhere},
	// Independent reads of independent writes: readers disagree on the order.
	{"IRIW", iriw(Plain), "r0=1 r1=0 r2=1 r3=0", weakOnly},
	{"IRIW+acq", iriw(Acquire), "r0=1 r1=0 r2=1 r3=0", nowhere},
	// Coherence: one word never goes back.
	{"CoRR", func(p *Program) {
		x := p.Word("x", 0)
		p.Thread("W").Store(x, Plain, Const(1))
		r := p.Thread("R")
		p.Observe("r0", r.Load(x, Plain))
		p.Observe("r1", r.Load(x, Plain))
	}, "r0=1 r1=0", nowhere},
	{"CoWW", func(p *Program) {
		x := p.Word("x", 0)
		w := p.Thread("W")
		w.Store(x, Plain, Const(1))
		w.Store(x, Plain, Const(2))
		p.ObserveWord(x)
	}, "x=1", nowhere},
	{"CoWR", func(p *Program) { // a thread sees its own store, or a later one
		x := p.Word("x", 0)
		w := p.Thread("W")
		w.Store(x, Plain, Const(1))
		p.Observe("r", w.Load(x, Plain))
	}, "r=0", nowhere},
	// Two pairs of stores, each first in its word's order.
	{"2+2W", two(pair{"w", "w", Plain, Plain}, pair{"w", "w", Plain, Plain}, [4]int{1, 2, 1, 2}, "xyyx"), "x=1 y=1", weakOnly},
	{"2+2W+rel", two(pair{"w", "w", Plain, Release}, pair{"w", "w", Plain, Release}, [4]int{1, 2, 1, 2}, "xyyx"), "x=1 y=1", nowhere},
	// S: a store after a load that saw the flag is older than the data.
	{"S", two(pair{"w", "w", Plain, Plain}, pair{"r", "w", Plain, Plain}, [4]int{2, 1, 0, 1}, "xyyx"), "r0=1 x=2 y=1", weakOnly},
	{"S+rel", two(pair{"w", "w", Plain, Release}, pair{"r", "w", Plain, Plain}, [4]int{2, 1, 0, 1}, "xyyx"), "r0=1 x=2 y=1", weakOnly},
	{"S+rel+acq", two(pair{"w", "w", Plain, Release}, pair{"r", "w", Acquire, Plain}, [4]int{2, 1, 0, 1}, "xyyx"), "r0=1 x=2 y=1", nowhere},
	// R: a store wins over the flag, and the load after it misses the data.
	{"R", two(pair{"w", "w", Plain, Plain}, pair{"w", "r", Plain, Plain}, [4]int{1, 1, 2, 0}, "xyyx"), "r0=0 x=1 y=2", tsoAndUp},
	{"R+rel+acq", two(pair{"w", "w", Plain, Release}, pair{"w", "r", Release, Acquire}, [4]int{1, 1, 2, 0}, "xyyx"), "r0=0 x=1 y=2", tsoAndUp},
	{"R+rel+seq_cst store", two(pair{"w", "w", Plain, Release}, pair{"w", "r", SeqCst, Plain}, [4]int{1, 1, 2, 0}, "xyyx"), "r0=0 x=1 y=2", weakOnly},
	{"R+rel+seq_cst", two(pair{"w", "w", Plain, Release}, pair{"w", "r", SeqCst, SeqCst}, [4]int{1, 1, 2, 0}, "xyyx"), "r0=0 x=1 y=2", nowhere},
	// Forwarding: each thread sees its own store before the other does.
	{"SB+rfi", func(p *Program) {
		x, y := p.Word("x", 0), p.Word("y", 0)
		for i, words := range [][2]Word{{x, y}, {y, x}} {
			t := p.Thread(fmt.Sprint("T", i))
			t.Store(words[0], Plain, Const(1))
			p.Observe(fmt.Sprint("own", i), t.Load(words[0], Acquire))
			p.Observe(fmt.Sprint("r", i), t.Load(words[1], Acquire))
		}
	}, "own0=1 r0=0 own1=1 r1=0", tsoAndUp},
}

// TestLitmus says which behaviours each model admits.
func TestLitmus(t *testing.T) {
	for _, l := range litmusTests {
		for i, m := range Models {
			var p Program
			l.build(&p)
			r, err := Explore(&p, m, limit)
			if err != nil || r.Kind != None {
				t.Fatalf("%s under %v: %v, %v", l.name, m, r, err)
			}
			if got := slices.Contains(r.Outcomes, l.outcome); got != l.admitted[i] {
				t.Errorf("%s under %v: outcome %q admitted: %v, want %v (of %q)", l.name, m, l.outcome, got, l.admitted[i], r.Outcomes)
			}
		}
	}
}
