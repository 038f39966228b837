package communicator

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

func allReduceOnes(c *Comm, count int) error {
	data := make([]float32, count)
	for i := range data {
		data[i] = 1
	}
	err := c.Do(&Call{Collective: schedule.AllReduce, Count: count, In: reduce.Bytes(data), Out: reduce.Bytes(data)})
	if err != nil {
		return err
	}
	for i, v := range data {
		if v != float32(c.size) {
			return fmt.Errorf("element %d is %v, want %d", i, v, c.size)
		}
	}
	return nil
}

func TestKilledRankIsNamedWithinASecond(t *testing.T) {
	ranks := crew(t, "reduce", 3, ranksTo(3))
	for _, w := range ranks {
		if got := w.line(t); got != "joined" {
			t.Fatal(got)
		}
	}
	time.Sleep(50 * time.Millisecond) // into the stream of collectives; any moment will do
	victim := ranks[1]
	start := time.Now()
	victim.Process.Kill()
	everyone([]*worker{ranks[0], ranks[2]}, func(_ int, w *worker) {
		text, after := w.result(t, start)
		if !strings.Contains(text, fmt.Sprintf("rank 1 (pid %d on ", victim.Process.Pid)) || !strings.Contains(text, "is gone") {
			t.Errorf("the dead rank is not named: %s", text)
		}
		if after > time.Second {
			t.Errorf("known only after %v", after)
		}
	})
}

func TestStoppedRankIsNamedAtTheDeadline(t *testing.T) {
	ranks := crew(t, "reduce", 2, ranksTo(2), "RINGLANE_TIMEOUT=700ms")
	for _, w := range ranks {
		w.line(t)
	}
	ranks[1].Process.Signal(syscall.SIGSTOP)
	text, _ := ranks[0].result(t, time.Now())
	want := fmt.Sprintf("rank 1 (pid %d on ", ranks[1].Process.Pid)
	if !strings.Contains(text, want) || !strings.Contains(text, "stopped by a signal") || !strings.Contains(text, "700ms") {
		t.Errorf("want %q, its state and the deadline in: %s", want, text)
	}
	ranks[1].Process.Signal(syscall.SIGCONT)
	text, _ = ranks[1].result(t, time.Now())
	if !strings.Contains(text, "reported by rank 0") {
		t.Errorf("the stopped rank is not told: %s", text)
	}
}

// Long before a long deadline the rank that is waited for is named, once.
func TestLongWaitIsTold(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		if c.rank == 1 {
			if _, err := c.Recv(make([]byte, 1), dtype.U8, 0, 0); err != nil {
				return err
			}
			return allReduceOnes(c, 10)
		}
		told := make(chan string, 8)
		c.patience, c.warn = 20*time.Millisecond, func(text string) { told <- text }
		done := make(chan error)
		go func() { done <- allReduceOnes(c, 10) }()
		text := <-told
		if !strings.Contains(text, "still waiting") || !strings.Contains(text, "rank 1 (pid") || !strings.Contains(text, "has not entered") {
			t.Errorf("told: %s", text)
		}
		time.Sleep(120 * time.Millisecond) // several more looks around
		if err := c.Send([]byte{0}, dtype.U8, 1, 0); err != nil {
			return err
		}
		if n := len(told); n != 0 {
			t.Errorf("told %d times more", n)
		}
		return <-done
	})
}

func TestMissingRankIsNamedAtTheDeadline(t *testing.T) {
	dir := t.TempDir()
	private(t, dir)
	if err := os.WriteFile(dir+"/ranks.json", fmt.Appendf(nil, `{"2": {"pid": %d, "host": "elsewhere"}}`, 4711), 0o600); err != nil {
		t.Fatal(err)
	}
	ranks := crew(t, "join", 3, []int{0, 1}, "RINGLANE_TIMEOUT=500ms", "RINGLANE_RENDEZVOUS="+dir)
	everyone(ranks, func(_ int, w *worker) {
		text, _ := w.result(t, time.Now())
		if !strings.Contains(text, "2 of 3 ranks came within 500ms; missing: rank 2 (pid 4711 on elsewhere)") {
			t.Error(text)
		}
	})
	ranks = crew(t, "join", 2, []int{1}, "RINGLANE_TIMEOUT=300ms")
	if text, _ := ranks[0].result(t, time.Now()); !strings.Contains(text, "rank 0 did not open the meeting") {
		t.Error(text)
	}
}

