package communicator

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// BenchmarkAllReduce has two goroutines as ranks; `ringlane bench` measures
// processes.
func BenchmarkAllReduce(b *testing.B) {
	for _, count := range []int{2, 1024, 1 << 18, 4 << 20} {
		b.Run(fmt.Sprint(4*count, "B"), func(b *testing.B) {
			b.SetBytes(int64(4 * count))
			pair(b, func(c *Comm) error {
				data := make([]float32, count)
				call := Call{Collective: schedule.AllReduce, Count: count, In: reduce.Bytes(data), Out: reduce.Bytes(data)}
				for range b.N {
					if err := c.Do(&call); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func pair(tb testing.TB, body func(c *Comm) error) {
	dir, err := os.MkdirTemp("", "ringlane-bench-")
	if err != nil {
		tb.Fatal(err)
	}
	defer os.RemoveAll(dir)
	job := uniqueJob()
	var ranks sync.WaitGroup
	for rank := range 2 {
		ranks.Go(func() {
			c, err := Join(Config{Rank: rank, Size: 2, Job: job, Rendezvous: dir})
			if err == nil {
				defer c.Close()
				err = body(c)
			}
			if err != nil {
				tb.Error(err)
			}
		})
	}
	ranks.Wait()
}

// A call that has been made once before allocates nothing, nor does a message.
func TestCallsAllocateNothing(t *testing.T) {
	for name, call := range map[string]func(c *Comm, b []byte) error{
		"collective": func(c *Comm, b []byte) error {
			return c.Do(&Call{Collective: schedule.AllReduce, Count: len(b) / 4, In: b, Out: b})
		},
		"message": func(c *Comm, b []byte) error {
			if c.rank == 0 {
				return c.Send(b, dtype.F32, 1, 0)
			}
			_, err := c.Recv(b, dtype.F32, 0, 0)
			return err
		},
	} {
		pair(t, func(c *Comm) error {
			data := make([]float32, 100000)
			var before, after runtime.MemStats
			for round := range 2 {
				runtime.ReadMemStats(&before)
				for i := range 200 {
					if err := call(c, reduce.Bytes(data[:1+i%2*99999])); err != nil {
						return err
					}
				}
				runtime.ReadMemStats(&after)
				// Both ranks run in this process, and the runtime allocates a little for itself.
				if n := after.Mallocs - before.Mallocs; round == 1 && n > 40 {
					return fmt.Errorf("%d allocations in 200 calls of a %s", n, name)
				}
			}
			return nil
		})
	}
}

// A communicator keeps no buffer of a call that is over.
func TestCallsKeepNothingAlive(t *testing.T) {
	pair(t, func(c *Comm) error {
		freed := make(chan struct{}, 2)
		for i := range 2 {
			buf := make([]byte, 1<<20)
			runtime.AddCleanup(&buf[0], func(struct{}) { freed <- struct{}{} }, struct{}{})
			call := Call{Collective: schedule.AllReduce, Count: len(buf) / 4, In: buf, Out: buf}
			if i == 0 {
				if err := c.Do(&call); err != nil {
					return err
				}
				continue
			}
			r, err := c.Start(call)
			if err == nil {
				err = r.Wait(0)
			}
			if err != nil {
				return err
			}
		}
		for range 2 {
			runtime.GC()
			select {
			case <-freed:
			case <-time.After(10 * time.Second):
				return errors.New("a buffer is still referenced")
			}
		}
		return nil
	})
}
