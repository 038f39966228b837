package weakmem

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// axiomatic is the outcomes of a program of loads and stores without values
// from registers, by the axioms instead of a machine: take every total order of
// all steps that keeps what the model orders, and let a load read, of the stores
// before it in that order and its thread's own before it, the last. It is
// hopeless beyond a few steps, and shares nothing with the explorer but the
// relation ordered.
func axiomatic(p *Program, m Model) []string {
	type event struct{ thread, step int }
	var events []event
	for t, thread := range p.threads {
		for s := range thread.steps {
			events = append(events, event{t, s})
		}
	}
	found := map[string]bool{}
	memory := make([]event, 0, len(events)) // the total order
	var extend func()
	extend = func() {
		if len(memory) < len(events) {
			for _, b := range events {
				ready := !slices.Contains(memory, b)
				for i := 0; ready && i < b.step; i++ {
					steps := p.threads[b.thread].steps
					ready = !m.ordered(&steps[i], &steps[b.step]) || slices.Contains(memory, event{b.thread, i})
				}
				if ready {
					memory = append(memory, b)
					extend()
					memory = memory[:len(memory)-1]
				}
			}
			return
		}
		words := map[Word]int{}
		regs := map[Reg]int{}
		for at, e := range memory {
			thread := p.threads[e.thread]
			s := &thread.steps[e.step]
			if s.kind == load {
				v := words[s.word]
				for _, own := range memory[at:] { // a store of its own that comes later
					if own.thread != e.thread || own.step >= e.step {
						continue
					}
					if o := &thread.steps[own.step]; o.writes() && o.word == s.word {
						v = o.value.of(nil)
					}
				}
				regs[Reg{thread, e.step}] = v
			}
			switch s.kind {
			case store:
				words[s.word] = s.value.of(nil)
			case add:
				words[s.word] += s.value.of(nil)
			}
		}
		var parts []string
		for _, o := range p.observed {
			v := words[o.word]
			if o.reg.thread != nil {
				v = regs[o.reg]
			}
			parts = append(parts, fmt.Sprintf("%s=%d", o.name, v))
		}
		found[strings.Join(parts, " ")] = true
	}
	extend()
	var outcomes []string
	for o := range found {
		outcomes = append(outcomes, o)
	}
	slices.Sort(outcomes)
	return outcomes
}

// programs is how many random programs a test tries.
func programs() int {
	if testing.Short() {
		return 100
	}
	return 1000
}

// random is a program of two or three threads with up to seven steps in all.
func random(r *rand.Rand) *Program {
	p := &Program{}
	words := []Word{p.Word("x", 0), p.Word("y", 0), p.Word("z", 0)}[:2+r.IntN(2)]
	lengths := [][]int{{2, 2, 2}, {1, 2, 3}, {3, 3}, {2, 4}, {3, 4}}
	for i, n := range lengths[r.IntN(len(lengths))] {
		t := p.Thread(fmt.Sprint("T", i))
		for k := range n {
			w := words[r.IntN(len(words))]
			switch r.IntN(9) {
			case 0:
				t.Fence()
			case 1:
				t.Add(w, []Order{Plain, SeqCst}[r.IntN(2)], 16)
			case 2, 3, 4:
				t.Store(w, []Order{Plain, Release, SeqCst}[r.IntN(3)], Const(1+r.IntN(3)))
			default:
				p.Observe(fmt.Sprint("r", i, k), t.Load(w, []Order{Plain, Acquire, SeqCst}[r.IntN(3)]))
			}
		}
	}
	for _, w := range words {
		p.ObserveWord(w)
	}
	return p
}

// TestAgainstAxioms compares the explorer with the axioms on random programs,
// and the models with each other: a stronger one admits nothing that a weaker
// one does not.
func TestAgainstAxioms(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range programs() {
		p := random(r)
		var stronger []string
		for _, m := range Models {
			got, err := Explore(p, m, limit)
			if err != nil {
				t.Fatal(err)
			}
			if want := axiomatic(p, m); !slices.Equal(got.Outcomes, want) {
				t.Fatalf("%s\nunder %v: outcomes\n%q, want\n%q", listing(p), m, got.Outcomes, want)
			}
			for _, o := range stronger {
				if !slices.Contains(got.Outcomes, o) {
					t.Fatalf("%s\nunder %v: no outcome %q, which a stronger model has", listing(p), m, o)
				}
			}
			stronger = got.Outcomes
		}
	}
}

