package ordering

import (
	"fmt"

	"ringlane/internal/model/weakmem"
)

// input is chunk k of rank r's input to a call.
func input(call, r, k int) int { return 32*call + 8*r + k }

func total(terms []int) (sum int) {
	for _, t := range terms {
		sum += t
	}
	return sum % 256
}

// inPlace is the buffers and channels of ranks that reduce in place.
type inPlace struct {
	*design
	ranks   int
	buffers [][]weakmem.Word
	private [][]*simpleChannel // by writer and reader
	shared  []*simpleChannel   // by writer
}

// newInPlace has the input to the first call in the buffers if filled.
func newInPlace(d *design, ranks, chunks int, filled bool) *inPlace {
	p := &inPlace{design: d, ranks: ranks}
	for r := range ranks {
		var buffer []weakmem.Word
		for k := range chunks {
			first := 0
			if filled {
				first = input(1, r, k)
			}
			buffer = append(buffer, d.Word(fmt.Sprintf("buffer%d[%d]", r, k), first))
		}
		p.buffers = append(p.buffers, buffer)
		p.shared = append(p.shared, d.simpleChannel(fmt.Sprintf("%d->all.", r), 1, ranks-1, false))
		p.private = append(p.private, nil)
		for peer := range ranks {
			p.private[r] = append(p.private[r], d.simpleChannel(fmt.Sprintf("%d->%d.", r, peer), 1, 1, false))
		}
	}
	return p
}

// peers calls do for every rank but one, which is its reader number reader.
func (p *inPlace) peers(rank int, do func(peer, reader int)) {
	for peer := range p.ranks {
		switch {
		case rank < peer:
			do(peer, rank)
		case rank > peer:
			do(peer, rank-1)
		}
	}
}

// sum is chunk k of the result of a call.
func (p *inPlace) sum(call, k int) int {
	var terms []int
	for r := range p.ranks {
		terms = append(terms, input(call, r, k))
	}
	return total(terms)
}

func (p *inPlace) write(t *weakmem.Thread, rank, call int) {
	p.caller(t, fmt.Sprintf("the user writes its input to call %d", call))
	for k, word := range p.buffers[rank] {
		set(t, word, input(call, rank, k))
	}
}

// result reads the user's buffer after a call.
func (p *inPlace) result(t *weakmem.Thread, rank, call int) {
	p.caller(t, fmt.Sprintf("the user reads the result of call %d", call))
	for k, word := range p.buffers[rank] {
		expect(t, fmt.Sprintf("chunk %d of the result of call %d", k, call), word, p.sum(call, k))
	}
}

// reduceTo lends each peer its chunk, and the same place for the sum, and leaves the
// sum of chunk rank everywhere (directReduceTo, by operation.reduce).
func (p *inPlace) reduceTo(t *weakmem.Thread, rank, call, message int) {
	p.peers(rank, func(peer, _ int) { p.refer(t, p.private[rank][peer], message) })
	p.peers(rank, func(peer, _ int) { p.arrived(t, p.private[peer][rank], message) })
	p.peers(rank, func(peer, _ int) { p.borrow(t, p.private[peer][rank], message) })
	p.whole(func() {
		p.caller(t, "operation.reduce runs the kernel")
		terms := []weakmem.Reg{t.Load(p.buffers[rank][rank], weakmem.Plain)}
		p.peers(rank, func(peer, _ int) {
			what := fmt.Sprintf("rank %d's input to call %d", peer, call)
			terms = append(terms, expect(t, what, p.buffers[peer][rank], input(call, peer, rank)))
		})
		t.Store(p.buffers[rank][rank], weakmem.Plain, weakmem.Of(total, terms...))
		p.peers(rank, func(peer, _ int) {
			t.Store(p.buffers[peer][rank], weakmem.Plain, weakmem.Of(total, terms...))
		})
	}, func() {
		p.peers(rank, func(peer, _ int) {
			p.release(t, p.private[peer][rank].credit.acks[0], message, nil)
		})
	})
}

// allReduce is the direct algorithm in place on buffers that are lent: whoever
// reduces a chunk puts the sum where the inputs were. After the call the users
// write their next inputs, which two ranks begin to reduce. For more there are too
// many states unless the first inputs are there from the start.
func allReduce(ranks int) func(change) *design {
	return func(change change) *design {
		p := newInPlace(newDesign(change), ranks, ranks, ranks > 2)
		for rank := range ranks {
			t := p.Thread(fmt.Sprint("rank", rank))
			if ranks == 2 {
				p.write(t, rank, 1)
			}
			p.reduceTo(t, rank, 1, 1)
			if p.keeps("a call ends when its messages are answered") {
				p.peers(rank, func(peer, _ int) { p.answered(t, &p.private[rank][peer].credit, 1) })
			}
			p.result(t, rank, 1)
			p.write(t, rank, 2)
			if ranks == 2 {
				p.reduceTo(t, rank, 2, 2)
			}
		}
		return p.design
	}
}

// oneShot is two ranks that show each other their inputs and write the sum in
// place. Here the sum does not say that the input has been read, so the input is
// copied into the message and not lent (route.exposed).
func oneShot(change change) *design {
	p := newInPlace(newDesign(change), 2, 1, false)
	lent := !p.keeps("an input that its owner overwrites is not lent to everyone")
	for rank := range 2 {
		t := p.Thread(fmt.Sprint("rank", rank))
		own, theirs := p.shared[rank], p.shared[1-rank]
		p.write(t, rank, 1)
		term := p.buffers[1-rank][0]
		if lent {
			p.refer(t, own, 1)
			p.borrow(t, theirs, 1)
		} else {
			p.caller(t, "operation.send copies the input")
			set(t, own.short[0][0], input(1, rank, 0))
			p.commit(t, own, 1, false, nil)
			p.peek(t, theirs, 1, nil)
			term = theirs.short[0][0]
		}
		p.caller(t, "operation.reduce runs the kernel")
		sum := []weakmem.Reg{
			t.Load(p.buffers[rank][0], weakmem.Plain),
			expect(t, fmt.Sprintf("rank %d's input", 1-rank), term, input(1, 1-rank, 0)),
		}
		t.Store(p.buffers[rank][0], weakmem.Plain, weakmem.Of(total, sum...))
		p.release(t, theirs.credit.acks[0], 1, nil)
		if lent {
			p.drained(t, &own.credit, 1)
		}
		p.result(t, rank, 1)
	}
	return p.design
}
