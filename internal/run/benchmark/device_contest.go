package benchmark

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
	"ringlane/internal/run/device"
)

// DeviceSweep says what to compare on GPUs: the built-in choice with fixed ones,
// for each collective and size.
type DeviceSweep struct {
	Options     // its Collective apart
	Collectives []schedule.Collective
	Limit       time.Duration // for all of it, about
}

// DeviceResult is what was compared for one size.
type DeviceResult struct {
	Collective string `json:"collective"`
	Bytes      int    `json:"bytes"` // as Row has them
	Count      int    `json:"count"`
	// Auto is the built-in choice, and Fixed those that came nearest to it or
	// before it, the fastest first: medians of replays, as of Row.
	Auto  Timed   `json:"auto"`
	Fixed []Timed `json:"fixed"`
	// Behind are fixed choices that a few calls showed to be behind, with the time
	// of those; LeftOut those that cannot be carried out.
	Behind  []Timed  `json:"behind,omitempty"`
	LeftOut []string `json:"left_out,omitempty"`
}

// Run compares on this rank and hands each result to emit on rank 0. All ranks
// call it with the same sweep.
func (s DeviceSweep) Run(d *device.Comm, c *communicator.Comm, emit func(DeviceResult) error) error {
	stream, err := d.Context().NewStream(cuda.Normal)
	if err != nil {
		return err
	}
	points := 0
	for _, k := range s.Collectives {
		points += len(s.sizes(k))
	}
	b := &deviceBench{Comm: d, host: c, Options: s.Options, stream: stream}
	for _, k := range s.Collectives {
		b.Collective = k
		for _, size := range s.sizes(k) {
			if err == nil {
				err = (&deviceContest{deviceBench: b}).hold(size, s.Limit/time.Duration(points), emit)
			}
		}
	}
	return errors.Join(err, b.inside(stream.Destroy))
}

func (s DeviceSweep) sizes(k schedule.Collective) []int {
	if k == schedule.Barrier {
		return []int{0}
	}
	return s.Sizes
}

// deviceContest times choices on one call, in turns, so that whatever else the
// machine does meets all of them alike.
type deviceContest struct {
	*deviceBench
	entries []*entry
	exact   []byte // what this rank's output must be
}

// entry is a choice in a contest. Times are nanoseconds of a call on the slowest
// rank, so that they are the same on all.
type entry struct {
	collective.DeviceCandidate
	fixed    bool
	screened float64 // by a few calls
	times    []float64
	replay   *cuda.Exec
	why      string // it cannot be carried out
}

const (
	screenReplays = 3
	screenCalls   = 4 // in a graph, of calls that are not small
	leastFinal    = 3 // besides the built-in choice
	mostFinal     = 8
	fewestTurns   = 2
	mostTurns     = 10
	turnReplays   = 3 // at least
)

// hold holds the contest for one size.
func (c *deviceContest) hold(size int, limit time.Duration, emit func(DeviceResult) error) (err error) {
	defer func() {
		for _, e := range c.entries {
			err = errors.Join(err, c.drop(e))
		}
		err = errors.Join(err, c.free())
	}()
	start := time.Now()
	if err := c.begin(size); err != nil {
		return err
	}
	for _, e := range c.entries {
		if err := c.admit(e); err != nil {
			return err
		}
	}
	final := c.promising()
	if err := c.race(final, start, limit); err != nil {
		return err
	}
	if err := c.Override(collective.DeviceOverride{}); err != nil || c.Rank() != 0 {
		return err
	}
	return emit(c.result(final))
}

// begin lists the entries, the built-in choice first, and verifies what that one
// gives, which the others must give too.
func (c *deviceContest) begin(size int) error {
	if err := c.prepare(size); err != nil {
		return err
	}
	if err := c.Override(collective.DeviceOverride{}); err != nil {
		return err
	}
	auto := &entry{DeviceCandidate: collective.DeviceCandidate{Choice: c.Describe(c.call)}}
	c.entries = []*entry{auto}
	for _, candidate := range c.Candidates(c.call) {
		if candidate.Choice == auto.Choice {
			auto.fixed = true
			continue
		}
		c.entries = append(c.entries, &entry{DeviceCandidate: candidate, fixed: true})
	}
	wrong, err := c.verify(c.perform)
	if err != nil {
		return err
	}
	if wrong > 0 {
		return c.wrong(auto, wrong)
	}
	c.exact = make([]byte, c.out)
	if c.out == 0 {
		return nil
	}
	return c.Context().CopyFrom(c.exact, c.call.Out)
}

func (c *deviceContest) wrong(e *entry, elements int64) error {
	return fmt.Errorf("%v of %d bytes by %v: %d elements are wrong (please report this with the machine's description)", c.Collective, c.row.Bytes, e.Choice, elements)
}

// admit verifies an entry, and times a few calls. One that any rank cannot carry
// out is out.
func (c *deviceContest) admit(e *entry) error {
	if err := c.Override(e.Override); err != nil {
		return err
	}
	ready := c.Ready(c.call)
	refused := []float64{0}
	if ready != nil {
		refused[0] = 1
	}
	if err := c.slowest(refused); err != nil {
		return err
	}
	if refused[0] != 0 {
		if e.why = "another rank cannot carry it out"; ready != nil {
			e.why = ready.Error()
		}
		return c.Err()
	}
	if err := c.compare(e); err != nil {
		return err
	}
	calls := screenCalls
	if c.row.Bytes <= small {
		calls = replayCalls
	}
	times, err := c.replayed(e, calls, screenReplays)
	if err != nil {
		return err
	}
	e.screened = slices.Min(times[1:])
	return c.drop(e)
}

