package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"ringlane/internal/model/bytesize"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/benchmark"
	"ringlane/internal/run/launch"
)

// deviceCheckResult is the JSON of --check with --device cuda.
type deviceCheckResult struct {
	Machine benchmark.Machine        `json:"machine"`
	Dtype   string                   `json:"dtype"`
	Op      string                   `json:"op"`
	Setup   map[int]benchmark.Setup  `json:"setup"`   // by number of ranks
	Checked map[int][]deviceVerdict  `json:"checked"` // by number of ranks
	Worst   map[string]deviceVerdict `json:"worst"`   // by collective
}

// deviceVerdict compares the built-in choice with the best of the fixed ones.
type deviceVerdict struct {
	Ranks int `json:"ranks"`
	benchmark.DeviceResult
	Ratio float64 `json:"ratio"` // auto to the best
}

// deviceSweep is what --check measures on GPUs.
func (f *benchFlags) deviceSweep(args []string) (s benchmark.DeviceSweep, ranks []int, err error) {
	for _, flag := range []string{"algo", "protocol", "iters", "in-place", "window", "graph"} {
		if f.changed(flag) {
			return s, nil, usagef("--check compares all choices in CUDA graphs, out of place (leave --%s out)", flag)
		}
	}
	if f.within <= 0 {
		return s, nil, usagef("--within %v: it must be positive", f.within)
	}
	if s.Options, ranks, err = f.options(args); err != nil {
		return s, nil, err
	}
	for _, n := range ranks {
		if n == 1 {
			return s, nil, usagef("-n %s: a single rank has no choice (write 2 or more)", f.ranks)
		}
	}
	s.Limit = f.within
	s.Collectives, err = contested(args, s.Collective)
	return s, ranks, err
}

// contested are the collectives that --tune and --check compare: the one that is
// named, or all that have a choice.
func contested(args []string, named schedule.Collective) (all []schedule.Collective, err error) {
	switch {
	case len(args) == 1 && named == schedule.SendRecv:
		return nil, usagef("sendrecv has no choice of algorithm (name another collective, or none for all)")
	case len(args) == 1:
		return []schedule.Collective{named}, nil
	}
	for _, c := range schedule.Collectives {
		if c != schedule.SendRecv {
			all = append(all, c)
		}
	}
	return all, nil
}

func (f *benchFlags) checkDevice(args []string, out, progress io.Writer) error {
	s, ranks, err := f.deviceSweep(args)
	if err != nil {
		return err
	}
	result := deviceCheckResult{
		Machine: benchmark.ThisMachine(time.Now()), Dtype: s.Type.String(), Op: s.Op.String(),
		Setup: map[int]benchmark.Setup{}, Checked: map[int][]deviceVerdict{}, Worst: map[string]deviceVerdict{},
	}
	table := out
	if f.json {
		table = io.Discard
	} else {
		progress = io.Discard // rows tell
	}
	fmt.Fprintf(table, "# %s %s, cuda; %s, %d cores, Linux %s, %s\n", result.Dtype, result.Op, result.Machine.CPU, result.Machine.Cores, result.Machine.Kernel, result.Machine.Date)
	var order []string
	for _, n := range ranks {
		setup := true
		start := time.Now()
		err := f.start(n, benchTask{DeviceSweep: &s, Device: f.device, GPUs: f.gpusOf(n)}, func(line []byte, _ launch.Binding) error {
			if setup {
				setup = false
				var found benchmark.Setup
				err := json.Unmarshal(line, &found)
				result.Setup[n] = found
				deviceSetup(table, found)
				deviceVerdictHeader(table)
				return err
			}
			v := deviceVerdict{Ranks: n}
			if err := json.Unmarshal(line, &v.DeviceResult); err != nil {
				return err
			}
			if len(v.Fixed) == 0 {
				return fmt.Errorf("%s of %d bytes: there was no fixed choice to compare with", v.Collective, v.Bytes)
			}
			v.Ratio = v.Auto.Time / v.Fixed[0].Time
			deviceVerdictRow(table, v)
			fmt.Fprintf(progress, "check, %d ranks, %2.0f of %.0f s: %s of %s\n", n, time.Since(start).Seconds(), s.Limit.Seconds(), v.Collective, bytesize.Format(v.Bytes))
			result.Checked[n] = append(result.Checked[n], v)
			worst, known := result.Worst[v.Collective]
			if !known {
				order = append(order, v.Collective)
			}
			if v.Ratio > worst.Ratio {
				result.Worst[v.Collective] = v
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if f.json {
		return writeJSON(out, result)
	}
	fmt.Fprintln(out, "# where the built-in choice loses most, by collective")
	for _, name := range order {
		deviceVerdictRow(out, result.Worst[name])
	}
	return nil
}

func deviceVerdictHeader(w io.Writer) {
	fmt.Fprintf(w, "# %5s  %-13s  %10s  %-24s %10s  %-24s %10s  %6s  %s\n", "ranks", "collective", "size", "auto", "p50 us", "best fixed", "p50 us", "ratio", "next")
}

func deviceVerdictRow(w io.Writer, v deviceVerdict) {
	best, next := v.Fixed[0], ""
	for i, c := range v.Fixed[1:min(3, len(v.Fixed))] {
		if i > 0 {
			next = next + ", "
		}
		next = fmt.Sprintf("%s%s %.2f", next, c.Choice, c.Time)
	}
	fmt.Fprintf(w, "%7d  %-13s  %10s  %-24s %10.2f  %-24s %10.2f  %6.2f  %s\n", v.Ranks, v.Collective, bytesize.Format(v.Bytes), v.Auto.Choice, v.Auto.Time, best.Choice, best.Time, v.Ratio, next)
	if n := len(v.LeftOut); n > 0 {
		fmt.Fprintf(w, "# left out: %d choices, such as %s\n", n, v.LeftOut[0])
	}
}
