package ordering

import (
	"fmt"

	"ringlane/internal/model/weakmem"
)

// A message of a stream is its number, from 1, in every word. Every third is
// short, so that slots are used again both by the same kind and by the other.
func isLong(n int) bool { return n%3 != 0 }

// about is the header word of message n: its tag and its length.
func about(n int, long bool) int {
	if long {
		return n<<1 | 1
	}
	return n << 1
}

// simpleChannel mirrors a channel of package simple.
type simpleChannel struct {
	sequence, about []weakmem.Word   // one each slot
	short, long     [][]weakmem.Word // two each slot
	credit          credit
}

func (d *design) simpleChannel(name string, slots, readers int, long bool) *simpleChannel {
	c := &simpleChannel{
		sequence: d.words(name+"sequence", slots),
		about:    d.words(name+"about", slots),
		credit:   credit{acks: d.words(name+"ack", readers), slots: slots},
	}
	for i := range slots {
		c.short = append(c.short, d.words(fmt.Sprintf("%sshort%d", name, i), 2))
		if long {
			c.long = append(c.long, d.words(fmt.Sprintf("%slong%d", name, i), 2))
		}
	}
	return c
}

// commit mirrors writer.Commit of message n, and the Ring that follows.
func (d *design) commit(t *weakmem.Thread, c *simpleChannel, n int, long bool, readers *waker) {
	slot := (n - 1) % c.credit.slots
	late := readers == nil || d.keeps("a ring follows what was published")
	if !late {
		d.ringAll(t, readers)
	}
	d.in("simple.writer.Commit", func() {
		publish := func() { d.publish(t, c.sequence[slot], n) }
		last := d.keeps("the sequence number is stored last")
		if !last {
			publish()
		}
		d.site(t, "*s.about")
		set(t, c.about[slot], about(n, long))
		if last {
			publish()
		}
	})
	if late {
		d.ringAll(t, readers)
	}
}

// peek mirrors reader.Peek for message n, with the wait around it, and returns
// the header word.
func (d *design) peek(t *weakmem.Thread, c *simpleChannel, n int, own *bell) (header weakmem.Reg) {
	const function, call = "simple.reader.Peek", "s.sequence.Load"
	slot := (n - 1) % c.credit.slots
	look := func() (found []weakmem.Reg) {
		d.in(function, func() { found = append(found, d.load(t, call, c.sequence[slot])) })
		return found
	}
	d.wait(t, own, look, func(found []int) bool { return found[0] == n }, func() {
		d.in(function, func() { d.await(t, call, c.sequence[slot], weakmem.Is(n)) })
	})
	d.in(function, func() {
		d.site(t, "*s.about")
		header = t.Load(c.about[slot], weakmem.Plain)
	})
	t.Check(fmt.Sprintf("the header of message %d", n), weakmem.When(func(v []int) bool { return v[0]>>1 == n }, header))
	return header
}

// release mirrors reader.Release of message n, and the Ring that follows.
func (d *design) release(t *weakmem.Thread, ack weakmem.Word, n int, writer *waker) {
	d.in("simple.reader.Release", func() { d.publish(t, ack, n) })
	d.ringAll(t, writer)
}

// sleepers are the bells of a writer and its readers and what rings them, nil unless they
// sleep.
func (d *design) sleepers(readers int, sleep bool) (own *bell, theirs []*bell, toReaders *waker, toWriter []*waker) {
	theirs, toWriter = make([]*bell, readers), make([]*waker, readers)
	if !sleep {
		return nil, theirs, nil, toWriter
	}
	own = d.bell("writer")
	for k := range readers {
		name := fmt.Sprint("reader", k)
		theirs[k], toWriter[k] = d.bell(name), d.waker(name, own)
	}
	return own, theirs, d.waker("writer", theirs...), toWriter
}

// simpleStream is a stream of long and short messages through a channel of
// package simple.
func simpleStream(slots, readers, messages int, sleeps bool) func(change) *design {
	return func(change change) *design {
		d := newDesign(change)
		c := d.simpleChannel("", slots, readers, true)
		own, theirs, toReaders, toWriter := d.sleepers(readers, sleeps)
		w := d.Thread("writer")
		for n := 1; n <= messages; n++ {
			d.free(w, &c.credit, n, own)
			d.caller(w, "fills the room that Reserve gave")
			for _, word := range c.data(n) {
				set(w, word, n)
			}
			d.commit(w, c, n, isLong(n), toReaders)
		}
		for k := range readers {
			r := d.Thread(fmt.Sprint("reader", k))
			for n := 1; n <= messages; n++ {
				header := d.peek(r, c, n, theirs[k])
				released := d.keeps("Release after the last look at the bytes")
				if !released {
					d.release(r, c.credit.acks[k], n, toWriter[k])
				}
				for _, long := range []bool{false, true} {
					r.If(weakmem.Equal(header, about(n, long)), func() {
						if long != isLong(n) {
							r.Check("the length", weakmem.Const(0))
							return
						}
						d.caller(r, "reads the bytes that Peek gave")
						for _, word := range c.data(n) {
							expect(r, fmt.Sprintf("the bytes of message %d", n), word, n)
						}
					})
				}
				if released {
					d.release(r, c.credit.acks[k], n, toWriter[k])
				}
			}
		}
		return d
	}
}

// data is where message n lies.
func (c *simpleChannel) data(n int) []weakmem.Word {
	slot := (n - 1) % c.credit.slots
	if isLong(n) {
		return c.long[slot]
	}
	return c.short[slot]
}

// answer is what goes back for message n.
func answer(n int) int { return 8 + n }

// simpleAnswers is a channel whose reader answers each message in its slot. The
// writer sends as many ahead as there are slots, and takes an answer before it
// sends the next.
func simpleAnswers(slots, messages int) func(change) *design {
	return func(change change) *design {
		d := newDesign(change)
		c := d.simpleChannel("", slots, 1, false)

		w := d.Thread("writer")
		take := func(n int) {
			d.answered(w, &c.credit, n)
			d.caller(w, "reads the bytes that Answer gave")
			for _, word := range c.short[(n-1)%slots] {
				expect(w, fmt.Sprintf("the answer to message %d", n), word, answer(n))
			}
		}
		taken := 0
		for n := 1; n <= messages; n++ {
			if n-1-taken == slots && d.keeps("Reserve waits until answers have been taken") {
				taken++
				take(taken)
			}
			d.free(w, &c.credit, n, nil)
			d.caller(w, "fills the room that Reserve gave")
			for _, word := range c.short[(n-1)%slots] {
				set(w, word, n)
			}
			d.commit(w, c, n, false, nil)
		}
		for ; taken < messages; taken++ {
			take(taken + 1)
		}

		r := d.Thread("reader")
		for n := 1; n <= messages; n++ {
			d.peek(r, c, n, nil)
			d.caller(r, "reads the bytes that Peek gave")
			for _, word := range c.short[(n-1)%slots] {
				expect(r, fmt.Sprintf("the bytes of message %d", n), word, n)
			}
			fill := func() {
				d.caller(r, "fills the room that Room gave")
				for _, word := range c.short[(n-1)%slots] {
					set(r, word, answer(n))
				}
			}
			last := d.keeps("Release after the answer is written")
			if last {
				fill()
			}
			d.release(r, c.credit.acks[0], n, nil)
			if !last {
				fill()
			}
		}
		return d
	}
}