// TestReduction compares the reduced search with the full one on random programs
// with polls, branches and sleepers too.
func TestReduction(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	states := [2]int{}
	for range programs() {
		p := &Program{}
		words := []Word{p.Word("x", 0), p.Word("y", 0), p.Word("z", 0)}
		for i := range 2 + r.IntN(2) {
			th := p.Thread(fmt.Sprint("T", i))
			seen := th.Load(words[r.IntN(3)], Plain)
			for range 1 + r.IntN(4) {
				w, order := words[r.IntN(3)], []Order{Plain, SeqCst}[r.IntN(2)]
				body := func() {
					switch r.IntN(8) {
					case 0:
						th.Await(w, order, AtLeast(1))
					case 1:
						th.Sleep(w, Const(0))
					case 2:
						th.Wake(w)
					case 3, 4, 5:
						th.Store(w, order, Const(1+r.IntN(2)))
					default:
						p.Observe("r", th.Load(w, order))
					}
				}
				if r.IntN(3) == 0 {
					th.If(Equal(seen, r.IntN(2)), body)
				} else {
					body()
				}
			}
		}
		for _, w := range words {
			p.ObserveWord(w)
		}
		for _, m := range Models {
			full, err := newExplorer(p, m).search(limit, false)
			if err != nil {
				t.Fatal(err)
			}
			reduced, err := newExplorer(p, m).search(limit, true)
			if err != nil {
				t.Fatal(err)
			}
			if (full.Kind == None) != (reduced.Kind == None) || full.Kind == None && !slices.Equal(full.Outcomes, reduced.Outcomes) {
				t.Fatalf("%s\nunder %v: %v with outcomes\n%q, reduced %v with\n%q", listing(p), m, full.Kind, full.Outcomes, reduced.Kind, reduced.Outcomes)
			}
			states[0] += full.States
			states[1] += reduced.States
		}
	}
	t.Logf("%d states in full, %d reduced", states[0], states[1])
}

func listing(p *Program) string {
	e := explorer{Program: p}
	var lines []string
	for _, t := range p.threads {
		for i := range t.steps {
			s := &t.steps[i]
			v := 0
			if s.writes() {
				v = s.value.of(nil)
			}
			lines = append(lines, t.name+" "+e.text(s, v))
		}
	}
	return strings.Join(lines, "\n")
}

// sleeper waits for x to become 1 as a futex user does, or as one who forgot
// something does.
func sleeper(ticketFirst, wakes bool) *Program {
	p := &Program{}
	x, rings := p.Word("x", 0), p.Word("rings", 0)
	a, b := p.Thread("sleeper"), p.Thread("waker")
	var ticket Reg
	if ticketFirst {
		ticket = a.Load(rings, SeqCst)
	}
	seen := a.Load(x, SeqCst)
	a.If(Equal(seen, 0), func() {
		if !ticketFirst {
			ticket = a.Load(rings, SeqCst)
		}
		a.Sleep(rings, Of(func(v []int) int { return v[0] }, ticket))
	})
	a.At("after the nap")
	again := a.Await(x, SeqCst, AtLeast(1))
	a.Check("x is 1", Equal(again, 1))
	b.Store(x, SeqCst, Const(1))
	b.Add(rings, SeqCst, 1)
	if wakes {
		b.Wake(rings)
	}
	return p
}

func TestSleepers(t *testing.T) {
	for _, c := range []struct {
		ticketFirst, wakes bool
		want               Kind
	}{{true, true, None}, {false, true, Lost}, {true, false, Lost}} {
		for _, m := range Models {
			r, err := Explore(sleeper(c.ticketFirst, c.wakes), m, limit)
			if err != nil || r.Kind != c.want {
				t.Errorf("ticket first %v, wakes %v, %v: %v, %v", c.ticketFirst, c.wakes, m, r, err)
			}
		}
	}
}

