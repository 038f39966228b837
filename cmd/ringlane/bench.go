package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringlane/internal/model/bytesize"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/benchmark"
	"ringlane/internal/run/communicator"
	"ringlane/internal/run/launch"
)

// benchRankCommand is what each rank of a benchmark runs; its one argument is a
// benchTask as JSON.
const benchRankCommand = "bench-rank"

// benchTask is what ranks do: time a collective, or compare choices.
type benchTask struct {
	Measure *benchmark.Options
	Sweep   *benchmark.Sweep
	Device  string   // where buffers lie
	GPUs    []string // of the ranks, for people

	DeviceSweep *benchmark.DeviceSweep
}

type benchFlags struct {
	ranks      string
	device     string
	sizes      string
	smallest   string
	largest    string
	factor     int
	dtype, op  string
	algorithm  string
	protocol   string
	iterations int
	inPlace    bool
	window     bool
	graph      string
	json       bool
	bind       bindFlag
	gpus       []string // that there are, with --device cuda

	tune, check, table bool
	within             time.Duration
	changed            func(flag string) bool
}

func newBenchCommand() *cobra.Command {
	f := benchFlags{ranks: "auto", device: "cpu", smallest: "8", largest: "64M", factor: 4, dtype: "f32", op: "sum", algorithm: "auto", protocol: "auto", graph: "on", within: 45 * time.Second}
	names := []string{}
	for _, c := range schedule.Collectives {
		names = append(names, c.String())
	}
	command := &cobra.Command{
		Use:   "bench [COLLECTIVE] -n RANKS",
		Short: "Time a collective and verify its results",

		DisableFlagsInUseLine: true,

		Long: `Time a collective between ranks of this machine, size by size, in the terms of
nccl-tests, and verify every size against exact arithmetic.

COLLECTIVE is one of ` + strings.Join(names, " ") + `
(allreduce if left out).

Each timed call is preceded by a barrier and counts as long as its slowest rank.
size is the message as nccl-tests counts it: the buffer of allreduce, broadcast,
reduce and sendrecv, the larger of the two buffers otherwise. algbw is size over
the median time, busbw that times 2(n-1)/n for allreduce, (n-1)/n for those that
scatter or gather, 1 for the others. wrong counts the elements that are not what
exact arithmetic gives, over all ranks.

--device cuda measures buffers in the memory of GPUs, rank r on GPU r; with more
ranks than GPUs some share one. The GPU itself takes the time of CUDA graphs of 20
calls, or 100 of small messages, which it replays one right behind the other; a
percentile is of replays, each the mean of its calls on its slowest rank. --graph off
times each eager call by itself. --algo is then oneshot, direct, ring or hierarchical,
--protocol line, line16, line64, line128, sentinel, slot, or engine, engine1 or engine2
for copy engines; RINGLANE_DEVICE_ALGO can say more, RINGLANE_DEVICE_ISLANDS names the
islands that hierarchical goes through, RINGLANE_P2P=off keeps GPUs out of each
other's memory. blocks is how many multiprocessors a call takes at most.

--tune measures which algorithm, protocol and segment suit each collective and size
on this machine, and keeps that in $XDG_CACHE_HOME/ringlane, or ~/.cache/ringlane,
where rank 0 of every job finds it; a cost model fitted to the same measurements
fills in other numbers of ranks. Each -n is measured for --within. Interrupted, it
leaves what was there. --check compares the table in force with each algorithm and
protocol for all sizes and says where it loses most. Both compare COLLECTIVE, or
all that have a choice. --table prints the table in force and where it comes from.

--check --device cuda compares what is built in for GPUs with the choices that
RINGLANE_DEVICE_ALGO can make and that make sense for the size. All are verified
and timed by a few calls, then the best in turns. Lines are no longer than arrives
together on every path; slots are as RINGLANE_DEVICE_WINDOW lays them out; copy
engines take part where RINGLANE_DEVICE_ALGO is engine, which has no other effect.

RINGLANE_TUNE holds rules that come before that table, separated by ";":

  COLLECTIVE[:n<=RANKS][:<=SIZE]=ALGORITHM[/PROTOCOL[/SEGMENT]]

as in allreduce:n<=2:<=4K=oneshot/simple;allreduce=direct/simple/128K. The first
rule that fits holds. COLLECTIVE is a name, several with commas, or any for all
that have the algorithm; SIZE is the buffer of allreduce, broadcast and reduce,
and what one rank gives one other in the rest; SEGMENT bounds the bytes of one
message. "default" stands for the built-in table alone.

With --json the output is one object, {"collective","ranks","device","memory",
"machine","setup","rows"}, and for several rank counts a list of them; --tune
gives {"machine","before","after","model_off","measured"}, --check {"machine",
"table","checked","worst"}, on GPUs {"machine","dtype","op","setup","checked",
"worst"}, --table {"machine","sources","tune","rules"}.

Exit status: 0 if all results are right, 1 if one is wrong or a call failed, 2
for a wrong command line.`,
		Example: `  ringlane bench allreduce -n 4
  ringlane bench allreduce -n 2,4 --json
  ringlane bench alltoall -n 4 --sizes 8,4K,1M --dtype bf16
  ringlane bench allreduce --device cuda --max 1G --dtype bf16
  ringlane bench allreduce -n 4 --algo ring --protocol simple --min 1M
  ringlane bench --tune -n 2,4
  ringlane bench --check -n 2 --sizes 64,16K,1M
  ringlane bench allreduce --device cuda --check --dtype bf16`,
		ValidArgs: names,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q (one collective at a time)", args[1])
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			f.changed = command.Flags().Changed
			switch {
			case (f.table || f.tune) && f.device != deviceCPU:
				return usagef("--tune and --table are for --device cpu: what GPUs choose is built in (--check shows where another choice would be faster, RINGLANE_DEVICE_ALGO makes it)")
			case f.check && f.device != deviceCPU:
				return f.checkDevice(args, command.OutOrStdout(), command.ErrOrStderr())
			case f.table:
				return showTable(f, args, command.OutOrStdout())
			case f.tune || f.check:
				return tune(f, args, command.OutOrStdout(), command.ErrOrStderr())
			}
			return bench(f, args, command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVarP(&f.ranks, "ranks", "n", f.ranks, "number of `RANKS`, or several: 2,4 (auto: one for each usable core, or GPU, at least 2)")
	flags.StringVar(&f.device, "device", f.device, "where the buffers lie, `cpu` or cuda")
	flags.StringVar(&f.graph, "graph", f.graph, "with --device cuda: time calls in CUDA graphs, `on` or off")
	flags.StringVar(&f.sizes, "sizes", "", "the `SIZES` to measure, such as 8,4K,1M")
	flags.StringVar(&f.smallest, "min", f.smallest, "smallest `SIZE`")
	flags.StringVar(&f.largest, "max", f.largest, "largest `SIZE`")
	flags.IntVar(&f.factor, "factor", f.factor, "each size is `K` times the one before")
	flags.StringVar(&f.dtype, "dtype", f.dtype, "element `TYPE`: f32 f64 f16 bf16 i8 u8 i32 i64")
	flags.StringVar(&f.op, "op", f.op, "reduction `OP`: sum avg min max prod")
	flags.StringVar(&f.algorithm, "algo", f.algorithm, "`ALGORITHM`: auto ring tree oneshot direct, where the collective has it")
	flags.StringVar(&f.protocol, "protocol", f.protocol, "`PROTOCOL`: auto ll simple")
	flags.IntVar(&f.iterations, "iters", 0, "timed `CALLS` a size (as many as fit half a second)")
	flags.BoolVar(&f.inPlace, "in-place", false, "use one buffer for input and output, as torch does")
	flags.BoolVar(&f.window, "window", false, "use buffers in a window, which peers read where they lie")
	flags.BoolVar(&f.tune, "tune", false, "measure what suits this machine, and keep it")
	flags.BoolVar(&f.check, "check", false, "compare the table in force, or what is built in for GPUs, with each fixed choice")
	flags.BoolVar(&f.table, "table", false, "print the table in force and where it comes from")
	flags.DurationVar(&f.within, "within", f.within, "`TIME` that --tune and --check take for each number of ranks, about")
	flags.BoolVar(&f.json, "json", false, "write JSON")
	f.bind.add(flags)
	return command
}

func newBenchRankCommand() *cobra.Command {
	return &cobra.Command{
		Use:    benchRankCommand,
		Short:  "Be one rank of a benchmark (started by bench)",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var task benchTask
			if err := json.Unmarshal([]byte(args[0]), &task); err != nil {
				return err
			}
			cfg, err := communicator.FromProcess()
			if err != nil {
				return err
			}
			c, err := communicator.Join(cfg)
			if err != nil {
				return err
			}
			defer c.Close()
			out := json.NewEncoder(os.Stdout)
			if task.Sweep != nil {
				return task.Sweep.Run(c, func(r benchmark.Result) error { return out.Encode(r) })
			}
			if task.Device == deviceCUDA {
				return benchDeviceRank(c, task, out)
			}
			if c.Rank() == 0 {
				if err := out.Encode(benchmark.Describe(c)); err != nil {
					return err
				}
			}
			return benchmark.Measure(c, *task.Measure, func(row benchmark.Row) error { return out.Encode(row) })
		},
	}
}

// benchResult is the JSON of one rank count.
type benchResult struct {
	Collective string            `json:"collective"`
	Ranks      int               `json:"ranks"`
	Device     string            `json:"device"`
	Dtype      string            `json:"dtype"`
	Op         string            `json:"op"`
	InPlace    bool              `json:"in_place"`
	Memory     string            `json:"memory"` // of the buffers: "ordinary" or "window"
	CPUs       []string          `json:"cpus"`   // that each rank is bound to, null where none is
	Machine    benchmark.Machine `json:"machine"`
	Setup      benchmark.Setup   `json:"setup"`
	Rows       []benchmark.Row   `json:"rows"`
}

func bench(f benchFlags, args []string, out io.Writer) error {
	o, rankCounts, err := f.options(args)
	if err != nil {
		return err
	}
	machine := benchmark.ThisMachine(time.Now())
	var results []benchResult
	wrong := int64(0)
	for _, n := range rankCounts {
		r := benchResult{
			Collective: o.Collective.String(), Ranks: n, Device: f.device,
			Dtype: o.Type.String(), Op: o.Op.String(), InPlace: o.InPlace, Memory: o.Memory(), Machine: machine, Rows: []benchmark.Row{},
		}
		table := out
		if f.json {
			table = io.Discard
		}
		if err := f.measure(o, n, &r, table); err != nil {
			return err
		}
		for _, row := range r.Rows {
			wrong += row.Wrong
		}
		results = append(results, r)
	}
	if f.json {
		var document any = results
		if len(results) == 1 {
			document = results[0]
		}
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		if err := e.Encode(document); err != nil {
			return err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d elements are wrong (see the last column; please report this with the machine's description)", wrong)
	}
	return nil
}

func (f *benchFlags) options(args []string) (o benchmark.Options, ranks []int, err error) {
	if len(args) == 1 {
		if o.Collective, err = schedule.ParseCollective(args[0]); err != nil {
			return o, nil, usagef("%v", err)
		}
	}
	if err := f.onDevice(&o); err != nil {
		return o, nil, err
	}
	if f.ranks == "auto" {
		f.ranks = strconv.Itoa(min(max(launch.Cores(), 2), communicator.MaxRanks))
	}
	for _, word := range strings.Split(f.ranks, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > communicator.MaxRanks {
			return o, nil, usagef("-n %s: not a number of ranks (write 1 to %d, or several: 2,4)", f.ranks, communicator.MaxRanks)
		}
		ranks = append(ranks, n)
	}
	if o.Type, err = dtype.Parse(f.dtype); err != nil {
		return o, nil, usagef("--dtype: %v", err)
	}
	if o.Op, err = dtype.ParseOp(f.op); err != nil {
		return o, nil, usagef("--op: %v", err)
	}
	if f.iterations < 0 {
		return o, nil, usagef("--iters %d: it must be 1 or more (0 leaves it to the time)", f.iterations)
	}
	o.Iterations, o.InPlace, o.Window = f.iterations, f.inPlace, f.window
	o.Sizes, err = f.sizeList()
	if o.Collective == schedule.Barrier {
		o.Sizes = []int{0}
	}
	return o, ranks, err
}

func (f *benchFlags) sizeList() ([]int, error) {
	var sizes []int
	if f.sizes != "" {
		for _, word := range strings.Split(f.sizes, ",") {
			n, err := bytesize.Parse(word)
			if err != nil {
				return nil, usagef("--sizes: %v", err)
			}
			sizes = append(sizes, n)
		}
		return sizes, nil
	}
	least, err := bytesize.Parse(f.smallest)
	if err != nil {
		return nil, usagef("--min: %v", err)
	}
	most, err := bytesize.Parse(f.largest)
	if err != nil {
		return nil, usagef("--max: %v", err)
	}
	if least < 1 || most < least || f.factor < 2 {
		return nil, usagef("--min %s --max %s --factor %d: there is no size to measure (min is at least 1, max no less, factor at least 2)", f.smallest, f.largest, f.factor)
	}
	for n := least; n <= most; n *= f.factor {
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// measure starts n ranks and reads the rows that rank 0 writes.
func (f *benchFlags) measure(o benchmark.Options, n int, r *benchResult, table io.Writer) error {
	header := true
	task := benchTask{Measure: &o, Device: f.device, GPUs: f.gpusOf(n)}
	return f.start(n, task, func(line []byte, binding launch.Binding) error {
		if header {
			header = false
			for _, set := range binding.CPUs {
				r.CPUs = append(r.CPUs, set.String())
			}
			err := json.Unmarshal(line, &r.Setup)
			if r.Device == deviceCUDA {
				deviceHeader(table, r)
			} else {
				benchHeader(table, r, binding)
			}
			return err
		}
		var row benchmark.Row
		err := json.Unmarshal(line, &row)
		r.Rows = append(r.Rows, row)
		if r.Device == deviceCUDA {
			deviceRow(table, r, row)
		} else {
			benchRow(table, r, row)
		}
		return err
	})
}

// start runs a task on n ranks and hands each line that rank 0 writes to read.
func (f *benchFlags) start(n int, task benchTask, read func(line []byte, binding launch.Binding) error) error {
	argument, err := json.Marshal(task)
	if err != nil {
		return err
	}
	bind, err := f.bind.choice()
	if err != nil {
		return err
	}
	binding, err := launch.Place(bind, n, nil)
	if err != nil {
		return err
	}
	return startSelf(launch.Spec{
		Ranks: n, Environ: append(os.Environ(), f.forced()...), Bind: bind,
	}, func(line []byte) error { return read(line, binding) }, benchRankCommand, string(argument))
}

func benchHeader(w io.Writer, r *benchResult, binding launch.Binding) {
	pages := ""
	if r.Setup.HugePages {
		pages = " on huge pages"
	}
	place := "out of place"
	if r.InPlace {
		place = "in place"
	}
	if r.Memory == benchmark.Window {
		place += ", in a window"
	}
	fmt.Fprintf(w, "# %s, %d ranks, %s, %s; %s, %d cores, Linux %s, %s\n", r.Collective, r.Ranks, r.Device, place, r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Date)
	fmt.Fprintf(w, "# staging memory %.1f MiB a rank%s (bound: RINGLANE_STAGING, 16M unless set), segments of %s\n",
		float64(r.Setup.StagingBytes)/(1<<20), pages, bytesize.Format(r.Setup.SegmentBytes))
	if binding.CPUs == nil {
		fmt.Fprintf(w, "# ranks not bound: %s\n", binding.Why)
	} else {
		fmt.Fprintf(w, "# ranks bound to CPUs %s\n", strings.Join(r.CPUs, " | "))
	}
	fmt.Fprintf(w, "#%11s %11s %5s %5s %8s %9s %11s %11s %11s %9s %9s %6s\n", "size", "count", "type", "redop", "algo", "protocol", "p50", "p99", "p99.9", "algbw", "busbw", "wrong")
	fmt.Fprintf(w, "#%11s %11s %5s %5s %8s %9s %11s %11s %11s %9s %9s\n", "(B)", "(elements)", "", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)")
}

func benchRow(w io.Writer, r *benchResult, row benchmark.Row) {
	fmt.Fprintf(w, "%12d %11d %5s %5s %8s %9s %11.2f %11.2f %11.2f %9.2f %9.2f %6d\n",
		row.Bytes, row.Count, r.Dtype, r.Op, row.Algorithm, row.Protocol, row.P50, row.P99, row.P999, row.AlgBW, row.BusBW, row.Wrong)
}
