package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"ringlane/internal/logic/collective"
	"ringlane/internal/logic/cost"
	"ringlane/internal/model/bytesize"
	"ringlane/internal/run/benchmark"
	"ringlane/internal/run/communicator"
	"ringlane/internal/run/launch"
	"ringlane/internal/run/tuning"
)

// tableResult is a table as JSON.
type tableResult struct {
	Machine *tuning.Machine `json:"machine,omitempty"`
	Sources []string        `json:"sources"`
	Tune    string          `json:"tune"` // as RINGLANE_TUNE takes it
	Rules   []ruleResult    `json:"rules"`
}

// ruleResult is a rule as JSON; what is null bounds nothing.
type ruleResult struct {
	Collectives []string `json:"collectives"` // null: all that have the algorithm
	MaxRanks    *int     `json:"max_ranks"`
	MaxBytes    *int     `json:"max_bytes"`
	Algorithm   string   `json:"algo"`
	Protocol    string   `json:"protocol"`
	Segment     *int     `json:"segment_bytes"` // null: what fills a slot
}

func newTableResult(t collective.Table, sources []string) tableResult {
	bound := func(n, none int) *int {
		if n == none {
			return nil
		}
		return &n
	}
	r := tableResult{Sources: sources, Tune: t.String()}
	for _, rule := range t {
		var names []string
		for _, c := range rule.Collectives {
			names = append(names, c.String())
		}
		r.Rules = append(r.Rules, ruleResult{
			names, bound(rule.MaxRanks, collective.NoLimit), bound(rule.MaxBytes, collective.NoLimit),
			rule.Algorithm, rule.Protocol, bound(rule.Segment, 0),
		})
	}
	return r
}

// tableInForce is what rank 0 of a job would choose by.
func tableInForce() (tuning.InForce, tuning.Machine, error) {
	machine := tuning.ThisMachine("", communicator.Version)
	found, err := tuning.Find(os.Getenv(tuning.Variable), machine)
	if err != nil {
		err = fmt.Errorf("%s: %w", tuning.Variable, err)
	}
	return found, machine, err
}

func showTable(f benchFlags, args []string, out io.Writer) error {
	if f.tune || f.check || len(args) > 0 {
		return usagef("--table stands alone (it prints the whole table in force)")
	}
	found, machine, err := tableInForce()
	if err != nil {
		return err
	}
	if found.Warning != nil {
		fmt.Fprintf(os.Stderr, "ringlane bench: %v\n", found.Warning)
	}
	if f.json {
		r := newTableResult(found.Table, found.Sources)
		r.Machine = &machine
		return writeJSON(out, r)
	}
	writeTable(out, "in force", found.Table, found.Sources)
	fmt.Fprintf(out, "# as one string: %s\n", found.Table)
	return nil
}

func writeTable(out io.Writer, what string, t collective.Table, sources []string) {
	fmt.Fprintf(out, "# %s:", what)
	for i, s := range sources {
		if i > 0 {
			fmt.Fprint(out, ", then")
		}
		fmt.Fprintf(out, " %s", s)
	}
	fmt.Fprintf(out, "\n%s", t.Text())
}

func writeJSON(out io.Writer, document any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(document)
}

// sweepLargest is where --tune and --check end: beyond, a call is a sequence of
// slots like those before.
const sweepLargest = 8 << 20

// sweep is what --tune or --check measures.
func (f *benchFlags) sweep(args []string) (s benchmark.Sweep, ranks []int, err error) {
	if f.inPlace || f.window || f.changed("algo") || f.changed("protocol") || f.changed("dtype") || f.changed("op") || f.changed("iters") {
		return s, nil, usagef("--tune and --check compare all choices, in both kinds of memory, on sums of f32 (leave --algo, --protocol, --dtype, --op, --iters, --in-place and --window out)")
	}
	if f.within <= 0 {
		return s, nil, usagef("--within %v: it must be positive", f.within)
	}
	if !f.changed("max") {
		f.largest = bytesize.Format(sweepLargest)
	}
	if f.tune && !f.changed("factor") {
		f.factor = 2
	}
	if f.ranks == "auto" { // every power of two that has cores, and all cores
		f.ranks = "2"
		cores := min(launch.Cores(), communicator.MaxRanks)
		for n := 4; n <= cores; n *= 2 {
			f.ranks += "," + strconv.Itoa(n)
		}
		if cores > 2 && cores&(cores-1) != 0 {
			f.ranks += "," + strconv.Itoa(cores)
		}
	}
	o, ranks, err := f.options(args)
	if err != nil {
		return s, nil, err
	}
	if slices.Contains(ranks, 1) {
		return s, nil, usagef("-n %s: a single rank has no choice (write 2 or more)", f.ranks)
	}
	s.Sizes, s.Limit = o.Sizes, f.within
	slices.Sort(s.Sizes)
	s.Sizes = slices.Compact(s.Sizes)
	s.Collectives, err = contested(args, o.Collective)
	return s, ranks, err
}

// tuneResult is the JSON of --tune.
type tuneResult struct {
	Machine  benchmark.Machine          `json:"machine"`
	Before   tableResult                `json:"before"`
	After    tableResult                `json:"after"`
	ModelOff float64                    `json:"model_off"` // mean of |ln(model/measured)|
	Measured map[int][]benchmark.Result `json:"measured"`  // by number of ranks
}

func tune(f benchFlags, args []string, out, progress io.Writer) error {
	s, ranks, err := f.sweep(args)
	if err != nil {
		return err
	}
	if f.tune {
		if err := f.measureTable(s, ranks, out, progress); err != nil || !f.check {
			return err
		}
	}
	return f.checkTable(s, ranks, out, progress)
}

