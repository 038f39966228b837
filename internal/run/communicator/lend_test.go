package communicator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// Every rank draws for itself whether its buffers lie in a window, and whether
// they are one, and spoils its input as soon as its own call is over: no peer
// may still read it.
func TestBuffersInWindows(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		for _, algorithm := range []string{auto, "oneshot", "direct", "ring", "tree"} {
			t.Run(fmt.Sprintf("%d/%s", n, algorithm), func(t *testing.T) {
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				set := func(cfg *Config) { cfg.Algorithm, cfg.Staging = algorithm, 4<<20 }
				together(t, n, set, func(c *Comm) error {
					own := rand.New(rand.NewPCG(seed, uint64(c.rank)+1))
					all := rand.New(rand.NewPCG(seed, 0))
					for _, k := range schedule.Collectives {
						if k == schedule.SendRecv || k == schedule.Barrier {
							continue
						}
						for _, count := range []int{1, answeredFrom/4 + 1, lendFrom/4 + 1, 1000 + all.IntN(5000), 70000 + all.IntN(5000)} {
							call := Call{Collective: k, Type: dtype.I32, Count: count, Root: all.IntN(n), Op: dtype.Sum}
							for _, always := range []bool{true, false} {
								if err := lendAndSpoil(c, call, own, always); err != nil {
									return err
								}
							}
						}
					}
					return nil
				})
			})
		}
	}
}

func lendAndSpoil(c *Comm, call Call, rng *rand.Rand, always bool) error {
	memory := func(elements int) ([]byte, func(), error) {
		if !always && rng.IntN(2) == 0 {
			return make([]byte, 4*elements), func() {}, nil
		}
		skip := 4 * rng.IntN(3)
		b, err := Alloc(4*elements + skip)
		if err != nil {
			return nil, nil, err
		}
		return b[skip:], func() { Free(b) }, nil
	}
	in, out := call.lengths(c.size, c.rank)
	src, freeIn, err := memory(max(in, out))
	if err != nil {
		return err
	}
	defer freeIn()
	dst, freeOut, err := memory(out)
	if err != nil {
		return err
	}
	defer freeOut()
	call.In, call.Out = src[:4*in], dst
	if rng.IntN(2) == 0 {
		whole := Call{Collective: call.Collective, Type: call.Type, Count: call.Count, Root: call.Root, In: src[:4*in], Out: src[:4*out]}
		own := 4 * c.rank * call.Count
		switch call.Collective {
		case schedule.AllGather, schedule.Gather:
			if out > 0 {
				whole.In = src[own:][:4*in]
			}
		case schedule.ReduceScatter, schedule.Scatter:
			if in > 0 {
				whole.Out = src[own:][:4*out]
			}
		}
		if call.Collective != schedule.AllToAll {
			call.In, call.Out = whole.In, whole.Out
		}
	}
	view := reduce.View[int32](call.In)
	for i := range view {
		view[i] = int32(value(c.rank, i))
	}
	if err := c.Do(&call); err != nil {
		return err
	}
	got := append([]int32(nil), reduce.View[int32](call.Out)...)
	for i := range view {
		view[i] = -1
	}
	for i, want := range expectation(call, c.size, c.rank) {
		if got[i] != want {
			return fmt.Errorf("%v on rank %d of %d: element %d is %d, want %d", &call, c.rank, c.size, i, got[i], want)
		}
	}
	return nil
}

// With buffers in windows nothing is staged: what a rank writes to its channels
// is references.
func TestWindowsAreLent(t *testing.T) {
	set := func(cfg *Config) { cfg.Algorithm = "direct" }
	together(t, 2, set, func(c *Comm) error {
		b, err := Alloc(1 << 20)
		if err != nil {
			return err
		}
		defer Free(b)
		if err := c.Do(&Call{Collective: schedule.AllReduce, Count: 1 << 18, In: b, Out: b}); err != nil {
			return err
		}
		slots := c.layout.slots(sharedSimple, [][]byte{c.peers[0].window.Bytes, c.peers[1].window.Bytes}, c.rank, 0)
		for i, v := range slots[2*64 : c.layout.segment] { // beyond the header of the first slot
			if v != 0 {
				return fmt.Errorf("byte %d of the first slot was written", i)
			}
		}
		return nil
	})
}

func TestForgedReferences(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		room := make([]byte, referenceBytes)
		for _, l := range []struct{ at, size int }{{-1, 8}, {0, -1}, {1 << 62, 1 << 62}, {len(c.peers[1-c.rank].arena.Bytes), 1}} {
			for _, good := range []bool{false, true} {
				bad := loan{l.at, true}
				if good {
					loan{0, true}.write(room, l.size, bad)
				} else {
					bad.write(room, l.size, loan{})
				}
				if data, offer := c.borrow(1-c.rank, room); offer != nil || data != nil && !good {
					return fmt.Errorf("%d bytes at %d were believed", l.size, l.at)
				}
			}
		}
		if data, _ := c.borrow(1-c.rank, room[:8]); data != nil {
			return errors.New("half a reference was believed")
		}
		return nil
	})
}