// TestTrace shows what a violation looks like.
func TestTrace(t *testing.T) {
	p := &Program{}
	data, flag := p.Word("data", 0), p.Word("flag", 0)
	w, r := p.Thread("writer"), p.Thread("reader")
	w.At("publish")
	w.Store(data, Plain, Const(7))
	w.Store(flag, Plain, Const(1))
	r.At("consume")
	r.Await(flag, Acquire, Is(1))
	r.Check("the data is there", Equal(r.Load(data, Plain), 7))
	got, err := Explore(p, Weak, limit)
	if err != nil {
		t.Fatal(err)
	}
	want := `writer   store flag := 1, plain  [publish]  (ahead of its earlier access to data)
reader   poll flag until == 1, acquire  [consume]
reader   load data -> 0, plain  [consume]
wrong: reader: the data is there`
	if text := strings.Join(got.Trace, "\n"); text != want || got.Kind != Wrong {
		t.Errorf("%v:\n%s", got.Kind, text)
	}
}

func TestStuckAndTooLarge(t *testing.T) {
	p := &Program{}
	x := p.Word("x", 0)
	a := p.Thread("a")
	a.Await(x, Acquire, Is(1))
	a.Store(x, Plain, Const(2))
	if r, err := Explore(p, Weak, limit); err != nil || r.Kind != Stuck || !strings.Contains(r.Trace[0], "a waits: poll x until == 1") {
		t.Errorf("%v, %v", r, err)
	}
	b := p.Thread("b")
	b.Store(x, Plain, Const(1))
	if r, err := Explore(p, Weak, limit); err != nil || r.Kind != None {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := Explore(p, Weak, 1); err == nil || !strings.Contains(err.Error(), "make the program smaller") {
		t.Error(err)
	}
}

// A load in a branch that is not taken leaves nothing behind, even if it was
// speculated.
func TestSkippedLoad(t *testing.T) {
	p := &Program{}
	x, y := p.Word("x", 0), p.Word("y", 1)
	a := p.Thread("a")
	var inside Reg
	a.If(Equal(a.Load(x, Plain), 1), func() { inside = a.Load(y, Plain) })
	p.Observe("inside", inside)
	a.Check("nothing was loaded", Equal(inside, 0))
	r, err := Explore(p, Weak, limit)
	if err != nil || r.Kind != None || !slices.Equal(r.Outcomes, []string{"inside=0"}) {
		t.Errorf("%v, %v", r, err)
	}
}

// Branches may follow each other and lie in each other.
func TestBranches(t *testing.T) {
	for _, m := range Models {
		p := &Program{}
		x, y := p.Word("x", 1), p.Word("y", 0)
		a := p.Thread("a")
		r := a.Load(x, Plain)
		put := func(digit int) {
			old := a.Load(y, Plain)
			a.Store(y, Plain, Of(func(v []int) int { return 10*v[0] + digit }, old))
		}
		a.If(Equal(r, 1), func() {
			a.If(Equal(r, 2), func() { put(9) })
			put(1)
			a.If(Equal(r, 1), func() { put(2) })
		})
		a.If(Equal(r, 0), func() {
			put(8)
			a.If(Equal(r, 1), func() { put(7) })
		})
		a.If(Equal(r, 1), func() { put(3) })
		p.ObserveWord(y)
		got, err := Explore(p, m, limit)
		if err != nil || got.Kind != None || !slices.Equal(got.Outcomes, []string{"y=123"}) {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
}

func TestMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(p *Program){
		"a register of another thread": func(p *Program) {
			r := p.Thread("a").Load(p.Word("x", 0), Plain)
			p.Thread("b").Check("x", Equal(r, 0))
		},
		"too many steps": func(p *Program) {
			a := p.Thread("a")
			for range maxSteps + 1 {
				a.Fence()
			}
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			misuse(&Program{})
		}()
	}
}
