package benchmark

import (
	"slices"
	"time"

	"ringlane/internal/logic/collective"
	"ringlane/internal/logic/cost"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// Sweep says what to compare, collective by collective and size by size, in
// ordinary memory and in a window.
type Sweep struct {
	Collectives []schedule.Collective
	// Sizes are bytes as collective.Table counts them, in ascending order; the
	// last one bounds a rank's larger buffer too.
	Sizes []int
	Limit time.Duration // for all of it
	// Check compares the table in force with each algorithm and protocol;
	// otherwise all that the tuner can choose are compared.
	Check bool
}

// Result is what was compared for one size in one kind of memory.
type Result struct {
	Collective string `json:"collective"`
	Bytes      int    `json:"bytes"` // as collective.Table counts them
	Memory     string `json:"memory"`
	// Auto is the table in force, where it is checked.
	Auto    *Timed  `json:"auto,omitempty"`
	Choices []Timed `json:"choices"`
}

// Timed is a choice and the time of a call in microseconds.
type Timed struct {
	Choice string  `json:"choice"`
	Time   float64 `json:"us"`
}

// Kinds of memory that buffers lie in.
const (
	Ordinary = "ordinary"
	Window   = "window"
)

// Memory names the kind of memory of the buffers.
func (o Options) Memory() string {
	if o.Window {
		return Window
	}
	return Ordinary
}

type point struct {
	collective schedule.Collective
	bytes      int
	window     bool
}

// weight is the share of the time that a point gets: calls of large messages
// are few in any time.
func (p point) weight() time.Duration {
	if p.bytes >= 1<<20 {
		return 3
	}
	return 1
}

// points lists what a sweep compares among ranks.
func (s Sweep) points(ranks int, window bool) (all []point) {
	for _, k := range s.Collectives {
		if k == schedule.Barrier {
			all = append(all, point{k, 1, false})
			continue
		}
		for _, bytes := range s.Sizes {
			if bytes*parts(k, ranks) > s.Sizes[len(s.Sizes)-1] {
				break
			}
			all = append(all, point{k, bytes, false})
			if window && bytes >= cost.LendFrom {
				all = append(all, point{k, bytes, true})
			}
		}
	}
	return all
}

// Run compares on this rank and hands each result to emit on rank 0. All ranks
// call it with the same sweep.
func (s Sweep) Run(c *communicator.Comm, emit func(Result) error) error {
	window, err := lends(c)
	if err != nil {
		return err
	}
	points := s.points(c.Size(), window)
	var weights time.Duration
	for _, p := range points {
		weights += p.weight()
	}
	for _, p := range points {
		choices := cost.Candidates(p.collective, p.bytes)
		fixed := len(choices)
		auto := 0
		if s.Check {
			// What the table chooses may be a fixed choice itself.
			choice := c.Table().Choose(p.collective, c.Size(), p.bytes)
			if auto = slices.Index(choices, choice); auto < 0 {
				auto, choices = fixed, append(choices, choice)
			}
		} else {
			for _, choice := range choices {
				choices = append(choices, cost.Segments(choice, c.Size(), p.bytes)...)
			}
			fixed = len(choices)
		}
		tables := make([]collective.Table, len(choices))
		for i, choice := range choices {
			tables[i] = always(p.collective, choice)
		}
		times, err := compare(c, p, tables, s.Limit*p.weight()/weights)
		if err != nil {
			return err
		}
		if c.Rank() != 0 {
			continue
		}
		r := Result{Collective: p.collective.String(), Bytes: p.bytes, Memory: Options{Window: p.window}.Memory()}
		for i, choice := range choices[:fixed] {
			r.Choices = append(r.Choices, Timed{choice.String(), times[i] / 1e3})
		}
		if s.Check {
			r.Auto = &Timed{choices[auto].String(), times[auto] / 1e3}
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	return nil
}

// always is a table that makes one choice for a collective, and the built-in
// ones for the rest.
func always(k schedule.Collective, choice collective.Choice) collective.Table {
	one := collective.Rule{Collectives: []schedule.Collective{k}, MaxRanks: collective.NoLimit, MaxBytes: collective.NoLimit, Choice: choice}
	return append(collective.Table{one}, collective.Defaults()...)
}

// lends reports whether all ranks have buffers in a window.
func lends(c *communicator.Comm) (bool, error) {
	own := []byte{1}
	m, err := communicator.Alloc(1)
	if err != nil {
		own[0] = 0
	} else if err := communicator.Free(m); err != nil {
		return false, err
	}
	all := []byte{0}
	err = c.Do(&communicator.Call{Collective: schedule.AllReduce, Type: dtype.U8, Op: dtype.Min, Count: 1, In: own, Out: all})
	return all[0] == 1, err
}

// Rules are what results among ranks on a number of cores say: for each
// collective the rules for that number of ranks, and what a model of the machine
// can be fitted to.
func Rules(ranks, cores int, results []Result) (rules collective.Table, observed []cost.Observation, err error) {
	points := map[schedule.Collective][]cost.Point{}
	var order []schedule.Collective
	for _, r := range results {
		k, err := schedule.ParseCollective(r.Collective)
		if err != nil {
			return nil, nil, err
		}
		of := points[k]
		if of == nil {
			order = append(order, k)
		}
		if len(of) == 0 || of[len(of)-1].Bytes != r.Bytes {
			of = append(of, cost.Point{Bytes: r.Bytes, Times: map[collective.Choice][]float64{}})
		}
		points[k] = of
		times := of[len(of)-1].Times
		for _, t := range r.Choices {
			choice, err := collective.ParseChoice(t.Choice)
			if err != nil {
				return nil, nil, err
			}
			times[choice] = append(times[choice], t.Time*1e3)
			if choice.Segment == 0 {
				call := cost.Call{Collective: k, Ranks: ranks, Bytes: r.Bytes, Choice: choice, Window: r.Memory == Window}
				observed = append(observed, cost.Observation{Call: call, Time: t.Time * 1e3})
			}
		}
	}
	slack := cost.Slack
	if ranks > cores {
		slack = cost.SharedSlack
	}
	for _, k := range order {
		for _, rule := range cost.Rules(points[k], slack) {
			rule.Collectives = []schedule.Collective{k}
			rules = append(rules, rule)
		}
	}
	return rules, observed, nil
}
