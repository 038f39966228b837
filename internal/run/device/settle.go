package device

import (
	"sync/atomic"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/logic/collective"
)

// settlement is how two ranks that meet in host memory come to let copy engines carry
// long calls. Beside other work that is better, and by itself a little worse
// (collective.EngineLayout); but it must be the same on both ranks, and what a call
// runs beside each knows of its own stream alone. So they settle it once, for all
// calls from a number on, in a word that both see: rank 0 proposes a number that is a
// while ahead, and rank 1 agrees, if it has not come so far. Until either has captured
// a call both count the same.
//
// The zero value settles nothing.
type settlement struct {
	open   bool // something may still be settled
	rank   int
	word   *atomic.Uint64
	least  int    // bytes of a call that counts
	beside int    // such calls so far
	ahead  uint64 // how far ahead the next proposal is
	at     uint64 // the number that this rank has proposed or agreed to; 0: none
}

const (
	// settleAfter calls beside other work, rank 0 proposes.
	settleAfter = 8
	leastAhead  = 32
	mostAhead   = 1 << 14
)

// Values of the word: 0 is nothing, refused for ever, else a number and whether rank 1
// has agreed to it.
const refused = 1

func proposed(at uint64) uint64 { return at<<2 | 2 }
func agreed(at uint64) uint64   { return at<<2 | 3 }

func newSettlement(rank int, b board) settlement {
	return settlement{
		open: true, rank: rank, word: sys.Word64(b.mem, boardSettle),
		least: collective.EngineLeast, ahead: leastAhead,
	}
}

// settleEngines looks at the word before a call gets its plan. The caller holds d.mu.
func (d *Comm) settleEngines(call *Call, s cuda.Stream) {
	b := &d.settlement
	if d.shares && s == d.beside && call.Count*call.Type.Size() >= b.least {
		b.beside++
	}
	if b.due(d.calls + 1) {
		d.devices.EngineFrom = b.least
		d.forget()
	}
}

// due reports whether engines carry long calls from this number on.
func (b *settlement) due(number uint64) bool {
	now := b.word.Load()
	switch {
	case now == refused:
		b.open = false
	case b.at != 0 && number >= b.at:
		if b.rank == 0 && b.word.CompareAndSwap(proposed(b.at), 0) {
			// Rank 1 was further by then, or has not called since.
			b.at, b.beside, b.ahead = 0, 0, min(2*b.ahead, mostAhead)
			return false
		}
		b.open = false
		return b.word.Load() == agreed(b.at)
	case b.at != 0:
	case b.rank == 0 && b.beside >= settleAfter:
		if at := number + b.ahead; b.word.CompareAndSwap(0, proposed(at)) {
			b.at = at
		}
	case b.rank == 1 && now != 0:
		if at := now >> 2; now == proposed(at) && number < at && b.word.CompareAndSwap(now, agreed(at)) {
			b.at = at
		}
	}
	return false
}

// refuse settles that nothing will be: a captured call runs at any time, so that
// numbers say no more what runs when. What is agreed on stays.
func (b *settlement) refuse() {
	if !b.open {
		return
	}
	for now := b.word.Load(); now&3 != 3; now = b.word.Load() {
		if b.word.CompareAndSwap(now, refused) {
			break
		}
	}
}