// A control group that grants too little is told about before the kernel kills.
func TestMemoryControlGroupIsNamed(t *testing.T) {
	dir, file := fmt.Sprintf("/sys/fs/cgroup/ringlane-join-test-%d", os.Getpid()), "memory.max"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		dir, file = fmt.Sprintf("/sys/fs/cgroup/memory/ringlane-join-test-%d", os.Getpid()), "memory.limit_in_bytes"
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("SKIPPED: no control group can be made here: %v", err)
	}
	t.Cleanup(func() { os.Remove(dir) }) // after the processes in it have ended
	if err := os.WriteFile(dir+"/"+file, []byte("48M"), 0o644); err != nil {
		t.Skipf("SKIPPED: the group takes no memory limit: %v", err)
	}
	everyone(crew(t, "join", 8, ranksTo(8), "COMMUNICATOR_TEST_GROUP="+dir), func(_ int, w *worker) {
		text, _ := w.result(t, time.Now())
		for _, part := range []string{"8 × 8.0 MiB of staging memory", dir + " grants", "lower RINGLANE_STAGING, now 16M a rank"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q is missing in: %s", part, text)
			}
		}
	})
	everyone(crew(t, "join", 8, ranksTo(8), "COMMUNICATOR_TEST_GROUP="+dir, "RINGLANE_STAGING=2M"), func(_ int, w *worker) {
		if got := w.line(t); got != "joined" {
			t.Errorf("with less staging memory: %s", got)
		}
	})
}

func TestDeadRankEndsAReceiveAndAGroupJoin(t *testing.T) {
	for _, scenario := range []string{"wait", "group"} {
		ranks := crew(t, scenario, 2, ranksTo(2))
		for _, w := range ranks {
			w.line(t)
		}
		start := time.Now()
		ranks[1].Process.Kill()
		text, after := ranks[0].result(t, start)
		if !strings.Contains(text, fmt.Sprintf("(pid %d on ", ranks[1].Process.Pid)) || after > time.Second {
			t.Errorf("%s: after %v: %s", scenario, after, text)
		}
	}
}

func TestMoreRanksThanCores(t *testing.T) {
	ranks := crew(t, "crowd", 8, ranksTo(8))
	for _, w := range ranks {
		if got := w.line(t); got != "done" {
			t.Error(got)
		}
	}
}

// disagree runs two different calls, after some that are the same, and returns both
// ranks' errors.
func disagree(t *testing.T, before int, same Call, calls [2]Call) (errs [2]error) {
	t.Helper()
	together(t, 2, nil, func(c *Comm) error {
		same := same
		same.In, same.Out = make([]byte, 1<<20), make([]byte, 1<<20)
		for range before {
			if err := c.Do(&same); err != nil {
				return err
			}
		}
		call := calls[c.rank]
		call.In, call.Out = make([]byte, 1<<20), make([]byte, 1<<20)
		errs[c.rank] = c.Do(&call)
		if errs[c.rank] == nil {
			// A rank may complete its part before the other looks; its next call tells.
			errs[c.rank] = c.Do(&Call{Collective: schedule.Barrier})
		}
		return nil
	})
	return errs
}

func TestDisagreementIsAnErrorOnEveryRank(t *testing.T) {
	base := Call{Collective: schedule.AllReduce, Type: dtype.F32, Op: dtype.Sum, Count: 1000}
	other := func(change func(*Call)) [2]Call {
		c := base
		change(&c)
		return [2]Call{base, c}
	}
	for name, calls := range map[string][2]Call{
		"size":            other(func(c *Call) { c.Count = 1001 }),
		"size, protocol":  other(func(c *Call) { c.Count = 100000 }),
		"nothing at all":  other(func(c *Call) { c.Count = 0 }),
		"dtype":           other(func(c *Call) { c.Type = dtype.I32 }),
		"op":              other(func(c *Call) { c.Op = dtype.Max }),
		"collective":      other(func(c *Call) { c.Collective = schedule.AllGather }),
		"barrier":         other(func(c *Call) { c.Collective = schedule.Barrier }),
		"root":            {{Collective: schedule.Broadcast, Count: 10}, {Collective: schedule.Broadcast, Count: 10, Root: 1}},
		"roots of reduce": {{Collective: schedule.Reduction, Count: 10}, {Collective: schedule.Reduction, Count: 10, Root: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, before := range []int{0, 3} {
				for rank, err := range disagree(t, before, base, calls) {
					if !errors.Is(err, Mismatch) {
						t.Errorf("rank %d: %v, want a mismatch", rank, err)
					} else if !strings.Contains(err.Error(), "rank 0 calls") || !strings.Contains(err.Error(), "rank 1 calls") {
						t.Errorf("rank %d: the error does not say who calls what: %v", rank, err)
					}
				}
			}
		})
	}
}

// The other two complete their broadcast without the rank that disagrees.
func TestOneRankNamesAnotherRoot(t *testing.T) {
	together(t, 3, nil, func(c *Comm) error {
		call := Call{Collective: schedule.Broadcast, Count: 10, In: make([]byte, 40)}
		call.Out = call.In
		if c.rank == 2 {
			call.Root = 1
		}
		err := c.Do(&call)
		if c.rank == 2 && (!errors.Is(err, Mismatch) || !strings.Contains(err.Error(), "rank 2 calls broadcast of 10 × f32 with root 1")) {
			return fmt.Errorf("%v, want a mismatch", err)
		}
		return nil
	})
}

