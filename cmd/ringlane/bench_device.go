package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/logic/collective"
	"ringlane/internal/run/benchmark"
	"ringlane/internal/run/communicator"
	"ringlane/internal/run/device"
)

// Where buffers of a benchmark lie.
const (
	deviceCPU  = "cpu"
	deviceCUDA = "cuda"
)

// onDevice checks what the flags say about where buffers lie.
func (f *benchFlags) onDevice(o *benchmark.Options) error {
	switch f.device {
	case deviceCPU:
		if f.changed("graph") {
			return usagef("--graph is for --device cuda")
		}
		return nil
	case deviceCUDA:
	default:
		return usagef("--device %s: there is no such place (write cpu or cuda)", f.device)
	}
	switch f.graph {
	case "on", "off":
		o.Eager = f.graph == "off"
	default:
		return usagef("--graph %s: it is on or off", f.graph)
	}
	if f.window {
		return usagef("--window is for --device cpu (GPUs reach every buffer of theirs)")
	}
	if _, err := collective.ParseDeviceOverride(f.override()); err != nil {
		return usagef("--algo and --protocol: %v", err)
	}
	driver, err := cuda.Open()
	if err != nil {
		return fmt.Errorf("measure GPUs: %w", err)
	}
	for _, g := range driver.Devices() {
		f.gpus = append(f.gpus, g.String())
	}
	if f.ranks == "auto" {
		f.ranks = strconv.Itoa(min(max(len(f.gpus), 2), communicator.MaxRanks))
	}
	return nil
}

// override is --algo and --protocol as RINGLANE_DEVICE_ALGO has them.
func (f *benchFlags) override() string { return f.algorithm + ":" + f.protocol }

// gpusOf names the GPU of each of n ranks, if they have any.
func (f *benchFlags) gpusOf(n int) (all []string) {
	for rank := range n {
		if len(f.gpus) > 0 {
			all = append(all, f.gpus[rank%len(f.gpus)])
		}
	}
	return all
}

// forced are the variables that make ranks choose as the flags say.
func (f *benchFlags) forced() []string {
	if f.device != deviceCUDA {
		return []string{"RINGLANE_ALGO=" + f.algorithm, "RINGLANE_PROTOCOL=" + f.protocol}
	}
	if f.override() == "auto:auto" {
		return nil // what the user has set stays
	}
	return []string{"RINGLANE_DEVICE_ALGO=" + f.override()}
}

// benchDeviceRank is what each rank of a benchmark on GPUs does.
func benchDeviceRank(c *communicator.Comm, task benchTask, out *json.Encoder) error {
	driver, err := cuda.Open()
	if err != nil {
		return err
	}
	d, err := device.Join(c, c.Rank()%len(driver.Devices()))
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		err = out.Encode(benchmark.DescribeDevice(d, task.GPUs))
	}
	switch {
	case err != nil:
	case task.DeviceSweep != nil:
		err = task.DeviceSweep.Run(d, c, func(r benchmark.DeviceResult) error { return out.Encode(r) })
	default:
		err = benchmark.MeasureDevice(d, c, *task.Measure, func(row benchmark.Row) error { return out.Encode(row) })
	}
	return errors.Join(err, d.Close())
}

func deviceHeader(w io.Writer, r *benchResult) {
	place := "out of place"
	if r.InPlace {
		place = "in place"
	}
	fmt.Fprintf(w, "# %s, %d ranks, %s, %s; %s, %d cores, Linux %s, %s\n", r.Collective, r.Ranks, r.Device, place, r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Date)
	deviceSetup(w, r.Setup)
	if len(r.Rows) == 0 {
		fmt.Fprintf(w, "#%11s %11s %5s %5s %12s %9s %7s %5s %11s %11s %9s %9s %6s\n", "size", "count", "type", "redop", "algo", "protocol", "blocks", "calls", "p50", "p99", "algbw", "busbw", "wrong")
		fmt.Fprintf(w, "#%11s %11s %5s %5s %12s %9s %7s %5s %11s %11s %9s %9s\n", "(B)", "(elements)", "", "", "", "", "x thr.", "", "(us)", "(us)", "(GB/s)", "(GB/s)")
	}
}

// deviceSetup says which rank is on which GPU, how they reach each other, and what
// was made of that.
func deviceSetup(w io.Writer, s benchmark.Setup) {
	for i, gpu := range s.GPUs {
		if slices.Index(s.GPUs, gpu) == i {
			fmt.Fprintf(w, "# %s: %s\n", ranksOn(s.GPUs, gpu), gpu)
		}
	}
	for _, line := range ways(s.Paths) {
		fmt.Fprintf(w, "# %s\n", line)
	}
	if s.Islands != "" {
		fmt.Fprintf(w, "# islands of ranks: %s\n", s.Islands)
	}
	if !slices.IsSorted(s.Ring) {
		fmt.Fprintf(w, "# order of the ring: %s\n", strings.Trim(fmt.Sprint(s.Ring), "[]"))
	}
}

// ranksOn names the ranks of one GPU, and says so where they share it.
func ranksOn(gpus []string, gpu string) string {
	var ranks []string
	for rank, other := range gpus {
		if other == gpu {
			ranks = append(ranks, strconv.Itoa(rank))
		}
	}
	if len(ranks) == 1 {
		return "rank " + ranks[0]
	}
	return "ranks " + strings.Join(ranks, ", ") + " SHARE one GPU and wait for each other's turns"
}

// ways says how ranks reach each other: pairs of one kind, and for one reason,
// on one line.
func ways(paths []device.Path) (lines []string) {
	type way struct {
		kind device.Kind
		why  string
	}
	pairs := map[way][]string{}
	var order []way
	for _, p := range paths {
		key := way{p.Kind, p.Why}
		if pairs[key] == nil {
			order = append(order, key)
		}
		pairs[key] = append(pairs[key], fmt.Sprintf("%d-%d", p.From, p.To))
	}
	words := map[device.Kind]string{device.Peer: "peer access", device.Same: "one GPU", device.Host: "through host memory"}
	for _, key := range order {
		line := words[key.kind] + ": " + strings.Join(pairs[key], " ")
		if len(pairs[key]) == len(paths) {
			line = words[key.kind] + ", all"
		}
		if key.why != "" {
			line += ": " + key.why
		}
		lines = append(lines, line)
	}
	return lines
}

func deviceRow(w io.Writer, r *benchResult, row benchmark.Row) {
	blocks := "-"
	if row.Blocks > 0 {
		blocks = fmt.Sprintf("%dx%d", row.Blocks, row.Threads)
	}
	fmt.Fprintf(w, "%12d %11d %5s %5s %12s %9s %7s %5d %11.2f %11.2f %9.2f %9.2f %6d\n",
		row.Bytes, row.Count, r.Dtype, r.Op, row.Algorithm, row.Protocol, blocks, row.Calls, row.P50, row.P99, row.AlgBW, row.BusBW, row.Wrong)
}
