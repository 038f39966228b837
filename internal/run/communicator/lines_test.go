package communicator

import (
	"fmt"
	"testing"
	"time"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

func TestDistance(t *testing.T) {
	const near, far = farFrom - 1, farFrom
	long := func(n int) []time.Duration {
		list := make([]time.Duration, n)
		for i := range list {
			list[i] = far
		}
		return list
	}
	for _, c := range []struct {
		name  string
		times []time.Duration
		far   bool
	}{
		{"nothing is known", nil, false},
		{"some claims were interrupted", long(farAfter - 1), false},
		{"all take long", long(farAfter), true},
		{"for ever", long(1000), true},
		{"one was quick in between", append(append(long(farAfter-1), near), far), false},
		{"it came near", append(long(1000), near), false},
	} {
		var d distance
		for _, took := range c.times {
			d.judge(took, farFrom)
		}
		if d.far() != c.far {
			t.Errorf("%s: far is %v", c.name, d.far())
		}
	}
}

// What is written past the caches arrives like everything else.
func TestPastTheCaches(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			together(t, n, nil, func(c *Comm) error {
				c.farFrom = 0 // all take longer
				for p := range c.peers {
					c.peers[p].distance = distance{farAfter}
				}
				past, calls := 0, 0
				for _, count := range []int{100, 3 * claimed, 200_003, 1_000_000} {
					for range 10 {
						in, out := make([]int32, n*count), make([]int32, count)
						for i := range in {
							in[i] = int32(value(c.rank, i+calls))
						}
						call := Call{Collective: schedule.ReduceScatter, Type: dtype.I32, Op: dtype.Sum, Count: count, In: reduce.Bytes(in), Out: reduce.Bytes(out)}
						if err := c.Do(&call); err != nil {
							return err
						}
						for i, got := range out {
							if want := int32(reduced(dtype.Sum, n, c.rank*count+i+calls)); got != want {
								return fmt.Errorf("call %d: element %d of %d is %d, want %d", calls, i, count, got, want)
							}
						}
						if calls++; c.direct.passed {
							past++
						}
					}
				}
				if want := 3 * 10; past != want {
					return fmt.Errorf("%d of %d calls ended with data written past the caches, want %d", past, calls, want)
				}
				return nil
			})
		})
	}
}

// So do results in windows, and inputs from there that nobody claims.
func TestWindowsPastTheCaches(t *testing.T) {
	for _, n := range []int{2, 3} {
		together(t, n, nil, func(c *Comm) error {
			c.outgrown = 0
			for _, count := range []int{3 * claimed, 200_003, 1_000_000} {
				memory, err := Alloc(2 * 4 * count)
				if err != nil {
					return err
				}
				defer Free(memory)
				in, out := reduce.View[int32](memory[:4*count]), reduce.View[int32](memory[4*count:])
				for call := range 5 {
					for i := range in {
						in[i] = int32(value(c.rank, i+call))
					}
					if err := c.Do(&Call{Collective: schedule.AllReduce, Type: dtype.I32, Count: count, In: reduce.Bytes(in), Out: reduce.Bytes(out)}); err != nil {
						return err
					}
					if !c.direct.borrowed {
						return fmt.Errorf("an input of %d elements was not lent", count)
					}
					for i, got := range out {
						if want := int32(reduced(dtype.Sum, n, i+call)); got != want {
							return fmt.Errorf("call %d: element %d of %d is %d, want %d", call, i, count, got, want)
						}
					}
				}
			}
			return nil
		})
	}
}

// So do results of large calls, wherever they begin.
func TestOutputsPastTheCaches(t *testing.T) {
	for _, algorithm := range []string{"ring", "tree", "oneshot", "direct"} {
		together(t, 3, func(cfg *Config) { cfg.Algorithm = algorithm }, func(c *Comm) error {
			c.flooded = 0
			for _, count := range []int{1, 20_003, 150_001} {
				for _, k := range []schedule.Collective{schedule.AllReduce, schedule.AllGather, schedule.AllToAll, schedule.Broadcast} {
					if err := perform(c, Call{Collective: k, Count: count}); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}
