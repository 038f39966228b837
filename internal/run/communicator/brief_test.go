package communicator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// wasBrief reports whether the last call was made in a straight line to its end.
func (c *Comm) wasBrief() bool { return c.direct.sequence != c.sequence }

// Brief calls of any size, alignment and operator are right, in place and not, also
// where a rank is late so that the others go on as operations, or has messages when it
// comes but no patience for answers, and between calls of other kinds, which use the same
// channels.
func TestBrief(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for n := 2; n <= 5; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			together(t, n, func(cfg *Config) { cfg.Staging = 4 << 20 }, func(c *Comm) error {
				rng, own := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, uint64(1+c.rank)))
				brief, resumed, impatient := 0, 0, 0
				spins := c.spins
				for i := range 400 {
					count := 1 + rng.IntN(1<<rng.IntN(14))
					op := []dtype.Op{dtype.Sum, dtype.Avg, dtype.Min, dtype.Max, dtype.Prod}[rng.IntN(5)]
					lateness := rng.IntN(10)
					other := rng.IntN(3)
					for repeat := range 3 {
						memory := make([]byte, 2*(4*count+64))
						in := memory[own.IntN(16):][:4*count]
						out := memory[len(memory)/2+own.IntN(16):][:4*count]
						if own.IntN(2) == 0 {
							out = in
						}
						want := make([]byte, 4*count)
						for k := range count {
							at := k + i + repeat
							put32(in[4*k:], value(c.rank, at))
							v := reduced(op, n, at)
							if op == dtype.Avg {
								v /= n
							}
							put32(want[4*k:], v)
						}
						late := lateness == c.rank && repeat == 2
						if late {
							time.Sleep(300 * time.Microsecond)
							c.spins = 0
						}
						call := Call{Collective: schedule.AllReduce, Type: dtype.I32, Op: op, Count: count, In: in, Out: out}
						if err := c.Do(&call); err != nil {
							return err
						}
						c.spins = spins
						asks := c.plans[call.slot()].brief.asks
						switch {
						case c.wasBrief():
							brief++
						case late && asks:
							impatient++
						case repeat == 2 && 4*count <= 2<<10:
							resumed++
						}
						if string(out) != string(want) {
							return fmt.Errorf("call %d.%d: %v of %d elements is wrong", i, repeat, op, count)
						}
					}
					switch other {
					case 0:
						if err := c.Do(&Call{Collective: schedule.Barrier}); err != nil {
							return err
						}
					case 1:
						b := make([]byte, 100)
						if err := c.Do(&Call{Collective: schedule.Broadcast, Type: dtype.U8, Count: 100, Root: i % n, In: b, Out: b}); err != nil {
							return err
						}
					}
				}
				if brief == 0 || resumed == 0 || impatient == 0 {
					return fmt.Errorf("%d calls were brief, %d went on as operations, %d for want of answers", brief, resumed, impatient)
				}
				return nil
			})
		})
	}
}

// The same of AllReduce with answers, with buffers in windows and not, by ranks that have all
// the patience in the world: more of them than cores seldom come at the same time.
func TestBriefAnswers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for n := 2; n <= 4; n++ {
		together(t, n, nil, func(c *Comm) error {
			c.spins = 1 << 24
			rng, own := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, uint64(1+c.rank)))
			for i := range 12 {
				call := Call{Collective: schedule.AllReduce, Type: dtype.I32, Op: dtype.Sum, Count: 1<<11 - rng.IntN(256)}
				for repeat := range 2 {
					if err := lendAndSpoil(c, call, own, i%3 == 0); err != nil {
						return err
					}
					if !c.plans[call.slot()].brief.asks || repeat > 0 && !c.wasBrief() {
						return fmt.Errorf("%d ranks: call %d.%d was not brief", n, i, repeat)
					}
				}
			}
			return nil
		})
	}
}

// The same of every collective, with buffers in windows and not.
func TestBriefOfEveryKind(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			together(t, n, func(cfg *Config) { cfg.Staging = 4 << 20 }, func(c *Comm) error {
				rng, own := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, uint64(1+c.rank)))
				kinds := []schedule.Collective{
					schedule.AllReduce, schedule.Reduction, schedule.ReduceScatter, schedule.Broadcast,
					schedule.AllGather, schedule.Gather, schedule.Scatter, schedule.AllToAll,
				}
				brief := map[schedule.Collective]int{}
				for range 150 {
					call := Call{Collective: kinds[rng.IntN(len(kinds))], Type: dtype.I32, Count: 1 + rng.IntN(1<<rng.IntN(12)), Root: rng.IntN(n)}
					call.Op = []dtype.Op{dtype.Sum, dtype.Max}[rng.IntN(2)]
					lateness := rng.IntN(10)
					for repeat := range 3 {
						if lateness == c.rank && repeat == 2 {
							time.Sleep(300 * time.Microsecond)
						}
						if err := lendAndSpoil(c, call, own, false); err != nil {
							return err
						}
						if c.wasBrief() {
							brief[call.Collective]++
						}
					}
				}
				for _, kind := range kinds {
					if brief[kind] == 0 {
						return fmt.Errorf("no call was brief of %v", kind)
					}
				}
				return nil
			})
		})
	}
}

