package ordering

import (
	"fmt"

	"ringlane/internal/model/weakmem"
)

// Flags of the ll channels here repeat after flags messages, and the writer
// clears its one slot every scrub uses, in time for that.
const (
	flags = 3
	scrub = 2
)

// llWord is what a word of message n holds: the flag and, at once, 4 bytes of
// data, here the low 4 bits.
func llWord(n, data int) int { return llFlag(n)<<4 | data }

func llFlag(n int) int { return (n-1)%flags + 1 }

// llChannel mirrors a channel of package ll with one slot.
type llChannel struct {
	slot   []weakmem.Word // tag, length, data
	fence  weakmem.Word
	credit credit
	flag   []weakmem.Word // nil, unless data and flag are stored apart
}

func (d *design) llChannel(readers int) *llChannel {
	c := &llChannel{
		slot:   d.words("word", 4),
		fence:  d.Word("fence", 0),
		credit: credit{acks: d.words("ack", readers), slots: 1},
	}
	if !d.keeps("data and flag are one store") {
		c.flag = d.words("flag", len(c.slot))
	}
	return c
}

// llCommit mirrors writer.Commit of message n, which is these words, and the Ring that
// follows.
func (d *design) llCommit(t *weakmem.Thread, c *llChannel, n int, words []int, readers *waker) {
	d.in("ll.writer.Commit", func() {
		if use := n - 1; use > 0 && use%scrub == 0 && d.keeps("old flags are cleared") {
			for _, word := range c.slot {
				d.site(t, "clear(slot)")
				set(t, word, 0)
			}
		}
		for i, data := range words {
			d.site(t, []string{"slot[]", "slot[]", "words[]", "words[]"}[i])
			set(t, c.slot[i], llWord(n, data))
			if c.flag != nil {
				set(t, c.flag[i], n)
			}
		}
		d.store(t, "w.fence.Store", c.fence, n)
	})
	d.ringAll(t, readers)
}

// llTake mirrors the load of word i of message n in reader.Peek, with the wait
// around it.
func (d *design) llTake(t *weakmem.Thread, c *llChannel, n, i, want int, own *bell) {
	what := fmt.Sprintf("word %d of message %d", i, n)
	if c.flag != nil {
		t.Await(c.flag[i], weakmem.SeqCst, weakmem.Is(n))
		expect(t, what, c.slot[i], llWord(n, want))
		return
	}
	var seen []weakmem.Reg
	access := func(load func() weakmem.Reg) []weakmem.Reg {
		d.in("ll.reader.Peek", func() {
			d.site(t, "load")
			d.in("ll.load", func() { seen = append(seen, load()) })
		})
		return seen[len(seen)-1:]
	}
	arrived := func(v int) bool { return v>>4 == llFlag(n) }
	d.wait(t, own, func() []weakmem.Reg {
		return access(func() weakmem.Reg { return d.load(t, "Load", c.slot[i]) })
	}, func(found []int) bool { return arrived(found[0]) }, func() {
		access(func() weakmem.Reg {
			return d.await(t, "Load", c.slot[i], weakmem.That(fmt.Sprintf("has flag %d", llFlag(n)), arrived))
		})
	})
	t.Check(what, weakmem.When(func(found []int) bool {
		for _, v := range found {
			if arrived(v) && v != llWord(n, want) {
				return false
			}
		}
		return true
	}, seen...))
}

// llRelease mirrors reader.Release of message n, and the Ring that follows.
func (d *design) llRelease(t *weakmem.Thread, ack weakmem.Word, n int, writer *waker) {
	d.in("ll.reader.Release", func() { d.store(t, "r.ack.Store", ack, n) })
	d.ringAll(t, writer)
}

// llStream is a stream of messages through a channel of package ll.
func llStream(readers, messages int, sleeps bool) func(change) *design {
	return func(change change) *design {
		d := newDesign(change)
		d.naps = 1 // for each word
		// The second word of data is used by the first message and by the next
		// one with its flag alone, so that the flag stays behind. Sleepers have
		// too many steps for that.
		words := func(n int) []int {
			if llFlag(n) == 1 && !sleeps {
				return []int{n, 2, n, n}
			}
			return []int{n, 1, n}
		}
		c := d.llChannel(readers)
		own, theirs, toReaders, toWriter := d.sleepers(readers, sleeps)
		w := d.Thread("writer")
		for n := 1; n <= messages; n++ {
			d.free(w, &c.credit, n, own)
			d.llCommit(w, c, n, words(n), toReaders)
		}
		for k := range readers {
			r := d.Thread(fmt.Sprint("reader", k))
			release := func(n int) { d.llRelease(r, c.credit.acks[k], n, toWriter[k]) }
			for n := 1; n <= messages; n++ {
				after := d.keeps("Release after the last word")
				for i, want := range words(n) {
					if i == len(words(n))-1 && !after {
						release(n)
					}
					d.llTake(r, c, n, i, want, theirs[k])
				}
				if after {
					release(n)
				}
			}
		}
		return d
	}
}
