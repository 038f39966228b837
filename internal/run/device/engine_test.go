package device

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// engines runs body on two ranks whose copy engines carry what they can, by some lanes.
func engines(t *testing.T, lanes int, body func(r *rank) error) {
	t.Helper()
	t.Setenv("RINGLANE_P2P", P2POff)
	t.Setenv("RINGLANE_DEVICE_ALGO", fmt.Sprintf("engine%d:3x96", lanes))
	together(t, 2, func(r *rank) error {
		if c := r.Describe(Call{Count: 1 << 20}); c.Lanes != lanes {
			return fmt.Errorf("%v instead of copy engines", c)
		}
		return body(r)
	})
}

// TestEngineBits compares collectives that copy engines carry with the
// processor's: every type and operator, any size, alignment, in place or not.
func TestEngineBits(t *testing.T) {
	start := seed(t)
	for lanes := 1; lanes <= collective.EngineLanes; lanes++ {
		engines(t, lanes, func(r *rank) error {
			random := rand.New(rand.NewPCG(start, 0))
			for _, typ := range dtype.Types {
				for _, op := range dtype.Ops {
					for _, c := range []schedule.Collective{schedule.AllReduce, schedule.ReduceScatter} {
						r.check(random, Call{Collective: c, Type: typ, Op: op, Count: 1 + random.IntN(20000)}, random.IntN(2) == 0)
					}
				}
			}
			for range 150 {
				r.check(random, randomCall(random, 2, onGPU), random.IntN(2) == 0)
			}
			return nil
		})
	}
}

// TestEngineMany makes hundreds of calls in a row by copy engines, slots and
// lines, without waiting, on several streams.
func TestEngineMany(t *testing.T) {
	start := seed(t)
	const n, rounds, batch, most = 2, 20, 30, 9000
	engines(t, collective.EngineLanes, func(r *rank) error {
		random := rand.New(rand.NewPCG(start, 0))
		streams := []cuda.Stream{r.stream}
		for range 2 {
			s, err := r.Context().NewStream(cuda.Normal)
			r.must(err)
			defer r.within(s.Destroy)
			streams = append(streams, s)
		}
		in, out := r.alloc(8*most*n), r.alloc(8*most*n*batch)
		r.set(in, words(most*n, r.rank, 0))
		want := make([][]byte, batch)
		for range rounds {
			for i := range want {
				call := randomCall(random, n, onGPU)
				call.Type, call.Op, call.Count = dtype.I64, dtype.Sum, 1+random.IntN(most)
				call.In, call.Out = in, out+cuda.Pointer(8*most*n*i)
				override := collective.DeviceOverride{Blocks: 1 + random.IntN(4), Threads: 64}
				switch random.IntN(4) {
				case 0:
					override.Slots = true
				case 1:
					override.Lines = true
				default:
					override.Engines, override.Lanes = true, 1+random.IntN(collective.EngineLanes)
				}
				r.mu.Lock()
				r.devices.DeviceOverride = override
				r.forget()
				r.mu.Unlock()
				r.must(r.Enqueue(call, streams[random.IntN(len(streams))]))
				want[i] = expected(&call, n, r.rank)
			}
			for _, s := range streams {
				r.must(r.Synchronize(s))
			}
			for i := range want {
				if got := r.get(out+cuda.Pointer(8*most*n*i), len(want[i])); !bytes.Equal(got, want[i]) {
					return fmt.Errorf("call %d of a batch differs", i)
				}
			}
		}
		return nil
	})
}

// TestEngineGraph replays graphs of two captures with calls by copy engines among
// calls that are not captured, some of them made while a capture is under way.
func TestEngineGraph(t *testing.T) {
	const count, replays = 3000, 120
	engines(t, collective.EngineLanes, func(r *rank) error {
		side, err := r.Context().NewStream(cuda.Normal)
		r.must(err)
		defer r.within(side.Destroy)
		in, out, other := r.alloc(8*count), r.alloc(8*count), r.alloc(8*count)
		number := func(v int) []byte { return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, uint64(v)), count) }
		sum := Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: count, In: in, Out: out}
		in2 := Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: count, In: out, Out: out}
		eager := Call{Collective: schedule.AllReduce, Type: dtype.I64, Op: dtype.Max, Count: count, In: other, Out: other}
		r.set(other, number(r.rank))
		var graphs []*cuda.Exec
		for range 2 {
			graphs = append(graphs, r.recorded(func() {
				r.must(r.Enqueue(sum, r.stream))
				r.must(r.Enqueue(eager, side)) // not a part of it
				r.must(r.Enqueue(in2, r.stream))
			}))
		}
		defer r.within(func() error { return graphs[0].Destroy() })
		defer r.within(func() error { return graphs[1].Destroy() })
		if n := len(r.engine.teams); n != 2 {
			return fmt.Errorf("%d sets of streams for two captures, one after the other", n-1)
		}
		r.must(r.Synchronize(side))
		for i := range replays {
			r.set(in, number(i+r.rank))
			r.within(func() error { return graphs[i%2].Launch(r.stream) })
			if i%3 == 0 {
				r.must(r.Enqueue(eager, r.stream))
			}
			r.must(r.Synchronize(r.stream))
			if got := r.get(out, 8*count); !bytes.Equal(got, number(4*i+2)) {
				return fmt.Errorf("replay %d leaves %v", i, got[:8])
			}
		}
		if got := r.get(other, 8*count); !bytes.Equal(got, number(1)) {
			return fmt.Errorf("calls beside the graphs leave %v", got[:8])
		}
		return nil
	})
}