// compare runs a sweep on n ranks.
func (f *benchFlags) compare(s benchmark.Sweep, n int, progress io.Writer) (results []benchmark.Result, err error) {
	verb := "tune"
	if s.Check {
		verb = "check"
	}
	start := time.Now()
	last := ""
	err = f.start(n, benchTask{Sweep: &s}, func(line []byte, _ launch.Binding) error {
		var r benchmark.Result
		err := json.Unmarshal(line, &r)
		if r.Collective != last {
			last = r.Collective
			fmt.Fprintf(progress, "%s, %d ranks, %2.0f of %.0f s: %s\n", verb, n, time.Since(start).Seconds(), s.Limit.Seconds(), last)
		}
		results = append(results, r)
		return err
	})
	return results, err
}

// measureTable measures, corrects the model's table and keeps it.
func (f *benchFlags) measureTable(s benchmark.Sweep, ranks []int, out, progress io.Writer) error {
	before, machine, err := tableInForce()
	if err != nil {
		return err
	}
	path, err := machine.Path()
	if err != nil {
		return err
	}
	// What else was measured here stays; a file that cannot be read is replaced.
	file, _, err := tuning.Load(path, machine)
	if err != nil {
		file = tuning.File{Machine: machine, Parameters: cost.Reference()}
		file.Parameters.Cores = launch.Cores()
	}
	now := time.Now()
	result := tuneResult{Machine: benchmark.ThisMachine(now), Before: newTableResult(before.Table, before.Sources), Measured: map[int][]benchmark.Result{}}
	var observed []cost.Observation
	for _, n := range ranks {
		results, err := f.compare(s, n, progress)
		if err != nil {
			return err
		}
		rules, seen, err := benchmark.Rules(n, launch.Cores(), results)
		if err != nil {
			return err
		}
		if err := file.Correct(n, rules); err != nil {
			return err
		}
		observed = append(observed, seen...)
		result.Measured[n] = results
	}
	file.Date = now.UTC().Format(time.DateOnly)
	file.Parameters, result.ModelOff = file.Parameters.Fit(observed)
	after, err := file.Rebuild()
	if err != nil {
		return err
	}
	if err := file.Save(path); err != nil {
		return err
	}
	sources := []string{path + ", measured " + file.Date}
	result.After = newTableResult(after, sources)
	if f.json {
		return writeJSON(out, result)
	}
	writeTable(out, "before", before.Table, before.Sources)
	writeTable(out, "after", after, sources)
	fmt.Fprintf(out, "# the model, fitted to this, is off by %.0f%% on average\n", 100*result.ModelOff)
	return nil
}

// checkResult is the JSON of --check.
type checkResult struct {
	Machine benchmark.Machine  `json:"machine"`
	Table   tableResult        `json:"table"`
	Checked map[int][]verdict  `json:"checked"` // by number of ranks
	Worst   map[string]verdict `json:"worst"`   // by collective
}

// verdict compares the table with the best of the fixed choices.
type verdict struct {
	Ranks      int             `json:"ranks"`
	Collective string          `json:"collective"`
	Bytes      int             `json:"bytes"`
	Memory     string          `json:"memory"`
	Auto       benchmark.Timed `json:"auto"`
	Best       benchmark.Timed `json:"best"`
	Ratio      float64         `json:"ratio"` // auto to best
}

func newVerdict(n int, r benchmark.Result) (verdict, error) {
	if r.Auto == nil || len(r.Choices) == 0 {
		return verdict{}, errors.New("a rank reported no comparison")
	}
	best := r.Choices[0]
	for _, c := range r.Choices {
		if c.Time < best.Time {
			best = c
		}
	}
	return verdict{n, r.Collective, r.Bytes, r.Memory, *r.Auto, best, r.Auto.Time / best.Time}, nil
}

func (f *benchFlags) checkTable(s benchmark.Sweep, ranks []int, out, progress io.Writer) error {
	found, _, err := tableInForce()
	if err != nil {
		return err
	}
	s.Check = true
	result := checkResult{
		Machine: benchmark.ThisMachine(time.Now()), Table: newTableResult(found.Table, found.Sources),
		Checked: map[int][]verdict{}, Worst: map[string]verdict{},
	}
	table := out
	if f.json {
		table = io.Discard
	}
	writeTable(table, "checked", found.Table, found.Sources)
	fmt.Fprintf(table, "# %5s  %-13s  %8s  %-8s  %-24s %10s  %-18s %10s  %6s\n", "ranks", "collective", "size", "memory", "auto", "us", "best fixed", "us", "ratio")
	line := func(v verdict) {
		fmt.Fprintf(table, "%7d  %-13s  %8s  %-8s  %-24s %10.2f  %-18s %10.2f  %6.2f\n", v.Ranks, v.Collective, bytesize.Format(v.Bytes), v.Memory, v.Auto.Choice, v.Auto.Time, v.Best.Choice, v.Best.Time, v.Ratio)
	}
	var order []string
	for _, n := range ranks {
		results, err := f.compare(s, n, progress)
		if err != nil {
			return err
		}
		for _, r := range results {
			v, err := newVerdict(n, r)
			if err != nil {
				return err
			}
			line(v)
			result.Checked[n] = append(result.Checked[n], v)
			worst, known := result.Worst[v.Collective]
			if !known {
				order = append(order, v.Collective)
			}
			if v.Ratio > worst.Ratio {
				result.Worst[v.Collective] = v
			}
		}
	}
	if f.json {
		return writeJSON(out, result)
	}
	fmt.Fprintln(out, "# where it loses most, by collective")
	for _, name := range order {
		line(result.Worst[name])
	}
	return nil
}
