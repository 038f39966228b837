package ordering

import (
	"fmt"

	"ringlane/internal/model/weakmem"
)

// A reference is a short message that says where in the writer's window the data
// lies (internal/run/communicator/lend.go); readers read it there and then
// release the message. The writer's call ends, and its user may write the data
// again, when its channels are drained.
//
// Words have fixed addresses here, so data may be read before the reference is
// known, as by a processor that guesses addresses: weaker than any there is.

// at is the offset that message n refers to; any will do that differs.
func at(n int) int { return 8 + n }

// refer sends message n of a simple channel, a reference.
func (d *design) refer(t *weakmem.Thread, c *simpleChannel, n int) {
	d.free(t, &c.credit, n, nil)
	d.caller(t, "operation.send writes the reference")
	set(t, c.short[(n-1)%c.credit.slots][0], at(n))
	d.commit(t, c, n, false, nil)
}

// borrow takes message n of a simple channel, a reference, without releasing it.
func (d *design) borrow(t *weakmem.Thread, c *simpleChannel, n int) {
	d.peek(t, c, n, nil)
	d.caller(t, "Comm.borrow reads the reference")
	expect(t, fmt.Sprintf("reference %d", n), c.short[(n-1)%c.credit.slots][0], at(n))
}

// arrived mirrors reader.Arrived for message n, and the wait around it.
func (d *design) arrived(t *weakmem.Thread, c *simpleChannel, n int) {
	d.in("simple.reader.Arrived", func() {
		d.await(t, "s.sequence.Load", c.sequence[(n-1)%c.credit.slots], weakmem.Is(n))
	})
}

// whole is what a reader does with a reference: read the data, then release.
func (d *design) whole(read, release func()) {
	after := d.keeps("a reference is released after the data is read")
	if !after {
		release()
	}
	read()
	if after {
		release()
	}
}

// references is one rank that lends the same memory round after round; stored
// says how the data gets there.
func references(ll bool, stored weakmem.Order, slots, readers, rounds int) func(change) *design {
	return func(change change) *design {
		d := newDesign(change)
		data := d.words("data", 2)
		var simple *simpleChannel
		var words *llChannel
		var c *credit
		if ll {
			words = d.llChannel(readers)
			c = &words.credit
		} else {
			simple = d.simpleChannel("", slots, readers, false)
			c = &simple.credit
		}
		own := d.words("own", 2)

		w := d.Thread("writer")
		for n := 1; n <= rounds; n++ {
			d.caller(w, "the user writes the data")
			for _, word := range data {
				w.Store(word, stored, weakmem.Const(n))
			}
			if ll {
				// Nothing in ll orders data outside the slot before the words.
				if d.keeps("a store and a load, seq_cst, lie between data and its reference by ll") {
					d.caller(w, "Comm.prepare")
					w.Store(own[0], weakmem.SeqCst, weakmem.Const(n))
					d.caller(w, "Comm.collect")
					w.Load(own[1], weakmem.SeqCst)
				}
				d.free(w, c, n, nil)
				d.llCommit(w, words, n, []int{n, 1, at(n)}, nil)
			} else {
				// A release does not order non-temporal stores on x86.
				if d.keeps("a lock is taken between data and its reference") {
					d.caller(w, "Comm.Do takes the driver's seat, or Comm.submit the inbox")
					w.Add(own[0], weakmem.SeqCst, 1)
				}
				d.refer(w, simple, n)
			}
			if d.keeps("a call ends when its channels are drained") {
				d.drained(w, c, n)
			}
		}

		for k := range readers {
			r := d.Thread(fmt.Sprint("reader", k))
			for n := 1; n <= rounds; n++ {
				if ll {
					for i, want := range []int{n, 1, at(n)} {
						d.llTake(r, words, n, i, want, nil)
					}
				} else {
					d.borrow(r, simple, n)
				}
				d.whole(func() {
					d.caller(r, "operation.try copies the data")
					for _, word := range data {
						expect(r, fmt.Sprintf("the data of round %d", n), word, n)
					}
				}, func() {
					if ll {
						d.llRelease(r, c.acks[k], n, nil)
					} else {
						d.release(r, c.acks[k], n, nil)
					}
				})
			}
		}
		return d
	}
}