// TestEngineLarge makes a sum in pieces as long as on a GPU.
func TestEngineLarge(t *testing.T) {
	t.Setenv("RINGLANE_DEVICE_WINDOW", "40M")
	engines(t, collective.EngineLanes, func(r *rank) error {
		const count = 1<<20 + 77
		call := Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: count, In: r.alloc(8 * count), Out: r.alloc(8 * count)}
		r.set(call.In, words(count, r.rank, 0))
		r.must(r.Enqueue(call, r.stream))
		r.must(r.Synchronize(r.stream))
		sum, other := words(count, 0, 0), words(count, 1, 0)
		for i := 0; i < len(sum); i += 8 {
			binary.LittleEndian.PutUint64(sum[i:], binary.LittleEndian.Uint64(sum[i:])+binary.LittleEndian.Uint64(other[i:]))
		}
		if !bytes.Equal(r.get(call.Out, len(sum)), sum) {
			return fmt.Errorf("the sum of %d words is wrong", count)
		}
		return nil
	})
}

// TestEngineGivesUp has a rank give up before it has come to a call: the peer
// does not take for a result what that copies all the same, and does not wait.
func TestEngineGivesUp(t *testing.T) {
	given := make(chan struct{})
	engines(t, collective.EngineLanes, func(r *rank) error {
		r.abandoned = true
		if r.rank == 0 {
			defer close(given)
			r.giveUp()
		} else {
			<-given
		}
		p := r.alloc(8 * 4000)
		start := time.Now()
		for range 3 {
			r.must(r.Enqueue(Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: 4000, In: p, Out: p}, r.stream))
		}
		r.within(r.stream.Synchronize)
		if r.rank == 0 { // behind a copy, too
			e := &r.engine
			flag := e.flags(r.Comm.memory.peers[1].outbox)
			r.within(func() error { return r.stream.Set(flag, 0, 8) })
			r.within(func() error { return r.await(r.stream, 0, e.filled(0, 1), kernels.Flags{}) })
			r.within(r.stream.Synchronize)
			if says := binary.LittleEndian.Uint64(r.get(flag, 8)); says != kernels.FlagGivenUp {
				return fmt.Errorf("rank 0 has given up, and says %#x of a piece", says)
			}
		}
		if took := time.Since(start); r.intact() || took > r.host.Timeout()/2 {
			return fmt.Errorf("rank %d took %v, and says that nothing is amiss: %v", r.rank, took, r.intact())
		}
		return nil
	})
}

// TestEngineStopped stops a rank between copies: the other one says so within the
// deadline, and both join again.
func TestEngineStopped(t *testing.T) {
	const timeout = time.Second
	ranks := spawn(t, "again", 2, "RINGLANE_TIMEOUT=1s", "RINGLANE_P2P=off", "RINGLANE_DEVICE_ALGO=engine")
	for _, w := range ranks {
		w.says(t, "joined")
	}
	stopped := ranks[1].Process
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	text, after := ranks[0].failure(t, start)
	for _, want := range []string{
		fmt.Sprintf("rank 1 (pid %d on ", stopped.Pid), "stopped by a signal", "host memory (RINGLANE_P2P is off)", "piece ", " of the call",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	if after > timeout+slack {
		t.Errorf("the error came after %v, the deadline is %v", after, timeout)
	}
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ranks[1].failure(t, start)
	everyone(ranks, func(_ int, w *worker) {
		fmt.Fprintln(w.in)
		w.says(t, "well")
		if err := w.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestEngineLeaks joins and closes again and again.
func TestEngineLeaks(t *testing.T) {
	context, err := cudatest.Open(t).Devices()[0].Retain()
	if err != nil {
		t.Fatal(err)
	}
	defer context.Release()
	var first uint64
	for i := range 4 {
		engines(t, collective.EngineLanes, func(r *rank) error {
			p := r.alloc(4000)
			return r.Enqueue(Call{Count: 1000, In: p, Out: p}, r.stream)
		})
		free, _, err := context.MemoryInfo()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = free
		} else if free < first {
			t.Errorf("%d bytes of GPU memory are free after %d joins, %d after the first", free, i+1, first)
		}
	}
}

// TestEngineAllocates makes calls of a plan that exists.
func TestEngineAllocates(t *testing.T) {
	counted := make(chan struct{})
	engines(t, collective.EngineLanes, func(r *rank) error {
		p := r.alloc(4096)
		if r.rank == 0 {
			defer close(counted)
		}
		enqueue := func() { r.must(r.Enqueue(Call{Count: 1024, In: p, Out: p}, r.stream)) }
		enqueue()
		r.must(r.Synchronize(r.stream))
		const runs = 50
		if r.rank != 0 { // AllocsPerRun counts for the whole process
			for range runs + 1 {
				enqueue()
			}
			<-counted // to wait for a peer, and to close, allocates
			return nil
		}
		if n := testing.AllocsPerRun(runs, enqueue); n > 0 && !race {
			t.Errorf("a call allocates %v times", n)
		}
		return nil
	})
}
