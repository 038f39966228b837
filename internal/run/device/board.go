package device

import (
	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// A board is a page of a rank's memory that the others see. There it writes what
// it enqueues, for them to compare when a wait ends badly; and they write there
// that they have left.
const (
	boardCalls  = 0  // collectives enqueued
	boardLeft   = 64 // a word for each rank
	boardSettle = 384
	boardRing   = 512
	boardSlots  = 64
	boardBytes  = 4096
	boardStride = 16
)

type board struct{ mem []byte }

// description is a call without its buffers, as words to be compared.
type description struct{ about, count uint64 }

func describe(call *Call) description {
	count := uint64(call.Count)
	if call.SendCounts != nil {
		count = 1<<64 - 1
	}
	return description{uint64(call.Collective)<<56 | uint64(call.Type)<<48 | uint64(call.Op)<<40 | uint64(uint32(call.Root)), count}
}

func (d description) String() string {
	call := communicator.Call{
		Collective: schedule.Collective(d.about >> 56), Type: dtype.Type(d.about >> 48), Op: dtype.Op(d.about >> 40),
		Root: int(uint32(d.about)), Count: int(d.count),
	}
	if call.Count < 0 {
		call.SendCounts = []int{}
	}
	return call.String()
}

// enter says that this rank enqueues collective number sequence.
func (b board) enter(sequence uint64, d description) {
	at := boardRing + int(sequence%boardSlots)*boardStride
	sys.Publish(sys.Word64(b.mem, at), d.about)
	sys.Publish(sys.Word64(b.mem, at+8), d.count)
	sys.Publish(sys.Word64(b.mem, boardCalls), sequence)
}

// entered is the last collective that the rank has enqueued.
func (b board) entered() uint64 { return sys.Word64(b.mem, boardCalls).Load() }

// described is what the rank said of a collective, if that is still there.
func (b board) described(sequence uint64) (description, bool) {
	if sequence == 0 || b.entered() < sequence {
		return description{}, false
	}
	at := boardRing + int(sequence%boardSlots)*boardStride
	d := description{sys.Word64(b.mem, at).Load(), sys.Word64(b.mem, at+8).Load()}
	return d, b.entered() < sequence+boardSlots-1
}

// leave says on the board of another that rank writes to its memory no more.
func (b board) leave(rank int) { sys.Word64(b.mem, boardLeft+8*rank).Store(1) }

// left reports whether another has said so.
func (b board) left(rank int) bool { return sys.Word64(b.mem, boardLeft+8*rank).Load() != 0 }
