package communicator

import (
	"runtime"
	"testing"

	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// Whoever sleeps is rung when what it waits for is there, whichever way that goes; its naps
// would end some time anyhow.
func TestSleepersAreRung(t *testing.T) {
	reduce := func(count int) func(c *Comm) error {
		return func(c *Comm) error {
			return c.Do(&Call{Collective: schedule.AllReduce, Type: dtype.U8, Count: count, In: make([]byte, count), Out: make([]byte, count)})
		}
	}
	for name, way := range map[string]struct {
		algorithm string
		call      func(c *Comm) error
	}{
		"brief":   {"oneshot", reduce(8)},
		"answers": {"direct", reduce(4096)},
		"long":    {"direct", reduce(100_000)},
		"ring":    {"ring", reduce(4096)},
		"message": {"", func(c *Comm) error {
			if c.rank == 0 {
				return c.Send(make([]byte, 100), dtype.U8, 1, 0)
			}
			_, err := c.Recv(make([]byte, 100), dtype.U8, 0, 0)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			const calls = 20 // the sleeper may just look around at one of them
			rung := 0
			together(t, 2, func(cfg *Config) { cfg.Algorithm = way.algorithm }, func(c *Comm) error {
				bell := c.peers[1].control.mem[controlBell:]
				rings, asleep := sys.Word32(bell, 0), sys.Word32(bell, 4)
				for range calls {
					before := rings.Load()
					for c.rank == 0 && asleep.Load() == 0 && c.peers[1].control.state.Load() == stateUp {
						runtime.Gosched()
					}
					if err := way.call(c); err != nil {
						return err
					}
					if c.rank == 0 && rings.Load() != before {
						rung++
					}
				}
				return nil
			})
			if rung < calls/2 {
				t.Errorf("rung in %d of %d calls", rung, calls)
			}
		})
	}
}
