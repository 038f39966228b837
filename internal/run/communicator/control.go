package communicator

import (
	"sync/atomic"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// The control block at the start of a window. Its owner writes it; the others
// read it only when they have waited long enough to wonder why.
const (
	controlState     = 0   // one of the states
	controlEntered   = 8   // sequence of the last collective begun
	controlCompleted = 16  // sequence of the last collective completed
	controlBell      = 64  // the owner's bell, alone in its line
	controlFailure   = 128 // code, length, text
	failureText      = 1920
	controlCalls     = 2048 // ring of descriptions of the last calls
	callRing         = 64
	callBytes        = 16
	controlBytes     = controlCalls + callRing*callBytes
)

// States of a rank in a communicator.
const (
	stateUp = iota
	stateClosed
	stateFailed
)

type control struct {
	mem                       []byte
	state, entered, completed *atomic.Uint64
	bell                      channel.Bell
	calls                     *[callRing]callWords
}

// callWords describe one call.
type callWords struct{ about, count *atomic.Uint64 }

func controlOf(window []byte) control {
	calls := new([callRing]callWords)
	for i := range calls {
		at := controlCalls + i*callBytes
		calls[i] = callWords{sys.Word64(window, at), sys.Word64(window, at+8)}
	}
	return control{
		calls:     calls,
		mem:       window[:controlBytes],
		state:     sys.Word64(window, controlState),
		entered:   sys.Word64(window, controlEntered),
		completed: sys.Word64(window, controlCompleted),
		bell:      channel.NewBell(window, controlBell),
	}
}

// fail publishes why this rank's communicator failed; the first reason stays.
func (c *control) fail(e *Error) {
	if c.state.Load() == stateFailed {
		return
	}
	n := copy(c.mem[controlFailure+8:controlFailure+failureText], e.Text)
	sys.Word64(c.mem, controlFailure).Store(uint64(e.Code)<<32 | uint64(n))
	c.state.Store(stateFailed)
}

// failure reads a peer's reason; state must have been seen as stateFailed.
func (c *control) failure() *Error {
	about := sys.Word64(c.mem, controlFailure).Load()
	n := min(int(uint32(about)), failureText-8)
	code := Code(about >> 32)
	if !code.valid() {
		code = System
	}
	return &Error{code, string(c.mem[controlFailure+8 : controlFailure+8+n])}
}

// description is what a rank says about a collective that it has entered, for
// its peers to compare.
type description struct {
	collective schedule.Collective
	typ        dtype.Type
	op         dtype.Op
	root       int
	count      int // elements, -1 where they differ from rank to rank
}

// about is all of a description but the count, in a word.
func (d *description) about() uint64 {
	return uint64(d.collective)<<56 | uint64(d.typ)<<48 | uint64(d.op)<<40 | uint64(uint32(d.root))
}

// describe publishes the description of collective number sequence. The place is
// another's until entered says so: see described.
func (c *control) describe(sequence, about uint64, count int) {
	call := &c.calls[sequence%callRing]
	sys.Publish(call.about, about)
	sys.Publish(call.count, uint64(count))
	sys.Publish(c.entered, sequence)
}

// described reads what a peer said about collective number sequence, if that is
// still there: from call number sequence + callRing on, which may be on its way
// before entered shows it, the place holds another.
func (c *control) described(sequence uint64) (description, bool) {
	if sequence == 0 || c.entered.Load() < sequence {
		return description{}, false
	}
	call := &c.calls[sequence%callRing]
	about, count := call.about.Load(), call.count.Load()
	d := description{
		collective: schedule.Collective(about >> 56),
		typ:        dtype.Type(about >> 48),
		op:         dtype.Op(about >> 40),
		root:       int(uint32(about)),
		count:      int(count),
	}
	return d, c.entered.Load() < sequence+callRing-1
}
