package channel_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/channel/ll"
	"ringlane/internal/hardware/channel/simple"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/hardware/window/shm"
)

// spread is over how much of a slot the messages of simple take turns here.
const spread = 64 << 10

var protocols = map[string]struct {
	bytes  func(payload int) int
	writer func(mem []byte, payload int, acks []*atomic.Uint64, waker *channel.Waker, readers uint64) channel.Writer
	reader func(mem []byte, payload int, ack *atomic.Uint64, waker *channel.Waker, writer uint64) channel.Reader
}{
	"ll": {ll.Bytes, ll.NewWriter, ll.NewReader},
	"simple": {
		simple.Bytes,
		func(mem []byte, payload int, acks []*atomic.Uint64, waker *channel.Waker, readers uint64) channel.Writer {
			return simple.NewWriter(mem, payload, spread, acks, waker, readers)
		},
		func(mem []byte, payload int, ack *atomic.Uint64, waker *channel.Waker, writer uint64) channel.Reader {
			return simple.NewReader(mem, payload, ack, waker, writer, true)
		},
	},
}

// pipe is a channel with several readers over a real window, between guards
// that nothing may touch.
type pipe struct {
	writer  channel.Writer
	readers []channel.Reader
	bells   []channel.Bell   // of the readers, then of the writer
	waker   *channel.Waker   // of the readers
	wakers  []*channel.Waker // of the writer, by reader
	guards  [][]byte
}

