package ordering

import (
	"slices"

	"ringlane/internal/model/weakmem"
)

// bell mirrors channel.Bell.
type bell struct{ rings, asleep weakmem.Word }

func (d *design) bell(owner string) *bell {
	return &bell{d.Word(owner+".rings", 0), d.Word(owner+".asleep", 0)}
}

// ring mirrors Bell.Ring.
func (d *design) ring(t *weakmem.Thread, b *bell) {
	d.in("channel.Bell.Ring", func() {
		asleep := d.load(t, "b.asleep.Load", b.asleep)
		t.If(weakmem.Equal(asleep, 1), func() {
			count := func() { t.Add(b.rings, d.order(d.site(t, "b.rings.Add"), true), 1) }
			first := d.keeps("Ring counts before it wakes")
			if first {
				count()
			}
			d.site(t, "sys.FutexWake")
			t.Wake(b.rings)
			if !first {
				count()
			}
		})
	})
}

// waker mirrors channel.Waker; one that is nil wakes nobody.
type waker struct {
	fence weakmem.Word
	bells []*bell
}

func (d *design) waker(owner string, bells ...*bell) *waker {
	return &waker{d.Word(owner+".fence", 0), bells}
}

// ringAll mirrors Waker.Ring.
func (d *design) ringAll(t *weakmem.Thread, w *waker) {
	if w == nil {
		return
	}
	d.in("channel.Waker.Ring", func() {
		d.store(t, "w.fence.Store", w.fence, 1)
		d.site(t, "w.Glance")
		d.in("channel.Waker.Glance", func() {
			for _, b := range w.bells {
				d.site(t, "b.Ring")
				d.ring(t, b)
			}
		})
	})
}

// wait mirrors the loop around a Bell: look for work; if there is none doze,
// look again, sleep, awake, and start over. With no bell it polls. A look
// returns what it loaded, ok says whether that is enough, and poll is a look
// that ends with success.
func (d *design) wait(t *weakmem.Thread, b *bell, look func() []weakmem.Reg, ok func(found []int) bool, poll func()) {
	if b == nil {
		poll()
		return
	}
	found := look()
	width := len(found)
	missing := func() weakmem.Value { // in every look so far
		return weakmem.When(func(found []int) bool {
			for ; len(found) > 0; found = found[width:] {
				if ok(found[:width]) {
					return false
				}
			}
			return true
		}, found...)
	}
	for range d.naps {
		t.If(missing(), func() {
			var ticket weakmem.Reg
			compares := d.keeps("Sleep compares the ticket of Doze")
			doze := func() {
				d.in("channel.Bell.Doze", func() {
					if compares {
						ticket = d.load(t, "b.rings.Load", b.rings)
					}
					d.store(t, "b.asleep.Store", b.asleep, 1)
				})
			}
			early := d.keeps("Doze before the last look")
			if early {
				doze()
			}
			found = append(found, look()...)
			if !early {
				doze()
			}
			t.If(missing(), func() {
				d.in("channel.Bell.Sleep", func() {
					if !compares {
						ticket = t.Load(b.rings, weakmem.SeqCst)
					}
					d.site(t, "sys.FutexWait")
					t.Sleep(b.rings, weakmem.Of(func(v []int) int { return v[0] }, ticket))
				})
			})
			d.in("channel.Bell.Awake", func() { d.store(t, "b.asleep.Store", b.asleep, 0) })
			t.If(missing(), func() { found = append(found, look()...) })
		})
	}
	t.If(missing(), poll)
}

// credit mirrors channel.Credit: which messages every reader has released.
type credit struct {
	acks  []weakmem.Word
	slots int
	seen  []weakmem.Reg // what every look so far found, one for each ack
}

// look mirrors Credit.look, called by another method of Credit.
func (d *design) look(t *weakmem.Thread, c *credit, acks []weakmem.Word, by string, load func(ack weakmem.Word) weakmem.Reg) (found []weakmem.Reg) {
	d.in("channel.Credit."+by, func() {
		d.site(t, "c.look")
		d.in("channel.Credit.look", func() {
			for _, a := range acks {
				found = append(found, load(a))
			}
		})
	})
	c.seen = append(c.seen, found...)
	return found
}

// until is an acknowledgement that covers message n.
func (d *design) until(t *weakmem.Thread, n int) func(ack weakmem.Word) weakmem.Reg {
	return func(ack weakmem.Word) weakmem.Reg { return d.await(t, "a.Load", ack, weakmem.AtLeast(n)) }
}

// free mirrors Reserve's Credit.Free for message n, from 1, and the wait around
// it.
func (d *design) free(t *weakmem.Thread, c *credit, n int, b *bell) {
	if n <= c.slots || !d.keeps("Reserve waits for acknowledgements") {
		return
	}
	acks := c.acks
	if len(acks) > 1 && !d.keeps("Free looks at every reader") {
		acks = acks[:1]
	}
	enough := func(found []int) bool { return slices.Min(found) >= n-c.slots }
	short := weakmem.When(func(seen []int) bool { // n - c.seen >= Slots
		for ; len(seen) > 0; seen = seen[len(acks):] {
			if enough(seen[:len(acks)]) {
				return false
			}
		}
		return true
	}, c.seen...)
	t.If(short, func() {
		d.wait(t, b, func() []weakmem.Reg {
			return d.look(t, c, acks, "Free", func(ack weakmem.Word) weakmem.Reg { return d.load(t, "a.Load", ack) })
		}, enough, func() {
			d.look(t, c, acks, "Free", d.until(t, n-c.slots))
		})
	})
}

// drained mirrors Credit.Drained after n messages, and the wait around it.
func (d *design) drained(t *weakmem.Thread, c *credit, n int) {
	acks := c.acks
	if len(acks) > 1 && !d.keeps("Drained looks at every reader") {
		acks = acks[:1]
	}
	d.look(t, c, acks, "Drained", d.until(t, n))
}

// answered mirrors Credit.Released for message n, by writer.Answer, and the wait
// around it.
func (d *design) answered(t *weakmem.Thread, c *credit, n int) {
	d.look(t, c, c.acks, "Released", d.until(t, n))
}
