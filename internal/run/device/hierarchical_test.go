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

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// islanders runs body on n ranks in islands, which go through them for every sum.
func islanders(t *testing.T, n int, islands, launch string, body func(r *rank) error) {
	t.Helper()
	t.Setenv("RINGLANE_DEVICE_ISLANDS", islands)
	t.Setenv("RINGLANE_DEVICE_ALGO", "hierarchical:"+launch)
	t.Setenv("RINGLANE_DEVICE_WINDOW", "2M") // with rings for several blocks
	together(t, n, func(r *rank) error {
		if c := r.Describe(Call{Count: 1}); c.String() != "hierarchical:slot:"+launch {
			return fmt.Errorf("%v instead of islands", c)
		}
		return body(r)
	})
}

// TestHierarchicalBits compares sums through islands that are rows of ranks with
// the processor's, which adds in the order of ranks: every type and operator, any
// size, alignment, in place or not.
func TestHierarchicalBits(t *testing.T) {
	start := seed(t)
	for _, test := range []struct {
		n               int
		islands, launch string
	}{
		{4, "0-1/2-3", "2x128"}, {6, "0-2/3-5", "3x192"}, {4, "0/1-3", "1x128"}, {3, "0-1/2", "2x256"},
		{6, "0-1/2-3/4-5", "2x128"}, {6, "0/1/2-4/5", "1x128"}, {3, "0-2", "2x128"},
	} {
		t.Run(test.islands, func(t *testing.T) {
			islanders(t, test.n, test.islands, test.launch, func(r *rank) error {
				random := rand.New(rand.NewPCG(start, uint64(r.size)))
				for _, typ := range dtype.Types {
					for _, op := range dtype.Ops {
						r.check(random, Call{Type: typ, Op: op, Count: 1 + random.IntN(1<<random.IntN(15))}, random.IntN(2) == 0)
					}
				}
				// Other calls in between use the same rings and counters.
				for range 15 {
					r.check(random, randomCall(random, r.size, onGPU), random.IntN(2) == 0)
				}
				return nil
			})
		})
	}
}

// TestHierarchicalApart has islands whose ranks are no rows, and a ring in the order
// that follows.
func TestHierarchicalApart(t *testing.T) {
	const count = 20000
	islanders(t, 4, "0,3/1,2", "2x128", func(r *rank) error {
		in, out := r.alloc(8*count), r.alloc(8*count*4)
		r.set(in, words(count, r.rank, 0))
		for _, asked := range []string{"hierarchical:2x128", "ring:2x64"} {
			o, err := collective.ParseDeviceOverride(asked)
			r.must(err)
			r.must(r.Synchronize(r.stream))
			r.must(r.Override(o))
			for _, c := range []schedule.Collective{schedule.AllReduce, schedule.ReduceScatter, schedule.AllGather} {
				call := Call{Collective: c, Type: dtype.I64, Count: count, In: in, Out: out}
				if c == schedule.ReduceScatter {
					call.Count /= 4
				}
				want := expected(&call, 4, r.rank)
				r.set(out, make([]byte, len(want)))
				r.must(r.Enqueue(call, r.stream))
				r.must(r.Synchronize(r.stream))
				if !bytes.Equal(r.get(out, len(want)), want) {
					return fmt.Errorf("%v by %v is wrong", c, r.last.choice)
				}
			}
		}
		return nil
	})
}

// TestHierarchicalAgrees has sums of floats, whose bits depend on the order of
// terms, be the same on all ranks, whatever islands they are in.
func TestHierarchicalAgrees(t *testing.T) {
	const n, count = 5, 3001
	start := seed(t)
	islanders(t, n, "0,4/1,3/2", "2x128", func(r *rank) error {
		random := rand.New(rand.NewPCG(start, uint64(r.rank)))
		for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
			bytes := count * typ.Size()
			p := r.alloc(bytes)
			r.set(p, data(random, typ, count))
			r.must(r.Enqueue(Call{Type: typ, Count: count, In: p, Out: p}, r.stream))
			r.must(r.Synchronize(r.stream))
			all := make([]byte, n*bytes)
			r.must(r.host.Do(&communicator.Call{Collective: schedule.AllGather, Type: dtype.U8, Count: bytes, In: r.get(p, bytes), Out: all}))
			for other := range n {
				if string(all[other*bytes:][:bytes]) != string(all[:bytes]) {
					return fmt.Errorf("%v: ranks 0 and %d end with other bits", typ, other)
				}
			}
		}
		return nil
	})
}