func TestFree(t *testing.T) {
	b, err := Alloc(10000)
	if err != nil {
		t.Fatal(err)
	}
	b[0], b[9999] = 1, 2
	for name, bad := range map[string][]byte{"ordinary memory": make([]byte, 8), "the middle of a block": b[4096:]} {
		if err := Free(bad); err == nil || !strings.Contains(err.Error(), "no block") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Free(b); err != nil {
		t.Error(err)
	}
	if err := Free(b); !errors.Is(err, Argument) {
		t.Errorf("freed twice: %v", err)
	}
	again, err := Alloc(10000)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(again)
	if again[0] != 0 || again[9999] != 0 {
		t.Error("memory came back as it was left")
	}
	if _, err := Alloc(1 << 60); !errors.Is(err, Memory) {
		t.Errorf("1 EiB: %v", err)
	}
}

// TestFailedLoan frees a buffer that a peer was offered in a call that has failed: the
// peer may come and write there all the same, so nobody else is given that memory.
func TestFailedLoan(t *testing.T) {
	const size = 1 << 20
	gone := make(chan struct{})
	together(t, 2, func(c *Config) { c.Timeout = 200 * time.Millisecond }, func(c *Comm) error {
		if c.Rank() == 1 {
			<-gone
			return nil
		}
		defer close(gone)
		// reused says whether a buffer is where one was that use was done with.
		reused := func(use func(b []byte) error) (bool, error) {
			b, err := Alloc(size)
			if err != nil {
				return false, err
			}
			before := &b[0]
			if err := errors.Join(use(b), Free(b)); err != nil {
				return false, err
			}
			again, err := Alloc(size)
			if err != nil {
				return false, err
			}
			defer Free(again)
			return &again[0] == before, nil
		}
		if same, err := reused(func([]byte) error { return nil }); err != nil || !same {
			return fmt.Errorf("without a call the memory is the same: %v, %v", same, err)
		}
		same, err := reused(func(b []byte) error {
			err := c.Do(&Call{Collective: schedule.AllReduce, Type: dtype.F32, Count: size / 4, In: b, Out: b})
			if !errors.Is(err, Timeout) {
				return fmt.Errorf("the call: %w", err)
			}
			return nil
		})
		if err != nil || same {
			return fmt.Errorf("after a call that failed the memory is the same: %v, %v", same, err)
		}
		return nil
	})
}

// Buffers in a window do by either protocol, though only simple refers to them.
func TestReferencesByEitherProtocol(t *testing.T) {
	for _, protocol := range []string{collective.LL, collective.Simple} {
		set := func(cfg *Config) { cfg.Protocol = protocol }
		together(t, 3, set, func(c *Comm) error {
			rng := rand.New(rand.NewPCG(1, uint64(c.rank)))
			return lendAndSpoil(c, Call{Collective: schedule.AllReduce, Type: dtype.I32, Op: dtype.Max, Count: 30000}, rng, false)
		})
	}
}

// Messages from windows arrive whole, in order and by tag, and a send is over
// only when its memory is free again.
func TestMessagesFromWindows(t *testing.T) {
	together(t, 3, nil, func(c *Comm) error {
		next, prev := (c.rank+1)%3, (c.rank+2)%3
		b, err := Alloc(1 << 20)
		if err != nil {
			return err
		}
		defer Free(b)
		for i, size := range []int{0, 1, claimed, claimed + 1, 300000, 1 << 20} {
			for k := range b[:size] {
				b[k] = byte(c.rank + i + k)
			}
			c.outgrown = []int{outgrown, 0}[i%2] // as if it came from memory
			// All send before any asks, and the second tag is asked for first.
			first, err := c.StartSend(b[:size], dtype.U8, next, 7)
			if err != nil {
				return err
			}
			if err := c.Send(b[:size/2], dtype.U8, next, 8); err != nil {
				return err
			}
			half, whole := make([]byte, size/2), make([]byte, size)
			if _, err := c.Recv(half, dtype.U8, prev, 8); err != nil {
				return err
			}
			if _, err := c.Recv(whole, dtype.U8, AnySource, 7); err != nil {
				return err
			}
			if err := first.Wait(0); err != nil {
				return err
			}
			clear(b)
			for k := range whole {
				if want := byte(prev + i + k); whole[k] != want || k < len(half) && half[k] != want {
					return fmt.Errorf("%d bytes: byte %d is %d, want %d", size, k, whole[k], want)
				}
			}
		}
		return nil
	})
}

// A wait for peers to read what is lent names those that have not.
func TestCulpritsOfALoan(t *testing.T) {
	c := &Comm{peers: make([]peer, 3)}
	for p := range c.peers {
		c.peers[p].Member = Member{PID: 1000 + p, Host: fmt.Sprint("host", p)}
		c.peers[p].control = controlOf(make([]byte, controlBytes))
		c.peers[p].control.entered.Store(5)
	}
	c.peers[2].control.completed.Store(5)
	done := counter{round: 1}
	o := &operation{comm: c, plan: &plan{rounds: 1}, parts: [parts]counter{done, done, done}, sequence: 5}
	want := "rank 1 (pid 1001 on host1) has not read all that rank 0 lends it, over shared memory"
	if got := c.culprits(o); got != want {
		t.Errorf("the culprits are %q, want %q", got, want)
	}
}

// A peer cannot pass nothing off as a term of a reduction.
func TestEmptyReferenceIsNoTerm(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		o := &operation{comm: c, plan: &plan{desc: description{collective: schedule.AllReduce}}, sequence: 1, tag: 8}
		w, r := c.ends.to[privateSimple][1-c.rank], c.ends.from[privateSimple][1-c.rank]
		w.Reserve(0)
		w.Commit(o.tag | lent)
		for {
			_, _, ok, err := o.receive(r, 1-c.rank, 64)
			if err == nil && !ok {
				continue // it has not come yet
			}
			if err == nil || !errors.Is(err, Mismatch) {
				return fmt.Errorf("taken: %v, %v", ok, err)
			}
			return nil
		}
	})
}