func newPipe(t *testing.T, protocol string, payload, readers int) *pipe {
	t.Helper()
	const guard, line = 4096, 64
	p := protocols[protocol]
	size := p.bytes(payload)
	w, err := shm.Create("channel test", guard+size+guard+(2*readers+1)*line, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	control := w.Bytes[guard+size+guard:]
	pp := &pipe{guards: [][]byte{w.Bytes[:guard], w.Bytes[guard+size : guard+size+guard]}}
	for _, g := range pp.guards {
		for i := range g {
			g[i] = 0xa5
		}
	}
	var acks []*atomic.Uint64
	for i := range readers + 1 {
		pp.bells = append(pp.bells, channel.NewBell(control, i*line))
	}
	for i := range readers {
		ack := sys.Word64(control, (readers+1+i)*line)
		acks = append(acks, ack)
		pp.wakers = append(pp.wakers, channel.NewWaker(pp.bells[readers:]))
		pp.readers = append(pp.readers, p.reader(w.Bytes[guard:guard+size], payload, ack, pp.wakers[i], 1))
	}
	pp.waker = channel.NewWaker(pp.bells[:readers])
	pp.writer = p.writer(w.Bytes[guard:guard+size], payload, acks, pp.waker, 1<<readers-1)
	t.Cleanup(func() {
		for _, g := range pp.guards {
			if !bytes.Equal(g, bytes.Repeat([]byte{0xa5}, guard)) {
				t.Error("memory beside the channel was written")
			}
		}
	})
	return pp
}

func each(t *testing.T, body func(t *testing.T, protocol string)) {
	for name := range protocols {
		t.Run(name, func(t *testing.T) { body(t, name) })
	}
}

func fill(b []byte, seed uint64) {
	for i := range b {
		b[i] = byte(seed*31 + uint64(i)*7 + seed>>3)
	}
}

func TestEveryLengthArrives(t *testing.T) {
	each(t, func(t *testing.T, protocol string) {
		const payload = 300
		p := newPipe(t, protocol, payload, 1)
		want := make([]byte, payload)
		for n := range payload + 1 {
			room, ok := p.writer.Reserve(n)
			if !ok || len(room) != n {
				t.Fatalf("no room for %d bytes", n)
			}
			fill(want[:n], uint64(n))
			copy(room, want[:n])
			if _, _, ok := p.readers[0].Peek(); ok {
				t.Fatal("a message is there before Commit")
			}
			p.writer.Commit(uint32(n * 3))
			p.writer.Ahead()
			for range 2 { // Peek may be repeated
				got, tag, ok := p.readers[0].Peek()
				if !ok || tag != uint32(n*3) || !bytes.Equal(got, want[:n]) {
					t.Fatalf("message of %d bytes: %v, tag %d, %d bytes", n, ok, tag, len(got))
				}
			}
			p.readers[0].Release()
		}
	})
}

// A slot comes free only when the slowest reader has released it.
func TestWriterWaitsForEveryReader(t *testing.T) {
	each(t, func(t *testing.T, protocol string) {
		p := newPipe(t, protocol, 64, 2)
		for i := range channel.Slots {
			if _, ok := p.writer.Reserve(4); !ok {
				t.Fatalf("no room for message %d of %d", i, channel.Slots)
			}
			p.writer.Commit(0)
			p.writer.Ahead()
		}
		for _, r := range p.readers {
			if _, ok := p.writer.Reserve(4); ok {
				t.Fatal("room while a reader still needs the slot")
			}
			if _, _, ok := r.Peek(); !ok {
				t.Fatal("the first message is not there")
			}
			r.Release()
		}
		if _, ok := p.writer.Reserve(4); !ok {
			t.Fatal("no room after every reader has released a slot")
		}
	})
}

func TestStream(t *testing.T) {
	each(t, func(t *testing.T, protocol string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		const payload, messages, readers = 200, 20000, 3
		p := newPipe(t, protocol, payload, readers)
		length := func(i int) int { return int(seed>>7+uint64(i)*2654435761) % (payload + 1) }
		errs := make(chan error, readers)
		for k, r := range p.readers {
			go func() {
				want := make([]byte, payload)
				for i := range messages {
					got, tag, ok := r.Peek()
					for polls := 0; !ok; polls++ {
						if polls%100 == 99 { // and let the bell be used in between
							ticket := p.bells[k].Doze()
							if got, tag, ok = r.Peek(); !ok {
								p.bells[k].Sleep(ticket, time.Second)
							}
							p.bells[k].Awake()
							continue
						}
						runtime.Gosched()
						got, tag, ok = r.Peek()
					}
					n := length(i)
					fill(want[:n], uint64(i))
					if tag != uint32(i) || !bytes.Equal(got, want[:n]) {
						errs <- fmt.Errorf("reader %d, message %d is wrong", k, i)
						return
					}
					r.Release()
					p.wakers[k].Ring()
				}
				errs <- nil
			}()
		}
		for i := range messages {
			room, ok := p.writer.Reserve(length(i))
			for !ok {
				runtime.Gosched()
				room, ok = p.writer.Reserve(length(i))
			}
			fill(room, uint64(i))
			p.writer.Commit(uint32(i))
			p.writer.Ahead()
			p.waker.Ring()
		}
		for range readers {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// Long messages take turns in their slots, and come back to where they began. Those that
// are to be answered stay where the answer is looked for.
func TestSpread(t *testing.T) {
	for _, test := range []struct{ payload, length, places int }{
		{256 << 10, 100, 1}, {256 << 10, 4<<10 - 1, 1}, {256 << 10, 4 << 10, 16}, {256 << 10, 5000, 8}, {256 << 10, 32 << 10, 2},
		{256 << 10, 33 << 10, 1}, {256 << 10, 256 << 10, 1}, {40000, 5000, 4}, {40000, 40000, 1}, {5000, 5000, 1},
	} {
		p := newPipe(t, "simple", test.payload, 1)
		w, r := p.writer.(channel.Asker), p.readers[0].(channel.Answerer)
		want, places := make([]byte, test.length), map[*byte]bool{}
		for i := range 2 * channel.Slots * 16 {
			room, ok := w.Reserve(test.length)
			if !ok {
				t.Fatalf("%+v: no room for message %d", test, i)
			}
			if fill(want, uint64(i)); i%3 == 2 {
				if room, ok = w.Invite(test.length); !ok {
					t.Fatalf("%+v: no room for message %d to be answered", test, i)
				}
				copy(room, want)
				w.Ask(uint32(i))
			} else {
				places[&room[0]] = true
				copy(room, want)
				w.Commit(uint32(i))
			}
			got, tag, ok := r.Peek()
			if !ok || tag != uint32(i) || !bytes.Equal(got, want) {
				t.Fatalf("%+v: message %d: %v, tag %d, %d bytes", test, i, ok, tag, len(got))
			}
			if i%3 == 2 {
				fill(r.Room(test.length), uint64(i+1))
				fill(want, uint64(i+1))
			}
			r.Release()
			if i%3 == 2 {
				if got, ok := w.Answer(test.length); !ok || !bytes.Equal(got, want) {
					t.Fatalf("%+v: the answer to message %d is wrong", test, i)
				}
				w.Taken()
			}
		}
		if len(places) != test.places*channel.Slots {
			t.Errorf("%+v: messages have been in %d places of %d slots", test, len(places), channel.Slots)
		}
	}
}

// What another process writes into a header leads nowhere out of the slot.
func TestHeaderIsNotTrusted(t *testing.T) {
	const payload = 5000
	mem := make([]byte, simple.Bytes(payload))
	r := simple.NewReader(mem, payload, new(atomic.Uint64), channel.NewWaker(nil), 0, true)
	sys.Word64(mem, 0).Store(1)
	for _, about := range []uint64{1<<64 - 1, 1<<32 - 1, 255<<24 | 100, 255<<24 | payload, 1<<24 | payload, 1 << 23} {
		sys.Word64(mem, 8).Store(about)
		got, _, ok := r.Peek()
		if !ok || cap(got) > payload { // what is beyond would have panicked
			t.Errorf("a header %#x: %v, %d bytes", about, ok, len(got))
		}
	}
}

// Answers of every length come in the order of the messages, and a slot is free only
// when its answer has been taken. Messages that are not answered go before and after.
func TestAnswers(t *testing.T) {
	const payload = 300
	p := newPipe(t, "simple", payload, 1)
	w, r := p.writer.(channel.Asker), p.readers[0].(channel.Answerer)
	want := make([]byte, payload)
	send := func(n int, reserve func(n int) ([]byte, bool), commit func(tag uint32)) {
		t.Helper()
		room, ok := reserve(n)
		if !ok {
			t.Fatalf("no room for %d bytes", n)
		}
		fill(room, uint64(n))
		commit(uint32(n))
	}
	receive := func(n int) {
		t.Helper()
		got, tag, ok := r.Peek()
		if fill(want[:n], uint64(n)); !ok || tag != uint32(n) || !bytes.Equal(got, want[:n]) {
			t.Fatalf("message of %d bytes: %v, tag %d, %d bytes", n, ok, tag, len(got))
		}
	}
	for n := 0; n <= payload-channel.Slots; n++ {
		send(n, w.Reserve, w.Commit)
		receive(n)
		r.Release()
		for i := range channel.Slots {
			send(n+i, w.Invite, w.Ask)
		}
		for i := range channel.Slots {
			if _, ok := w.Answer(n + i); ok {
				t.Fatal("an answer is there before Release")
			}
			receive(n + i)
			fill(r.Room(payload-n-i), uint64(n+i+1)) // in the place of the message
			r.Release()
			if _, ok := w.Reserve(1); ok != (i > 0) {
				t.Fatalf("%d answers have been taken, room: %v", i, ok)
			}
			for range 2 { // Answer may be repeated
				got, ok := w.Answer(payload - n - i)
				if fill(want[:payload-n-i], uint64(n+i+1)); !ok || !bytes.Equal(got, want[:payload-n-i]) {
					t.Fatalf("answer of %d bytes: %v, %d bytes", payload-n-i, ok, len(got))
				}
			}
			w.Taken()
		}
	}
}

func TestTooLongAMessagePanics(t *testing.T) {
	each(t, func(t *testing.T, protocol string) {
		p := newPipe(t, protocol, 64, 1)
		defer func() {
			if recover() == nil {
				t.Error("65 bytes fit a slot of 64")
			}
		}()
		p.writer.Reserve(65)
	})
}

// What the other process wrote is not trusted with our bounds.
func TestForgedLength(t *testing.T) {
	each(t, func(t *testing.T, protocol string) {
		const payload = 64
		mem := make([]byte, protocols[protocol].bytes(payload))
		var ack atomic.Uint64
		r := protocols[protocol].reader(mem, payload, &ack, channel.NewWaker(nil), 0)
		if protocol == "simple" {
			binary.LittleEndian.PutUint64(mem[8:], 1<<32-1)
			binary.LittleEndian.PutUint64(mem, 1)
		} else {
			for i := 0; i < len(mem)/channel.Slots; i += 8 {
				binary.LittleEndian.PutUint64(mem[i:], 1<<32|0xffffffff)
			}
		}
		if got, _, ok := r.Peek(); !ok || len(got) > payload {
			t.Errorf("%v, %d bytes", ok, len(got))
		}
	})
}

// A Waker rings the bells of those who are owed, once; a glance leaves them owed.
func TestWaker(t *testing.T) {
	mem := make([]byte, 4*64)
	var bells []channel.Bell
	for i := range 4 {
		bells = append(bells, channel.NewBell(mem, 64*i))
	}
	rings := func() (all [4]uint32) {
		for i := range all {
			all[i] = sys.Word32(mem, 64*i).Load()
		}
		return all
	}
	for _, i := range []int{0, 2, 3} {
		bells[i].Doze()
	}
	w := channel.NewWaker(bells)
	for i, step := range []struct {
		do   func()
		want [4]uint32
	}{
		{w.Ring, [4]uint32{}}, // nobody is owed
		{func() { w.Owe(1 << 0); w.Owe(1<<1 | 1<<3) }, [4]uint32{}},
		{w.Glance, [4]uint32{1, 0, 0, 1}}, // 1 is awake, 2 not owed
		{w.Ring, [4]uint32{2, 0, 0, 2}},
		{w.Ring, [4]uint32{2, 0, 0, 2}},
		{func() { bells[0].Awake(); w.Owe(1 << 0); w.Ring() }, [4]uint32{2, 0, 0, 2}},
	} {
		if step.do(); rings() != step.want {
			t.Fatalf("step %d: %v rings, want %v", i, rings(), step.want)
		}
	}
}

func BenchmarkPingPong(b *testing.B) {
	for name, p := range protocols {
		b.Run(name, func(b *testing.B) {
			const payload = 64
			var ends [2]struct {
				channel.Writer
				channel.Reader
			}
			wakers := [2]*channel.Waker{channel.NewWaker(nil), channel.NewWaker(nil)}
			for i := range ends {
				mem := make([]byte, p.bytes(payload)+64)
				ack := new(atomic.Uint64)
				ends[i].Writer = p.writer(mem, payload, []*atomic.Uint64{ack}, wakers[i], 0)
				ends[1-i].Reader = p.reader(mem, payload, ack, wakers[1-i], 0)
			}
			play := func(i, n int, first bool) {
				for k := range n {
					if !first || k > 0 {
						for _, _, ok := ends[i].Peek(); !ok; _, _, ok = ends[i].Peek() {
							sys.Pause()
						}
						ends[i].Release()
					}
					ends[i].Reserve(8)
					ends[i].Commit(1)
				}
			}
			go play(1, b.N, false)
			play(0, b.N, true)
		})
	}
}
