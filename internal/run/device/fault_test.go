package device

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// slack is what a loaded machine may take beyond a deadline, with a second that
// is promised.
const slack = 3 * time.Second

// TestStopped stops a rank in the middle. The others say who it is within the
// deadline, the rank itself hears of it when it goes on, and all of them join
// again.
func TestStopped(t *testing.T) {
	const n, timeout = 3, 5 * time.Second
	ranks := spawn(t, "again", n, "RINGLANE_TIMEOUT=5s")
	for _, w := range ranks {
		w.says(t, "joined")
	}
	stopped := ranks[1].Process
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	everyone([]*worker{ranks[0], ranks[2]}, func(_ int, w *worker) {
		text, after := w.failure(t, start)
		want := fmt.Sprintf("rank 1 (pid %d on ", stopped.Pid)
		if !strings.Contains(text, want) || !strings.Contains(text, "stopped by a signal") || !strings.Contains(text, "GPU 1 (") {
			t.Errorf("%q does not name %s... with its GPU and state", text, want)
		}
		if after < timeout-100*time.Millisecond || after > timeout+slack {
			t.Errorf("the error came after %v, the deadline is %v", after, timeout)
		}
	})
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

// TestKilled kills a rank in the middle: no deadline has to pass.
func TestKilled(t *testing.T) {
	const n = 3
	ranks := spawn(t, "again", n)
	for _, w := range ranks {
		w.says(t, "joined")
	}
	killed := ranks[2].Process
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	everyone(ranks[:2], func(_ int, w *worker) {
		text, after := w.failure(t, start)
		if want := fmt.Sprintf("rank 2 (pid %d on ", killed.Pid); !strings.Contains(text, want) || !strings.Contains(text, "is gone") {
			t.Errorf("%q does not say that %s... is gone", text, want)
		}
		if after > slack {
			t.Errorf("the error came after %v", after)
		}
	})
}

// TestAbsent has a rank not make a call: it runs, so what it did last is named.
func TestAbsent(t *testing.T) {
	ranks := spawn(t, "absent", 2, "RINGLANE_TIMEOUT=1s")
	text, _ := ranks[0].failure(t, time.Now())
	if !strings.Contains(text, "rank 1 ") || !strings.Contains(text, "has not enqueued it (its last is #1)") {
		t.Errorf("%q does not name rank 1 and its last call", text)
	}
	ranks[1].in.Close()
	if text, _ := ranks[1].failure(t, time.Now()); !strings.Contains(text, "reported by rank 0") {
		t.Errorf("%q is not the error of rank 0", text)
	}
}

// TestLeave has a rank close the communicator too early: no deadline has to pass.
func TestLeave(t *testing.T) {
	ranks := spawn(t, "leave", 2)
	start := time.Now()
	text, after := ranks[0].failure(t, start)
	if !strings.Contains(text, "has closed the communicator on GPUs after 1 collectives") {
		t.Errorf("%q does not say that rank 1 has left", text)
	}
	if after > slack+time.Second {
		t.Errorf("the error came after %v", after)
	}
	ranks[1].says(t, "left")
}

// TestAbort ends a wait from another goroutine, and with it that of the peer.
func TestAbort(t *testing.T) {
	together(t, 3, func(r *rank) error {
		if r.rank == 2 {
			r.Abort("enough")
		} else {
			err := r.Enqueue(Call{Collective: schedule.Barrier}, r.stream)
			if err == nil {
				err = r.Synchronize(r.stream)
			}
			if err == nil || !strings.Contains(err.Error(), "rank 2 aborted the communicator: enough") {
				return fmt.Errorf("%v, want that rank 2 aborted", err)
			}
		}
		// The context is well, and so is a new communicator.
		r.set(r.alloc(8), make([]byte, 8))
		r.abandoned = true
		return nil
	})
}

// TestFaultInCall has a call be the one that sees what a kernel has written down,
// with the locks of a call held.
func TestFaultInCall(t *testing.T) {
	t.Setenv("RINGLANE_TIMEOUT", "300ms")
	late := make(chan struct{})
	together(t, 2, func(r *rank) error {
		r.abandoned = true
		if r.rank == 1 {
			<-late
			return nil
		}
		defer close(late)
		r.must(r.Enqueue(Call{Collective: schedule.Barrier}, r.stream))
		r.mu.Lock()
		defer r.mu.Unlock()
		for r.usable() == nil {
			runtime.Gosched()
		}
		if err := r.Err(); !strings.Contains(err.Error(), "rank 1 ") || !strings.Contains(err.Error(), "has not enqueued any") {
			return err
		}
		return nil
	})
}

// TestDiffer has ranks make different calls.
func TestDiffer(t *testing.T) {
	ranks := spawn(t, "differ", 2)
	everyone(ranks, func(_ int, w *worker) {
		if text, _ := w.failure(t, time.Now()); !strings.Contains(text, "ranks disagree: rank ") {
			t.Errorf("%q does not say that ranks disagree", text)
		}
	})
}

// TestPaths makes sums over each kind of path, and over a mixture.
func TestPaths(t *testing.T) {
	for _, test := range []struct {
		name    string
		ranks   int
		environ []string
		want    []string // from rank 0 and of others, in order
	}{
		{"peer", 2, nil, []string{"0 1 peer ", "1 0 peer ", "chosen for host memory: false"}},
		{"off", 2, []string{"RINGLANE_P2P=off"}, []string{"0 1 host RINGLANE_P2P is off", "1 0 host RINGLANE_P2P is off", "chosen for host memory: true"}},
		{"hidden", 2, []string{"CUDA_VISIBLE_DEVICES=RANK"}, []string{"0 1 host the driver does not show this process GPU 0 (", "1 0 host the driver does not show this process GPU 0 (", "chosen for host memory: true"}},
		{"instances", 2, []string{"RINGLANE_EMULATOR=gpus=2,sms=16,threads=256,mig=on", "CUDA_VISIBLE_DEVICES=RANK"}, []string{"0 1 host a MIG instance has no peers", "1 0 host a MIG instance has no peers", "chosen for host memory: true"}},
		{"instance", 2, []string{"RINGLANE_EMULATOR=gpus=2,sms=16,threads=256,mig=on"}, []string{"0 1 same ", "1 0 same ", "chosen for host memory: false"}},
		{"same", 2, []string{"RINGLANE_EMULATOR=gpus=1,sms=16,threads=256"}, []string{"0 1 same ", "1 0 same ", "chosen for host memory: false"}},
		{"refused", 3, []string{"RINGLANE_EMULATOR=gpus=3,sms=16,threads=256,p2p=off:0>1"}, []string{
			"0 1 host the driver says that GPU 0", "0 2 peer ", "1 0 host the other way: the driver says that GPU 0", "1 2 peer ", "2 0 peer ", "2 1 peer ", "chosen for host memory: true"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ranks := spawn(t, "sum", test.ranks, test.environ...)
			for _, want := range test.want {
				if got := ranks[0].line(t); !strings.HasPrefix(got, want) {
					t.Errorf("path %q, want %q", got, want)
				}
			}
			everyone(ranks, func(_ int, w *worker) {
				w.says(t, "done")
				if err := w.Wait(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestJoinFails has a join fail on all ranks, with the reason.
func TestJoinFails(t *testing.T) {
	for _, test := range []struct{ environ, want string }{
		{"RINGLANE_EMULATOR=gpus=2,p2p=off:0>1", "RINGLANE_P2P is on, and rank 0 with GPU 0 "},
		{"RINGLANE_CUDA_DRIVER=off", "no usable NVIDIA GPU: RINGLANE_CUDA_DRIVER is off"},
		{"RINGLANE_EMULATOR=gpus=2,memory=1M", "lower RINGLANE_DEVICE_WINDOW"},
		{"RINGLANE_WINDOW=0", "unset RINGLANE_WINDOW"},
		{"RINGLANE_DEVICE_WINDOW=1K", "a window of 1024 bytes a peer is too small"},
		{"RINGLANE_DEVICE_WINDOW=1RANKM", "give all ranks the same RINGLANE variables"},
		{"RINGLANE_DEVICE_ALGO=twoshot", `"twoshot" is no part of a choice`},
	} {
		t.Run(test.environ, func(t *testing.T) {
			ranks := spawn(t, "sum", 2, "RINGLANE_P2P=on", test.environ)
			everyone(ranks, func(_ int, w *worker) {
				if text, _ := w.failure(t, time.Now()); !strings.Contains(text, test.want) {
					t.Errorf("%q does not say %q", text, test.want)
				}
			})
		})
	}
}

// TestLeaks joins and closes again and again: memory of the GPU, of the arena,
// and goroutines are as they were.
func TestLeaks(t *testing.T) {
	driver := cudatest.Open(t)
	context, err := driver.Devices()[0].Retain()
	if err != nil {
		t.Fatal(err)
	}
	defer context.Release()
	measure := func() (uint64, int, int) {
		free, _, err := context.MemoryInfo()
		if err != nil {
			t.Fatal(err)
		}
		block, err := communicator.Alloc(4 << 20) // lies where the first large gap is
		if err != nil {
			t.Fatal(err)
		}
		defer communicator.Free(block)
		return free, arenaOffset(t, block), runtime.NumGoroutine()
	}
	var free uint64
	var at, goroutines int
	for i := range 6 {
		t.Setenv("RINGLANE_P2P", []string{P2PAuto, P2POff}[i%2])
		together(t, atMost(t, 3), func(r *rank) error {
			r.must(r.Enqueue(Call{Collective: 0, Type: 0, Count: 100, In: r.alloc(400), Out: r.alloc(400)}, r.stream))
			return nil
		})
		f, a, g := measure()
		if i == 1 {
			free, at, goroutines = f, a, g
		} else if i > 1 && (f < free || a > at || g > goroutines) {
			t.Errorf("after %d joins: %d bytes of GPU memory free, first large gap of the arena at %d, %d goroutines; before: %d, %d, %d", i+1, f, a, g, free, at, goroutines)
		}
	}
}

// arenaOffset says where a block of communicator.Alloc lies.
func arenaOffset(t *testing.T, block []byte) int {
	c, err := communicator.Join(communicator.Config{Size: 1, Job: uniqueJob()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	at, ok := c.Offset(block)
	if !ok {
		t.Fatal("the block is not of the arena")
	}
	return at
}

// TestRefused has calls fail that cannot work, and the communicator go on.
func TestRefused(t *testing.T) {
	together(t, 2, func(r *rank) error {
		p := r.alloc(4096)
		good := Call{Count: 100, In: p, Out: p}
		for _, test := range []struct {
			change func(*Call)
			want   string
		}{
			{func(c *Call) { c.Out = p + 4 }, "overlap"},
			{func(c *Call) { c.Count = -1 }, "count of -1"},
			{func(c *Call) { c.Type = 99 }, "not an element type"},
			{func(c *Call) { c.Op = 99 }, "not an operator"},
			{func(c *Call) { c.Collective = 8 }, "use Exchange"},
			{func(c *Call) { c.Count, c.In = 101, 4096 }, "does not see"},
		} {
			call := good
			test.change(&call)
			if err := r.Enqueue(call, r.stream); err == nil || !strings.Contains(err.Error(), test.want) {
				return fmt.Errorf("%+v: %v, want an error with %q", call, err, test.want)
			}
		}
		for _, m := range []Message{{Peer: r.rank}, {Peer: 2}, {Peer: 1 - r.rank, Count: 1, Buffer: cuda.Pointer(4096)}} {
			if err := r.Exchange([]Message{m}, r.stream); err == nil {
				return fmt.Errorf("%+v is no error", m)
			}
		}
		return r.Enqueue(good, r.stream)
	})
}