// compare has a call give what the built-in choice gave.
func (c *deviceContest) compare(e *entry) error {
	if c.out > 0 {
		if err := c.Context().Set(c.call.Out, 0, uint64(c.out)); err != nil {
			return err
		}
	}
	if err := c.perform(); err != nil {
		return err
	}
	if err := c.Synchronize(c.stream); err != nil || c.out == 0 {
		return err
	}
	got := make([]byte, c.out)
	if err := c.Context().CopyFrom(got, c.call.Out); err != nil {
		return err
	}
	size := c.Type.Size()
	wrong := []int64{spread(c.Type, got, func(part []byte, first int) (n int64) {
		want := c.exact[first*size:][:len(part)]
		if bytes.Equal(part, want) {
			return 0
		}
		for i := 0; i < len(part); i += size {
			if !bytes.Equal(part[i:i+size], want[i:i+size]) {
				n++
			}
		}
		return n
	})}
	if err := c.host.Do(&communicator.Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: 1, In: reduce.Bytes(wrong), Out: reduce.Bytes(wrong)}); err != nil {
		return err
	}
	if wrong[0] > 0 {
		return c.wrong(e, wrong[0])
	}
	return nil
}

// replayed captures calls of an entry, whose override is in force, and times a few
// replays.
func (c *deviceContest) replayed(e *entry, calls, replays int) (times []float64, err error) {
	if e.replay, err = c.graph(calls); err != nil {
		return nil, err
	}
	return c.turn(e, calls, replays)
}

// turn times replays of an entry, whose override is in force.
func (c *deviceContest) turn(e *entry, calls, replays int) ([]float64, error) {
	times, err := c.timed(func() error { return e.replay.Launch(c.stream) }, replays)
	for i := range times {
		times[i] /= float64(calls)
	}
	return times, err
}

func (c *deviceContest) drop(e *entry) error {
	x := e.replay
	if e.replay = nil; x == nil {
		return nil
	}
	return c.inside(x.Destroy)
}

// promising are the built-in choice, and the few that the others did not leave far
// behind.
func (c *deviceContest) promising() []*entry {
	var able []*entry
	for _, e := range c.entries[1:] {
		if e.why == "" {
			able = append(able, e)
		}
	}
	slices.SortStableFunc(able, func(a, b *entry) int { return cmp.Compare(a.screened, b.screened) })
	final := c.entries[:1:1]
	for i, e := range able[:min(len(able), mostFinal)] {
		if i < leastFinal || e.screened <= hopeless*able[0].screened {
			final = append(final, e)
		}
	}
	return final
}

// race times the entries that are left, in turns, until the time is over.
func (c *deviceContest) race(final []*entry, start time.Time, limit time.Duration) error {
	calls := c.callsAtOnce()
	replays := make([]int, len(final))
	for turn := 0; ; turn++ {
		spent := []float64{float64(time.Since(start))}
		if err := c.slowest(spent); err != nil {
			return err
		}
		left := float64(limit) - spent[0]
		if turn >= mostTurns || turn >= fewestTurns && left < 0 {
			return nil
		}
		for i, e := range final {
			if err := c.Override(e.Override); err != nil {
				return err
			}
			if turn == 0 {
				times, err := c.replayed(e, calls, screenReplays) // warms up
				if err != nil {
					return err
				}
				share := left / mostTurns / float64(len(final))
				replays[i] = int(max(min(share/(times[screenReplays-1]*float64(calls)), mostReplays), turnReplays))
			}
			times, err := c.turn(e, calls, replays[i]+unsettled)
			if err != nil {
				return err
			}
			e.times = append(e.times, times[unsettled:]...)
		}
	}
}

// slowest makes values the greatest of all ranks.
func (c *deviceContest) slowest(values []float64) error {
	return c.host.Do(&communicator.Call{
		Collective: schedule.AllReduce, Type: dtype.F64, Op: dtype.Max, Count: len(values),
		In: reduce.Bytes(values), Out: reduce.Bytes(values),
	})
}

func (c *deviceContest) result(final []*entry) DeviceResult {
	r := DeviceResult{Collective: c.Collective.String(), Bytes: c.row.Bytes, Count: c.row.Count}
	for i, e := range final {
		slices.Sort(e.times)
		t := Timed{e.Choice.String(), e.times[len(e.times)/2] / 1e3}
		if i == 0 {
			r.Auto = t
		}
		if e.fixed {
			r.Fixed = append(r.Fixed, t)
		}
	}
	for _, e := range c.entries {
		switch {
		case e.why != "":
			r.LeftOut = append(r.LeftOut, fmt.Sprintf("%v: %s", e.Choice, e.why))
		case !slices.Contains(final, e):
			r.Behind = append(r.Behind, Timed{e.Choice.String(), e.screened / 1e3})
		}
	}
	for _, list := range [][]Timed{r.Fixed, r.Behind} {
		slices.SortStableFunc(list, func(a, b Timed) int { return cmp.Compare(a.Time, b.Time) })
	}
	return r
}
