package benchmark

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
	"ringlane/internal/run/device"
)

// contested runs body on two ranks as goroutines, with a contest each.
func contested(t *testing.T, body func(c *deviceContest) error) {
	t.Helper()
	gpus := len(cudatest.Open(t).Devices())
	t.Setenv("RINGLANE_DEVICE_WINDOW", "256K")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(rank int) (err error) {
		host, err := communicator.Join(communicator.Config{Rank: rank, Size: 2, Job: t.Name(), Rendezvous: dir, Timeout: 30 * time.Second})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, host.Close()) }()
		d, err := device.Join(host, rank%gpus)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		stream, err := d.Context().NewStream(cuda.Normal)
		if err != nil {
			return err
		}
		c := &deviceContest{deviceBench: &deviceBench{Comm: d, host: host, Options: Options{Type: dtype.F32}, stream: stream}}
		return errors.Join(body(c), c.free(), c.inside(stream.Destroy))
	}
	var ranks sync.WaitGroup
	for rank := range 2 {
		ranks.Go(func() {
			if err := run(rank); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	ranks.Wait()
}

// A choice whose sums are wrong fails the check, on all ranks, by its name.
func TestWrongChoiceFails(t *testing.T) {
	contested(t, func(c *deviceContest) error {
		if err := c.begin(4000); err != nil {
			return err
		}
		last := c.entries[len(c.entries)-1]
		if err := c.admit(last); err != nil {
			return err
		}
		if c.Rank() == 1 { // the next call sums up other numbers than the first
			if err := c.Context().Set(c.call.In, 0x40, 12); err != nil {
				return err
			}
		}
		err := c.admit(last)
		if err == nil || !strings.Contains(err.Error(), last.Choice.String()+": 6 elements are wrong") {
			t.Errorf("rank %d, 3 wrong numbers of %v: %v", c.Rank(), last.Choice, err)
		}
		return nil
	})
}

// A choice that one rank cannot carry out is left out on all, and the contest goes
// on.
func TestRefusedChoiceIsLeftOut(t *testing.T) {
	contested(t, func(c *deviceContest) error {
		if err := c.begin(4000); err != nil {
			return err
		}
		c.entries = c.entries[:4]
		no := &entry{fixed: true, DeviceCandidate: collective.DeviceCandidate{Override: collective.DeviceOverride{Algorithm: collective.Ring, Slots: true}}}
		no.Choice.Algorithm = collective.Ring
		c.entries[2] = no
		if c.Rank() == 1 {
			c.call.Root = 2 // out of range, for this rank alone
			c.call.Collective = schedule.Broadcast
		}
		if err := c.admit(no); err != nil {
			return err
		}
		c.call.Root, c.call.Collective = 0, schedule.AllReduce
		if no.why == "" {
			t.Errorf("rank %d: not left out", c.Rank())
		}
		for _, e := range slices.Concat(c.entries[:2], c.entries[3:]) {
			if err := c.admit(e); err != nil {
				return err
			}
		}
		final := c.promising()
		if slices.Contains(final, no) {
			t.Errorf("rank %d: what is left out is in the race", c.Rank())
		}
		if err := c.race(final, time.Now(), 0); err != nil {
			return err
		}
		r := c.result(final)
		for _, e := range final {
			if err := c.drop(e); err != nil {
				return err
			}
		}
		if len(r.LeftOut) != 1 || r.Auto.Time <= 0 || len(r.Fixed)+len(r.Behind) < 2 {
			t.Errorf("rank %d: %+v", c.Rank(), r)
		}
		return nil
	})
}