// TestHierarchicalChosen has ranks that are measured as islands over PCIe go through
// them, and the longest messages round the ring.
func TestHierarchicalChosen(t *testing.T) {
	measuredAs(t, func(from, to int) float64 {
		if from%3 == 0 == (to%3 == 0) { // 0 and 3 may share a GPU
			return 0.15
		}
		return 0.06
	})
	together(t, 4, func(r *rank) error {
		for _, test := range []struct {
			call Call
			want string
		}{
			{Call{Type: dtype.I64, Count: 1}, "oneshot"},
			{Call{Type: dtype.I64, Count: 30000}, collective.Hierarchical},
			{Call{Collective: schedule.ReduceScatter, Type: dtype.I64, Count: 40000}, collective.Ring},
			{Call{Collective: schedule.AllGather, Type: dtype.I64, Count: 40000}, collective.Ring},
		} {
			if c := r.Describe(test.call); c.Algorithm != test.want {
				return fmt.Errorf("%d elements: %v, want %s", test.call.Count, c, test.want)
			}
			call := test.call
			call.In, call.Out = r.alloc(8*call.Count*4), r.alloc(8*call.Count*4)
			r.set(call.In, words(call.Count*4, r.rank, 0))
			want := expected(&call, 4, r.rank)
			r.must(r.Enqueue(call, r.stream))
			r.must(r.Synchronize(r.stream))
			if !bytes.Equal(r.get(call.Out, len(want)), want) {
				return fmt.Errorf("%v of %d elements is wrong", call.Collective, call.Count)
			}
		}
		return nil
	})
}

// TestHierarchicalGraph replays a graph of sums through islands, with other calls in
// between.
func TestHierarchicalGraph(t *testing.T) {
	const count, replays = 3000, 60
	islanders(t, 4, "0-1/2-3", "2x128", func(r *rank) error {
		in, out := r.alloc(8*count), r.alloc(8*count)
		number := func(v int) []byte { return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, uint64(v)), count) }
		exec := r.recorded(func() {
			for range 2 {
				r.must(r.Enqueue(Call{Type: dtype.I64, Count: count, In: in, Out: out}, r.stream))
				r.must(r.Enqueue(Call{Type: dtype.I64, Op: dtype.Max, Count: count, In: out, Out: out}, r.stream))
			}
		})
		defer r.within(func() error { return exec.Destroy() })
		for i := range replays {
			r.set(in, number(i+r.rank))
			r.within(func() error { return exec.Launch(r.stream) })
			if i%3 == 0 {
				r.must(r.Enqueue(Call{Type: dtype.I64, Count: 7 * i, In: in, Out: in}, r.stream))
			}
			r.must(r.Synchronize(r.stream))
			if got := r.get(out, 8*count); !bytes.Equal(got, number(4*i+6)) {
				return fmt.Errorf("replay %d leaves %v", i, got[:8])
			}
		}
		return nil
	})
}

// TestHierarchicalStopped stops a rank in the middle: who waits for it says so
// within the deadline, and the others learn it from them.
func TestHierarchicalStopped(t *testing.T) {
	const timeout = 2 * time.Second
	for _, stop := range []int{1, 2} { // one of an island, a leader
		ranks := spawn(t, "again", 4, "RINGLANE_TIMEOUT=2s", "RINGLANE_DEVICE_ISLANDS=0-1/2-3", "RINGLANE_DEVICE_ALGO=hierarchical")
		for _, w := range ranks {
			w.says(t, "joined")
		}
		stopped := ranks[stop].Process
		if err := stopped.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for i, w := range ranks {
			if i == stop {
				continue
			}
			text, after := w.failure(t, start)
			if !strings.Contains(text, fmt.Sprintf("rank %d (pid %d on ", stop, stopped.Pid)) || !strings.Contains(text, "stopped by a signal") {
				t.Errorf("rank %d says %q, and does not name rank %d", i, text, stop)
			}
			if after > timeout+slack {
				t.Errorf("the error came after %v, the deadline is %v", after, timeout)
			}
		}
		if err := stopped.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		ranks[stop].failure(t, start)
		everyone(ranks, func(_ int, w *worker) {
			fmt.Fprintln(w.in)
			w.says(t, "well")
			if err := w.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
