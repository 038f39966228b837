package device

import (
	"sync/atomic"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/logic/collective"
)

// settlement is how two ranks that meet in host memory come to let copy engines carry
// calls of some length. Beside other work that is better, and by itself worse
// (collective.EngineLayout); but it must be the same on both ranks, and what a call
// runs beside each knows of its own stream alone. So they settle it once, for all
// calls from a number on, in a word that both see: rank 0 proposes a number that is a
// while ahead, and rank 1 agrees, if it has not come so far.
//
// Numbers are of calls that are not captured: a graph may run at any time, and as often
// as anybody likes. Both ranks have captured as many when they settle, so that the
// numbers mean the same calls.
//
// The zero value settles nothing.
type settlement struct {
	open     bool // something may still be settled
	rank     int
	word     *atomic.Uint64
	least    int    // bytes of a call that counts
	eager    uint64 // calls so far that were not captured
	captured uint64
	beside   int    // long ones that were beside other work
	ahead    uint64 // how far ahead the next proposal is
	at       uint64 // the number that this rank has proposed or agreed to; 0: none
	offer    uint64 // what rank 0 has proposed
}

const (
	// settleAfter calls beside other work, rank 0 proposes.
	settleAfter = 8
	leastAhead  = 32
	mostAhead   = 1 << 14
)

// A proposal as the word has it is a number, how many calls rank 0 had captured then,
// and whether rank 1 has agreed. 0 is none.
const agreed = 1

func proposal(at, captured uint64) uint64 { return at<<24 | captured<<1&(1<<24-1) }

func newSettlement(rank int, b board) settlement {
	return settlement{
		open: true, rank: rank, word: sys.Word64(b.mem, boardSettle),
		least: collective.EngineBeside, ahead: leastAhead,
	}
}

// settleEngines looks at the word before a call gets its plan. The caller holds d.mu.
func (d *Comm) settleEngines(call *Call, s cuda.Stream) {
	b := &d.settlement
	if d.shares && s == d.beside && call.Count*call.Type.Size() >= b.least {
		b.beside++
	}
	if b.due() {
		d.devices.EngineFrom = b.least
		d.forget()
	}
}

// due reports whether engines carry long calls from the next one on.
func (b *settlement) due() bool {
	number, now := b.eager+1, b.word.Load()
	switch {
	case b.at != 0 && number >= b.at:
		if b.withdraw() { // rank 1 was further by then, or has not called since
			b.ahead = min(2*b.ahead, mostAhead)
			return false
		}
		b.open = false
		return true
	case b.at != 0:
	case b.rank == 0 && b.beside >= settleAfter:
		b.at = number + b.ahead
		b.offer = proposal(b.at, b.captured)
		b.word.Store(b.offer)
	case b.rank == 1 && now != 0:
		at := now >> 24
		if now == proposal(at, b.captured) && number < at && b.word.CompareAndSwap(now, now|agreed) {
			b.at = at
		}
	}
	return false
}

// passed counts a call that has been put into a stream.
func (b *settlement) passed(captured bool) {
	switch {
	case !b.open:
	case !captured:
		b.eager++
	default:
		b.withdraw()
		b.captured++
	}
}

// withdraw takes rank 0's proposal back, unless rank 1 has agreed.
func (b *settlement) withdraw() bool {
	if b.rank != 0 || b.at == 0 || !b.word.CompareAndSwap(b.offer, 0) {
		return false
	}
	b.at, b.beside = 0, 0
	return true
}
