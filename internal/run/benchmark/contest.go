package benchmark

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// contest times several tables on one call, in turns, so that whatever else the
// machine does meets all of them alike.
type contest struct {
	*bench
	tables  []collective.Table
	rounds  [][]float64 // of each table: the median of each round, in ns
	fastest []float64   // of each table: its fastest call, in ns
	calls   []int       // timed calls a round
}

const (
	fewestRounds = 2 // before the hopeless are dropped
	firstCalls   = 5
	mostRounds   = 40
	mostCalls    = 1000
	// hopeless is how many times slower than the best a table's fastest call may be
	// in the first rounds for it to be asked again.
	hopeless = 1.6
)

// hold runs the contest for about the given time and returns a time for each
// table, in ns: the lower quartile of its rounds' medians, since what disturbs a
// round only ever adds to it. All ranks get the same times. Every table's
// results are verified.
func (c *contest) hold(limit time.Duration) ([]float64, error) {
	n := len(c.tables)
	c.rounds, c.fastest, c.calls = make([][]float64, n), make([]float64, n), make([]int, n)
	base := c.Table()
	defer func() { c.Use(base) }()
	if err := c.verifyAll(); err != nil {
		return nil, err
	}
	start := time.Now()
	alive := make([]int, n)
	for i := range alive {
		alive[i], c.calls[i], c.fastest[i] = i, firstCalls, math.Inf(1)
	}
	for round := 0; ; round++ {
		elapsed, err := c.round(alive, start)
		if err != nil {
			return nil, err
		}
		if round == fewestRounds-1 {
			alive = c.promising(limit, elapsed)
		}
		if left := limit - elapsed; round+1 >= mostRounds || round+1 >= fewestRounds && left <= elapsed/time.Duration(round+1) {
			break
		}
	}
	times := make([]float64, n)
	for i, medians := range c.rounds {
		slices.Sort(medians)
		times[i] = medians[len(medians)/4]
	}
	return times, nil
}

// promising drops the tables that the first rounds showed to be far behind, and
// settles how many calls the others make in each round.
func (c *contest) promising(limit, elapsed time.Duration) (alive []int) {
	best := slices.Min(c.fastest)
	for i, t := range c.fastest {
		if t <= hopeless*best {
			alive = append(alive, i)
		}
	}
	// Some ten rounds, of calls that take about twice their own time with the
	// barrier before each.
	share := float64(limit-elapsed) / 10 / float64(len(alive))
	for _, i := range alive {
		c.calls[i] = max(3, min(int(share/(2*slices.Min(c.rounds[i]))), mostCalls))
	}
	return alive
}

// round times one turn of each table that is alive and returns how long the
// contest has taken on the slowest rank.
func (c *contest) round(alive []int, start time.Time) (time.Duration, error) {
	var times []float64
	barrier := communicator.Call{Collective: schedule.Barrier}
	for _, i := range alive {
		c.Use(c.tables[i])
		for k := -1; k < c.calls[i]; k++ { // the first one brings caches into its state
			if err := c.Do(&barrier); err != nil {
				return 0, err
			}
			begin := time.Now()
			if err := c.perform(); err != nil {
				return 0, err
			}
			if k >= 0 {
				times = append(times, float64(time.Since(begin)))
			}
		}
	}
	times = append(times, float64(time.Since(start)))
	slowest, err := c.reduce(times, dtype.Max)
	if err != nil {
		return 0, err
	}
	rest := slowest
	for _, i := range alive {
		turn := rest[:c.calls[i]]
		rest = rest[c.calls[i]:]
		slices.Sort(turn)
		c.rounds[i] = append(c.rounds[i], turn[len(turn)/2])
		c.fastest[i] = min(c.fastest[i], turn[0])
	}
	return time.Duration(rest[0]), nil
}

// reduce combines values of all ranks, by the built-in table.
func (c *contest) reduce(values []float64, op dtype.Op) ([]float64, error) {
	c.Use(collective.Defaults())
	all := make([]float64, len(values))
	err := c.Do(&communicator.Call{
		Collective: schedule.AllReduce, Type: dtype.F64, Op: op, Count: len(values),
		In: reduce.Bytes(values), Out: reduce.Bytes(all),
	})
	return all, err
}

// verifyAll checks the result of the first table against exact arithmetic and
// those of the others against the first one's.
func (c *contest) verifyAll() error {
	if c.Collective == schedule.Barrier {
		return nil
	}
	c.Use(c.tables[0])
	if err := c.verify(); err != nil {
		return err
	}
	wrong := make([]float64, len(c.tables))
	wrong[0] = float64(c.row.Wrong)
	exact := bytes.Clone(c.call.Out)
	for i, t := range c.tables[1:] {
		clear(c.call.Out)
		c.Use(t)
		if err := c.perform(); err != nil {
			return err
		}
		if !bytes.Equal(c.call.Out, exact) {
			wrong[i+1] = 1
		}
	}
	wrong, err := c.reduce(wrong, dtype.Sum)
	if err != nil {
		return err
	}
	for i, w := range wrong {
		if w != 0 {
			return fmt.Errorf("%v of %d bytes by %v: wrong results (please report this with the machine's description)", c.Collective, c.row.Bytes, c.tables[i])
		}
	}
	return nil
}

// compare holds a contest of tables at one point.
func compare(c *communicator.Comm, p point, tables []collective.Table, limit time.Duration) (times []float64, err error) {
	o := Options{Collective: p.collective, Type: dtype.F32, Op: dtype.Sum, Window: p.window}
	b, err := newBench(c, o, p.bytes*parts(p.collective, c.Size()))
	if err == nil {
		times, err = (&contest{bench: b, tables: tables}).hold(limit)
	}
	return times, errors.Join(err, b.free())
}
