// Package ordering checks what the channel protocols assume about the order of
// loads and stores. Each protocol is written down once more as a small program
// of weakmem, step by step as in the code that it names, and every execution of
// it is explored under every memory model. Then each ordering and each wait is
// weakened alone, and the explorer has to find what goes wrong.
package ordering

import (
	"fmt"

	"ringlane/internal/model/weakmem"
)

// limit is the most states that one exploration may take.
const limit = 1 << 20

// design is a protocol as a program, with at most one thing changed.
type design struct {
	weakmem.Program
	change change
	// naps is how often a party that waits goes to sleep before it polls for
	// good.
	naps int

	function string                // whose body is being written down
	calls    []string              // of the function so far, in order
	bodies   map[string][][]string // every body, by function
	atomics  map[string]orders     // sites of atomics, and what they may be weakened to
	habits   map[string]bool       // what may be left out
}

// change weakens the atomic at a site, or leaves a habit out.
type change struct {
	site  string
	order weakmem.Order
	habit string
}

func (c change) String() string {
	switch {
	case c.habit != "":
		return "without: " + c.habit
	case c.site != "":
		return fmt.Sprintf("%s, %v", c.site, c.order)
	}
	return "unchanged"
}

func newDesign(c change) *design {
	return &design{change: c, naps: 2, bodies: map[string][][]string{}, atomics: map[string]orders{}, habits: map[string]bool{}}
}

// in writes down one execution of a function of the code, in which a function is
// named as package.Type.Method.
func (d *design) in(function string, body func()) {
	outer, calls := d.function, d.calls
	d.function, d.calls = function, nil
	body()
	d.bodies[function] = append(d.bodies[function], d.calls)
	d.function, d.calls = outer, calls
}

// site notes a call or plain store of the function being written down.
func (d *design) site(t *weakmem.Thread, call string) string {
	d.calls = append(d.calls, call)
	name := d.function + ": " + call
	t.At(name)
	return name
}

// order is that of an atomic: sequentially consistent, as all of Go's are.
func (d *design) order(site string, stores bool) weakmem.Order {
	if stores {
		return d.unless(site, weakmem.SeqCst, anyStore)
	}
	return d.unless(site, weakmem.SeqCst, anyLoad)
}

// unless is the order of an atomic that may be weakened.
func (d *design) unless(site string, order weakmem.Order, to orders) weakmem.Order {
	d.atomics[site] = to
	if d.change.site == site {
		return d.change.order
	}
	return order
}

// keeps reports whether a habit of the protocol is kept.
func (d *design) keeps(habit string) bool {
	d.habits[habit] = true
	return d.change.habit != habit
}

func (d *design) load(t *weakmem.Thread, call string, w weakmem.Word) weakmem.Reg {
	return t.Load(w, d.order(d.site(t, call), false))
}

func (d *design) await(t *weakmem.Thread, call string, w weakmem.Word, until weakmem.Test) weakmem.Reg {
	return t.Await(w, d.order(d.site(t, call), false), until)
}

func (d *design) store(t *weakmem.Thread, call string, w weakmem.Word, v int) {
	t.Store(w, d.order(d.site(t, call), true), weakmem.Const(v))
}

// publish is sys.Publish, which is no more than a release.
func (d *design) publish(t *weakmem.Thread, w weakmem.Word, v int) {
	t.Store(w, d.unless(d.site(t, "sys.Publish"), weakmem.Release, plain), weakmem.Const(v))
}

// caller marks what the code that uses the channel does.
func (d *design) caller(t *weakmem.Thread, does string) { t.At("caller: " + does) }

// set is a plain store.
func set(t *weakmem.Thread, w weakmem.Word, v int) { t.Store(w, weakmem.Plain, weakmem.Const(v)) }

// expect is a plain load that must find v.
func expect(t *weakmem.Thread, what string, w weakmem.Word, v int) weakmem.Reg {
	r := t.Load(w, weakmem.Plain)
	t.Check(what, weakmem.Equal(r, v))
	return r
}

func (d *design) words(name string, n int) []weakmem.Word {
	words := make([]weakmem.Word, n)
	for i := range words {
		words[i] = d.Word(fmt.Sprintf("%s[%d]", name, i), 0)
	}
	return words
}