func TestUnevenCountsThatDoNotMatch(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		counts := []int{5, 5}
		recv := counts
		if c.rank == 1 {
			recv = []int{6, 5} // rank 0 sends 5
		}
		err := c.Do(&Call{Collective: schedule.AllToAll, SendCounts: counts, RecvCounts: recv, In: make([]byte, 40), Out: make([]byte, 44)})
		if err == nil {
			err = c.Do(&Call{Collective: schedule.Barrier})
		}
		if !errors.Is(err, Mismatch) {
			return fmt.Errorf("%v, want a mismatch", err)
		}
		return nil
	})
}

func TestClosedCommunicator(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		if err := allReduceOnes(c, 10); err != nil {
			return err
		}
		if c.rank == 1 {
			if err := c.Close(); err != nil {
				return err
			}
			if err := allReduceOnes(c, 10); !errors.Is(err, Closed) {
				return fmt.Errorf("a call after Close: %v", err)
			}
			if _, err := c.Start(Call{Collective: schedule.Barrier}); !errors.Is(err, Closed) {
				return fmt.Errorf("Start after Close: %v", err)
			}
			return c.Close() // again: nothing happens
		}
		if err := allReduceOnes(c, 10); !errors.Is(err, Closed) || !strings.Contains(err.Error(), "rank 1 (pid") {
			return fmt.Errorf("a call that rank 1 will not make: %v", err)
		}
		return nil
	})
}

func TestCloseFailsWhatIsUnderWay(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		if c.rank == 1 {
			_, err := c.Recv(make([]byte, 1), dtype.U8, 0, 0)
			if !errors.Is(err, Closed) {
				return fmt.Errorf("recv from a rank that closed: %v", err)
			}
			return nil
		}
		r, err := c.Start(Call{Collective: schedule.Barrier})
		if err != nil {
			return err
		}
		c.Close()
		if err := r.Wait(0); !errors.Is(err, Closed) {
			return fmt.Errorf("a barrier under way at Close: %v", err)
		}
		return nil
	})
}

func TestAbortReachesEveryRank(t *testing.T) {
	together(t, 3, nil, func(c *Comm) error {
		if c.rank == 2 {
			c.Abort("the loss is NaN")
		}
		err := c.Do(&Call{Collective: schedule.Barrier})
		if !errors.Is(err, Closed) || !strings.Contains(err.Error(), "rank 2 aborted the communicator: the loss is NaN") {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
}

func TestSecondGoroutineIsRefused(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		if c.rank == 1 {
			if _, err := c.Recv(make([]byte, 1), dtype.U8, 0, 0); err != nil {
				return err
			}
			return allReduceOnes(c, 100)
		}
		first := make(chan error)
		go func() { first <- allReduceOnes(c, 100) }()
		for c.inside.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := allReduceOnes(c, 100); !errors.Is(err, Busy) {
			return fmt.Errorf("a second Do: %v", err)
		}
		if _, err := c.Start(Call{Collective: schedule.Barrier}); !errors.Is(err, Busy) {
			return fmt.Errorf("a Start beside Do: %v", err)
		}
		// Messages are free to go beside; this one lets rank 1 come.
		if err := c.Send([]byte{1}, dtype.U8, 1, 0); err != nil {
			return err
		}
		return <-first
	})
}

func TestArguments(t *testing.T) {
	together(t, 1, nil, func(c *Comm) error {
		buf := make([]byte, 64)
		for _, call := range []Call{
			{Collective: schedule.AllReduce, Type: 99, Count: 1, In: buf, Out: buf},
			{Collective: schedule.AllReduce, Op: 99, Count: 1, In: buf, Out: buf},
			{Collective: schedule.AllReduce, Count: -1, In: buf, Out: buf},
			{Collective: schedule.AllReduce, Count: 17, In: buf, Out: buf},
			{Collective: schedule.AllReduce, Count: 8, In: buf[:32], Out: buf[16:48]},
			{Collective: schedule.Broadcast, Count: 1, Root: 1, In: buf, Out: buf},
			{Collective: schedule.AllToAll, SendCounts: []int{1, 2}, RecvCounts: []int{1}, In: buf, Out: buf},
			{Collective: schedule.AllToAll, SendCounts: []int{1}, RecvCounts: []int{2}, In: buf[:4], Out: buf[8:16]},
			{Collective: schedule.SendRecv},
			{Collective: 99},
		} {
			if err := c.Do(&call); !errors.Is(err, Argument) {
				return fmt.Errorf("%+v: %v, want a bad argument", call, err)
			}
		}
		if err := c.Send(buf, dtype.U8, 0, 0); !errors.Is(err, Argument) {
			return fmt.Errorf("send to itself: %v", err)
		}
		return allReduceOnes(c, 5) // none of it did any harm
	})
}
