package ll

import (
	"bytes"
	"sync/atomic"
	"testing"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/sys"
)

// startAt is a channel whose counters stand at message number first, as after
// that many messages.
func startAt(payload int, first uint64) (*writer, *reader, []byte) {
	mem := make([]byte, Bytes(payload))
	ack := new(atomic.Uint64)
	ack.Store(first)
	waker := func() *channel.Waker { return channel.NewWaker([]channel.Bell{channel.NewBell(make([]byte, 8), 0)}) }
	return newWriter(mem, payload, []*atomic.Uint64{ack}, waker(), 1, first), newReader(mem, payload, ack, waker(), 1, first), mem
}

// Flags wrap after 2^32-1 messages; none is the zero of fresh memory.
func TestFlagsWrap(t *testing.T) {
	const wrap = 1<<32 - 1
	for _, lap := range []uint64{wrap, 5 * wrap, 1 << 32, 1 << 33} {
		w, r, _ := startAt(64, lap-20)
		for i := range 40 {
			if _, _, ok := r.Peek(); ok {
				t.Fatalf("message %d before the wrap at %d is there before it was sent", 20-i, lap)
			}
			room, ok := w.Reserve(9)
			if !ok {
				t.Fatal("no room")
			}
			copy(room, "123456789")
			w.Commit(uint32(i))
			got, tag, ok := r.Peek()
			if !ok || tag != uint32(i) || string(got) != "123456789" {
				t.Fatalf("%d messages before the wrap at %d: %q, %v", 20-i, lap, got, ok)
			}
			r.Release()
		}
	}
	if flagOf(0) == 0 || flagOf(wrap-1) == 0 || flagOf(wrap) != flagOf(0) {
		t.Error("flags are not 1 to 2^32-1")
	}
}

// A flag of an earlier lap in words that short messages leave alone must be
// gone before its number comes round again.
func TestOldFlagsAreScrubbed(t *testing.T) {
	first := uint64(scrubEvery*channel.Slots - channel.Slots)
	w, r, mem := startAt(64, first)
	send := func(n int) {
		room, _ := w.Reserve(n)
		copy(room, bytes.Repeat([]byte{7}, n))
		w.Commit(0)
		r.Peek()
		r.Release()
	}
	for range channel.Slots {
		send(64) // leaves flags in every word of every slot
	}
	for range channel.Slots {
		send(4)
	}
	for s, slot := range slots(mem, 64) {
		for i := preamble + 1; i < len(slot); i++ {
			if slot[i] != 0 {
				t.Fatalf("word %d of slot %d still carries flag %d", i, s, slot[i]>>32)
			}
		}
	}
}

// The words of a message become visible in any order, and a writer may die
// halfway: the reader goes on where it was.
func TestWordsInAnyOrder(t *testing.T) {
	const payload = 40
	w, r, mem := startAt(payload, 0)
	room, _ := w.Reserve(payload)
	for i := range room {
		room[i] = byte(i)
	}
	w.Commit(77)
	words := sys.Words64(mem)
	whole := append([]uint64{}, words...)
	n := preamble + payload/4
	for last := range n {
		clear(words)
		r.at = 0
		for i := range n {
			if i != last {
				words[i] = whole[i]
			}
			if _, _, ok := r.Peek(); ok {
				t.Fatalf("the message is there without word %d", last)
			}
		}
		words[last] = whole[last]
		got, tag, ok := r.Peek()
		if !ok || tag != 77 || got[5] != 5 || got[payload-1] != payload-1 {
			t.Fatalf("word %d last: %v, tag %d, %v", last, ok, tag, got)
		}
	}
}