func put32(b []byte, v int) { binary.LittleEndian.PutUint32(b, uint32(v)) }

// The first call that waits for its end may be brief, if one like it was started before.
func TestBriefAfterStart(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		b := make([]byte, 8)
		call := Call{Collective: schedule.AllReduce, Type: dtype.F32, Count: 2, In: b, Out: b}
		request, err := c.Start(call)
		if err != nil {
			return err
		}
		if err := request.Wait(0); err != nil {
			return err
		}
		if c.rank == 1 {
			time.Sleep(20 * time.Millisecond)
		}
		return c.Do(&call)
	})
}

// Ranks that make different brief calls, of the same length, are told.
func TestBriefDisagreement(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		call := func(op dtype.Op) error {
			b := make([]byte, 8)
			return c.Do(&Call{Collective: schedule.AllReduce, Type: dtype.F32, Op: op, Count: 2, In: b, Out: b})
		}
		if err := errors.Join(call(dtype.Sum), call(dtype.Max)); err != nil {
			return err
		}
		if err := call([]dtype.Op{dtype.Sum, dtype.Max}[c.rank]); !errors.Is(err, Mismatch) {
			return fmt.Errorf("one rank adds, the other compares, and is told %w", err)
		}
		return nil
	})
}

// A call is not brief while there is anything else to do, or to know.
func TestNotBrief(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		b := make([]byte, 8)
		call := Call{Collective: schedule.AllReduce, Type: dtype.F32, Count: 2, In: b, Out: b}
		if err := c.Do(&call); err != nil {
			return err
		}
		for name, change := range map[string]func(back bool){
			"a call is under way": func(back bool) {
				c.queue = append(c.queue[:0], &operation{})
				if back {
					c.queue = c.queue[:0]
				}
			},
			"a message is under way": func(back bool) {
				c.lanes.open = 1
				if back {
					c.lanes.open = 0
				}
			},
			"something has been started": func(back bool) { c.inboxFull.Store(!back) },
			"the communicator has failed": func(back bool) {
				c.failed.Store(&Error{})
				if back {
					c.failed.Store(nil)
				}
			},
		} {
			change(false)
			if p := c.briefly(&call); p != nil {
				return fmt.Errorf("%s, and yet a call is brief", name)
			}
			change(true)
			if p := c.briefly(&call); p == nil {
				return fmt.Errorf("%s no longer, and yet a call is not brief", name)
			}
		}
		return nil
	})
}

// What is wrong with a call is the same error whether it follows one like it or not.
func TestBriefErrors(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		memory := make([]byte, 128)
		call := Call{Collective: schedule.AllReduce, Type: dtype.F32, Count: 8, In: memory[:32], Out: memory[32:64]}
		brief := 0
		for range 100 {
			for _, wrong := range []Call{
				{Collective: schedule.AllReduce, Type: dtype.F32, Count: 8, In: memory[:28], Out: memory[32:64]},
				{Collective: schedule.AllReduce, Type: dtype.F32, Count: 8, In: memory[:32], Out: memory[32:60]},
				{Collective: schedule.AllReduce, Type: dtype.F32, Count: 8, In: memory[:32], Out: memory[28:60]},
			} {
				if err := c.Do(&wrong); !errors.Is(err, Argument) {
					return fmt.Errorf("%v, want an error of the arguments", err)
				}
			}
			if err := c.Do(&call); err != nil {
				return err
			}
			if c.wasBrief() {
				brief++
			}
		}
		if brief == 0 {
			return errors.New("no call was brief")
		}
		return nil
	})
}

// A rank that stays away from a brief call is named, and one that comes late is
// waited for.
func TestBriefDeadline(t *testing.T) {
	const timeout = 300 * time.Millisecond
	together(t, 3, func(cfg *Config) { cfg.Timeout = timeout }, func(c *Comm) error {
		b := make([]byte, 8)
		call := Call{Collective: schedule.AllReduce, Type: dtype.F32, Count: 2, In: b, Out: b}
		for range 3 {
			if err := c.Do(&call); err != nil {
				return err
			}
		}
		if c.rank == 1 {
			time.Sleep(timeout / 3)
		}
		if err := c.Do(&call); err != nil {
			return err
		}
		if c.rank == 1 {
			time.Sleep(2 * timeout)
			return nil
		}
		began := time.Now()
		err := c.Do(&call)
		if took := time.Since(began); !errors.Is(err, Timeout) && !errors.Is(err, Closed) || took > 2*timeout {
			return fmt.Errorf("after %v: %v, want a timeout", took, err)
		}
		for _, want := range []string{"allreduce of 2 × f32 sum (collective #5)", "rank 1 (pid"} {
			if !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%q is missing in: %w", want, err)
			}
		}
		return nil
	})
}
