// Package simple is the protocol in which a slot holds a header and then the
// bytes, and the header's sequence number is stored last. What fits the rest of
// the header's cache line lies there, so that a small message costs its reader
// one line; longer data begins on the next.
//
// It assumes that the sequence number is stored and loaded as one 8-byte atomic
// with release and acquire order: every byte before the store is visible after
// the load (x86 TSO gives it to plain moves, arm64 needs STLR and LDAR; Go's
// atomics are both). Over a path that reorders posted writes it does not hold.
package simple

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/sys"
)

const (
	line   = 64
	header = 16            // sequence number; tag, place and length
	inline = line - header // bytes that travel in the header's line

	// A message begins at a multiple of unit, of which a header has room for 256, and is
	// shorter than 16 MiB.
	unit       = 4 << 10
	lengthBits = 24

	// fetched is up to which size the lines of a message are fetched before it is written:
	// a processor has few of them on the way at once, and as many bytes stay in its first
	// level of cache. More than that no longer comes from the other core's.
	fetched = 16 << 10
)

// Bytes is the window memory that a channel with slots for payload bytes needs.
func Bytes(payload int) int { return channel.Slots * stride(payload) }

func stride(payload int) int { return line + (payload+line-1)/line*line }

type slot struct {
	sequence *atomic.Uint64 // number of the message in it, from 1
	about    *uint64        // tag<<32 | place<<24 | length
	line     []byte         // all of the above and the following
	short    []byte         // the message if it has up to inline bytes
	long     []byte         // the message if it has more
}

func (s *slot) data(at, n int) []byte {
	if n <= inline {
		return s.short[:n]
	}
	return s.long[at : at+n]
}

func slots(mem []byte, payload int) (s [channel.Slots]slot) {
	for i := range s {
		at := i * stride(payload)
		s[i] = slot{
			sequence: sys.Word64(mem, at),
			about:    &sys.Words64(mem[at+8 : at+header])[0],
			line:     mem[at : at+line : at+line],
			short:    mem[at+header : at+line : at+line],
			long:     mem[at+line : at+line+payload : at+line+payload],
		}
	}
	return s
}

type writer struct {
	slots    [channel.Slots]slot
	sent     uint64
	asked    uint64 // of the last messages sent, those whose answers have not been taken
	reserved int
	at       int // of what is reserved in its slot
	spread   int
	credit   channel.Credit
	waker    *channel.Waker
	readers  uint64
}

// NewWriter is the sending end over mem, with one acknowledgement word a reader. Readers
// are the bits of their bells in the writer's waker. Messages of 4 KiB and more go through
// the first spread bytes of a slot, a power of two up to 1 MiB, before they come to the same
// place again; 0: they all begin with the slot.
func NewWriter(mem []byte, payload, spread int, acks []*atomic.Uint64, waker *channel.Waker, readers uint64) channel.Asker {
	for spread > payload {
		spread /= 2
	}
	return &writer{slots: slots(mem, payload), spread: max(spread, 1), credit: channel.NewCredit(acks), waker: waker, readers: readers}
}

func (w *writer) Reserve(n int) ([]byte, bool) {
	room, ok := w.reserve(w.place(n), n)
	if ok && n <= fetched {
		sys.Fetch(room)
	}
	return room, ok
}

// place is where the next message of n bytes begins in its slot.
func (w *writer) place(n int) int {
	if n < unit {
		return 0
	}
	return int(w.sent/channel.Slots) << bits.Len(uint(n-1)) & (w.spread - 1)
}

func (w *writer) Ahead() {
	if n := w.reserved; n > inline && n <= fetched && sys.Fetches() && w.credit.Free(w.sent) {
		sys.Fetch(w.slots[w.sent%channel.Slots].data(w.place(n), n))
	}
}

func (w *writer) Invite(n int) ([]byte, bool) { return w.reserve(0, n) }

func (w *writer) reserve(at, n int) ([]byte, bool) {
	if w.asked == channel.Slots || !w.credit.Free(w.sent) {
		return nil, false
	}
	s := &w.slots[w.sent%channel.Slots]
	if n > len(s.long) {
		panic(fmt.Sprintf("simple: message of %d bytes in slots of %d", n, len(s.long)))
	}
	w.at, w.reserved = at, n
	return s.data(at, n), true
}

func (w *writer) Commit(tag uint32) {
	s := &w.slots[w.sent%channel.Slots]
	w.sent++
	*s.about = uint64(tag)<<32 | uint64(w.at/unit)<<lengthBits | uint64(w.reserved)
	sys.Publish(s.sequence, w.sent)
	w.waker.Owe(w.readers)
}

func (w *writer) Ask(tag uint32) {
	w.Commit(tag)
	w.asked++
}

func (w *writer) Answer(n int) ([]byte, bool) {
	if !w.Answered() {
		return nil, false
	}
	return w.slots[(w.sent-w.asked)%channel.Slots].data(0, n), true
}

func (w *writer) Answered() bool { return w.credit.Released(w.sent-w.asked, w.sent) }

func (w *writer) Taken() { w.asked-- }

func (w *writer) Drained() bool { return w.credit.Drained(w.sent) }

type reader struct {
	slots    [channel.Slots]slot
	received uint64
	ack      *atomic.Uint64
	waker    *channel.Waker
	writer   uint64
	alone    bool // nobody else reads
}

// NewReader is the receiving end over mem; ack is this reader's word in the writer's window,
// and writer the bit of its bell in the reader's waker. Alone says that there is no other
// reader.
func NewReader(mem []byte, payload int, ack *atomic.Uint64, waker *channel.Waker, writer uint64, alone bool) channel.Answerer {
	return &reader{slots: slots(mem, payload), ack: ack, waker: waker, writer: writer, alone: alone}
}

func (r *reader) Arrived() bool {
	s := &r.slots[r.received%channel.Slots]
	return s.sequence.Load() == r.received+1
}

func (r *reader) Peek() ([]byte, uint32, bool) {
	s := &r.slots[r.received%channel.Slots]
	if s.sequence.Load() != r.received+1 {
		return nil, 0, false
	}
	about := *s.about
	// Length and place come from another process: never trust them with our bounds.
	n := min(int(about&(1<<lengthBits-1)), len(s.long))
	place := int(uint32(about) >> lengthBits)
	if place == 0 { // so the processor reads on at a place that it knows, while the header is on its way
		return s.data(0, n), uint32(about >> 32), true
	}
	return s.data(min(place*unit, len(s.long)-n), n), uint32(about >> 32), true
}

func (r *reader) Room(n int) []byte { return r.slots[r.received%channel.Slots].data(0, n) }

func (r *reader) Release() {
	line := r.slots[r.received%channel.Slots].line
	r.received++
	sys.Publish(r.ack, r.received)
	r.waker.Owe(r.writer)
	if r.alone {
		sys.Claim(line) // the writer is the next to write to it; others would take it from each other
	}
}
