// Package channel is a one-way stream of messages from one rank to one reader,
// or to several that each read all of it, over windows. Protocols differ in how
// a message is laid out in a slot; they share the accounting of slots and the
// bell that wakes a sleeper.
//
// Data lies in the reader's window (in the writer's own where there are several
// readers), acknowledgements in the writer's: everybody polls near memory.
package channel

import (
	"math/bits"
	"sync/atomic"
	"time"

	"ringlane/internal/hardware/sys"
)

// Slots is the number of messages that a channel holds before its writer has to
// wait for an acknowledgement.
const Slots = 4

// Writer is the sending end. Only one goroutine at a time may use it.
type Writer interface {
	// Reserve returns room for a message of n bytes, or false while all slots
	// hold messages that a reader has not released. Reserving again before
	// Commit returns the same room. n must not exceed the slot size.
	Reserve(n int) ([]byte, bool)
	// Commit publishes the reserved message with a tag. Its readers are woken by the
	// next Ring of the Waker.
	Commit(tag uint32)
	// Ahead fetches the lines for a message as long as the last one, if there is room for
	// it and that is of use. It is for who waits now anyway.
	Ahead()
	// Drained reports whether every reader has released every message.
	Drained() bool
}

// Reader is the receiving end. Only one goroutine at a time may use it.
type Reader interface {
	// Peek returns the next message and its tag, or false while it has not
	// arrived whole. The bytes stay valid until Release.
	Peek() (message []byte, tag uint32, ok bool)
	// Release gives the slot of the peeked message back. Its writer is woken by the
	// next Ring of the Waker.
	Release()
}

// Asker is a Writer whose reader may answer a message: with what it leaves in the slot,
// in the place of the message, before it releases that. So the lines that brought the
// message take the answer back, and neither end has to fetch others before it writes.
type Asker interface {
	Writer
	// Invite is Reserve for a message that is to be answered.
	Invite(n int) ([]byte, bool)
	// Ask is Commit of a message that is to be answered. Its slot is free again when
	// the answer has been taken.
	Ask(tag uint32)
	// Answer returns the n bytes of the oldest answer that has not been taken, or false
	// while it is not there. They stay valid until Taken.
	Answer(n int) ([]byte, bool)
	// Answered reports whether Answer returns one.
	Answered() bool
	// Taken gives the slot of the answer back.
	Taken()
}

// Answerer is the reading end of an Asker.
type Answerer interface {
	Reader
	// Arrived reports whether Peek returns a message.
	Arrived() bool
	// Room returns where n bytes of an answer to the peeked message belong, which may
	// be where the message is. Release sends them.
	Room(n int) []byte
}

// Bell lets one party sleep until another has something for it. It is 8 bytes
// of a window: a futex word that counts rings, and whether the owner sleeps.
//
// Ringing costs one load while the owner is awake. It relies on a sequentially
// consistent store between what it is rung for and itself (a Waker has one), and
// on the owner looking for work between Doze and Sleep: either the ringer sees
// the owner asleep, or the owner sees what the ringer stored.
type Bell struct{ rings, asleep *atomic.Uint32 }

// NewBell uses the 8 bytes at off of a window.
func NewBell(mem []byte, off int) Bell {
	return Bell{sys.Word32(mem, off), sys.Word32(mem, off+4)}
}

// Ring wakes the owner if it sleeps.
func (b Bell) Ring() {
	if b.asleep.Load() != 0 {
		b.rings.Add(1)
		sys.FutexWake(b.rings)
	}
}

// Doze announces that the owner is about to sleep, and returns the ticket for
// Sleep. The owner must look for work once more before it sleeps.
func (b Bell) Doze() (ticket uint32) {
	ticket = b.rings.Load()
	b.asleep.Store(1)
	return ticket
}

// Sleep waits until the bell rings, at most for limit.
func (b Bell) Sleep(ticket uint32, limit time.Duration) { sys.FutexWait(b.rings, ticket, limit) }

// Awake takes Doze back.
func (b Bell) Awake() { b.asleep.Store(0) }

// Credit is the writer's view of its readers' acknowledgements.
type Credit struct {
	acks []*atomic.Uint64 // in the writer's window, a cache line each
	seen uint64           // every reader has released this many
}

// NewCredit takes one acknowledgement word a reader.
func NewCredit(acks []*atomic.Uint64) Credit { return Credit{acks: acks} }

// Free reports whether message number n (from 0) may be written. The readers'
// lines are looked at only when the last known count does not suffice, so once
// in Slots messages.
func (c *Credit) Free(n uint64) bool {
	return n-c.seen < Slots || n-c.look(n) < Slots
}

// Drained reports whether all of the first n messages have been released.
func (c *Credit) Drained(n uint64) bool { return c.seen == n || c.look(n) == n }

// Released reports whether message number n (from 0) of sent ones has been released.
func (c *Credit) Released(n, sent uint64) bool { return c.seen > n || c.look(sent) > n }

// look reads the acknowledgements of n messages.
func (c *Credit) look(n uint64) uint64 {
	least := n
	for _, a := range c.acks {
		least = min(least, a.Load())
	}
	c.seen = least
	return least
}

// Waker rings bells for the channels of one party. On x86 the store before a ring waits
// until all earlier ones are done, each for a line that another core has; so messages to
// several readers, or acknowledgements to several writers, share one, and their lines come
// at the same time.
type Waker struct {
	bells []Bell
	due   uint64 // bits for bells to be rung
	fence atomic.Uint64
}

// NewWaker takes up to 64 bells.
func NewWaker(bells []Bell) *Waker { return &Waker{bells: bells} }

// Owe notes that something was published for the owners of the bells that who has bits for.
func (w *Waker) Owe(who uint64) { w.due |= who }

// Ring wakes those owed that sleep. It must follow what was published before the party
// itself waits.
func (w *Waker) Ring() {
	if w.due == 0 {
		return
	}
	w.fence.Store(w.due)
	w.Glance()
	w.due = 0
}

// Glance wakes those owed that have been asleep for a while. Who is just going to sleep
// may miss what was published, until the next Ring: they stay owed.
func (w *Waker) Glance() {
	for due := w.due; due != 0; due &= due - 1 {
		b := w.bells[bits.TrailingZeros64(due)]
		b.Ring()
	}
}
