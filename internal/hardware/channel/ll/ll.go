// Package ll is the protocol for small messages: every 8-byte word of a slot
// carries 4 bytes of data and a 4-byte flag, stored at once. The reader waits
// for the flag in each word, so data needs no store of its own to announce it,
// and the words may become visible in any order.
//
// It assumes that an aligned 8-byte store is atomic, and nothing about order.
// The flag is the message number modulo 2^32-1, plus one: never the zero of
// fresh memory. A slot's words that a short message leaves alone keep older
// flags; long before one of them could come round again the writer clears the
// slot (see scrubEvery).
package ll

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/sys"
)

// preamble is the number of words before the data: the tag, then the length.
const preamble = 2

// scrubEvery is the number of uses of a slot after which its writer clears it.
// Flags repeat after 2^32-1 messages, so after 2^30 uses of a slot at the
// soonest; clearing once in 2^28 keeps every word far younger than that.
const scrubEvery = 1 << 28

// Bytes is the window memory that a channel with slots for payload bytes needs.
func Bytes(payload int) int { return channel.Slots * stride(payload) }

func flagOf(message uint64) uint32 { return uint32(message%(1<<32-1)) + 1 }

// stride is rounded to cache lines, so that slots do not share one.
func stride(payload int) int { return (8*(preamble+(payload+3)/4) + 63) / 64 * 64 }

func slots(mem []byte, payload int) (s [channel.Slots][]uint64) {
	words := sys.Words64(mem)
	n := stride(payload) / 8
	for i := range s {
		s[i] = words[i*n : (i+1)*n : (i+1)*n]
	}
	return s
}

type writer struct {
	slots    [channel.Slots][]uint64
	scratch  []byte // the message until Commit spreads it over the slot
	payload  int
	sent     uint64
	reserved int
	fence    atomic.Uint64
	credit   channel.Credit
	waker    *channel.Waker
	readers  uint64
}

// NewWriter is the sending end over mem, with one acknowledgement word a reader. Readers
// are the bits of their bells in the writer's waker.
func NewWriter(mem []byte, payload int, acks []*atomic.Uint64, waker *channel.Waker, readers uint64) channel.Writer {
	return newWriter(mem, payload, acks, waker, readers, 0)
}

// newWriter starts at message number first, so that tests reach the wrap.
func newWriter(mem []byte, payload int, acks []*atomic.Uint64, waker *channel.Waker, readers, first uint64) *writer {
	w := &writer{
		slots:   slots(mem, payload),
		scratch: make([]byte, (payload+3)/4*4),
		payload: payload,
		sent:    first,
		credit:  channel.NewCredit(acks),
		waker:   waker,
		readers: readers,
	}
	return w
}

func (w *writer) Reserve(n int) ([]byte, bool) {
	if !w.credit.Free(w.sent) {
		return nil, false
	}
	if n > w.payload {
		panic(fmt.Sprintf("ll: message of %d bytes in slots of %d", n, w.payload))
	}
	w.reserved = n
	return w.scratch[:n], true
}

func (w *writer) Commit(tag uint32) {
	slot := w.slots[w.sent%channel.Slots]
	if use := w.sent / channel.Slots; use > 0 && use%scrubEvery == 0 {
		clear(slot)
	}
	flag := uint64(flagOf(w.sent)) << 32
	w.sent++
	slot[0] = flag | uint64(tag)
	slot[1] = flag | uint64(uint32(w.reserved))
	data := w.scratch[:(w.reserved+3)/4*4]
	words := slot[preamble : preamble+len(data)/4]
	for i := range words {
		words[i] = flag | uint64(binary.LittleEndian.Uint32(data[4*i:]))
	}
	// A slot that was cleared must be so before the next message; the words
	// themselves need no order.
	w.fence.Store(w.sent)
	w.waker.Owe(w.readers)
}

// Ahead does nothing: flags among the data are written with it.
func (w *writer) Ahead() {}

func (w *writer) Drained() bool { return w.credit.Drained(w.sent) }

type reader struct {
	slots    [channel.Slots][]uint64
	scratch  []byte
	received uint64
	at       int // words of the current message that have been taken over
	length   int
	tag      uint32
	ack      *atomic.Uint64
	waker    *channel.Waker
	writer   uint64
}

// NewReader is the receiving end over mem; ack is this reader's word in the writer's window,
// and writer the bit of its bell in the reader's waker.
func NewReader(mem []byte, payload int, ack *atomic.Uint64, waker *channel.Waker, writer uint64) channel.Reader {
	return newReader(mem, payload, ack, waker, writer, 0)
}

func newReader(mem []byte, payload int, ack *atomic.Uint64, waker *channel.Waker, writer, first uint64) *reader {
	return &reader{
		slots:    slots(mem, payload),
		scratch:  make([]byte, (payload+3)/4*4),
		received: first,
		ack:      ack,
		waker:    waker,
		writer:   writer,
	}
}

// Peek takes over the words that have arrived, and goes on there next time: a
// writer that is halfway through, or died there, holds nobody up.
func (r *reader) Peek() ([]byte, uint32, bool) {
	slot := r.slots[r.received%channel.Slots]
	flag := flagOf(r.received)
	for r.at < preamble {
		word, ok := load(slot, r.at, flag)
		if !ok {
			return nil, 0, false
		}
		if r.at == 0 {
			r.tag = word
		} else {
			// The length comes from another process: never trust it with our bounds.
			r.length = min(int(word), len(r.scratch))
		}
		r.at++
	}
	for end := preamble + (r.length+3)/4; r.at < end; r.at++ {
		word, ok := load(slot, r.at, flag)
		if !ok {
			return nil, 0, false
		}
		binary.LittleEndian.PutUint32(r.scratch[4*(r.at-preamble):], word)
	}
	return r.scratch[:r.length], r.tag, true
}

func (r *reader) Release() {
	r.received++
	r.at = 0
	r.ack.Store(r.received)
	r.waker.Owe(r.writer)
}
