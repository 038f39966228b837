package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringlane/internal/hardware/probe"
	"ringlane/internal/model/topology"
	"ringlane/internal/run/communicator"
	"ringlane/internal/run/launch"
)

func newRunCommand() *cobra.Command {
	var (
		ranks    = "1"
		nodes    = "1"
		restarts int
		timeout  seconds
		grace    = seconds(15 * time.Second)
		bind     bindFlag
		report   bool
	)
	command := &cobra.Command{
		Use:   "run [-n RANKS] [--max-restarts K] [--timeout D] -- COMMAND [ARG...]",
		Short: "Start the ranks of a job on this machine",

		DisableFlagsInUseLine: true,

		Long: `Start COMMAND once for every rank on this machine, as torchrun does, and wait
for all of them. COMMAND is a program, not a Python file: write "python train.py".

Environment. Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
GROUP_RANK, GROUP_WORLD_SIZE, ROLE_RANK, ROLE_WORLD_SIZE, ROLE_NAME, MASTER_ADDR
(127.0.0.1), MASTER_PORT (a free port), TORCHELASTIC_RESTART_COUNT,
TORCHELASTIC_MAX_RESTARTS and TORCHELASTIC_RUN_ID as under torchrun, and for
Ringlane RINGLANE_RANK, RINGLANE_SIZE, RINGLANE_RENDEZVOUS (a private directory,
removed at the end), RINGLANE_JOB and, with --timeout, RINGLANE_TIMEOUT.
On a machine with several GPUs of one maker, CUDA_VISIBLE_DEVICES and
CUDA_DEVICE_ORDER (or HIP_VISIBLE_DEVICES) list them in the order of the ring that
"ringlane topo" shows, so that LOCAL_RANK r takes the r-th of it; a variable that is
set already stays as it is.
Where not set already, OMP_NUM_THREADS becomes the number of cores that each rank
can count on (at least 1), and with several ranks PYTHONUNBUFFERED becomes 1.

Cores. Several ranks are each bound to cores of their own if there are enough:
whole cores with all their SMT threads, equally many, those of neighbouring ranks
side by side, within one NUMA node where that costs little, and near the rank's
GPU where it was handed out as above. Only what taskset, numactl or a cpuset
leaves is used. With more ranks than cores, or than a CPU quota amounts to,
nothing is bound, and the ranks share all cores. --bind cores makes that an
error and --bind none binds nothing, as RINGLANE_BIND does where the flag is not
given; --report-bindings shows the CPUs of each rank.

Output. Every line is marked with its rank, "[2] loss 0.31", and stays whole;
standard output and standard error stay apart. A single rank writes unmarked.
On a terminal the marks are coloured (NO_COLOR turns that off) and a progress
bar of one rank keeps its line; in a file each of its states is a line.
Standard input goes to rank 0.

Failure. The first rank that fails is named with its exit status or signal. The
others have one second to report what they saw, then get SIGTERM, and SIGKILL
after the grace time; with --max-restarts all ranks are then started again.
Processes that a rank leaves behind are ended with the job.

Signals. INT, TERM, HUP and QUIT are passed on and end the job, after the grace
time by SIGKILL; a second Ctrl-C kills at once. USR1 and USR2 are passed on. If
the launcher itself is killed, a guard process ends the ranks and cleans up.

Exit status: that of the first rank that failed, 128 plus the number of the
signal that ended it or the job, 127 if COMMAND was not found and 126 if it
cannot be executed, 2 for a wrong command line, else 0.`,
		Example: `  ringlane run -n 4 -- python train.py --epochs 3
  ringlane run -n auto -- python train.py          # one rank for each usable core
  ringlane run -n 4 --report-bindings -- python train.py
  ringlane run -n 8 --max-restarts 3 --timeout 2m -- python train.py
  ringlane run -n 2 -- sh -c 'echo rank $RANK of $WORLD_SIZE'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no command to start (write it after --, as in `ringlane run -n 4 -- python train.py`)")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := parseRanks(ranks)
			if err != nil {
				return err
			}
			if err := checkNodes(nodes); err != nil {
				return err
			}
			where, err := bind.choice()
			if err != nil {
				return err
			}
			if restarts < 0 {
				return usagef("--max-restarts %d: it must be 0 or more", restarts)
			}
			environ, near := inRingOrder(os.Environ(), ringOfThisMachine)
			return launch.Run(launch.Spec{
				Command: args, Ranks: n, MaxRestarts: restarts,
				Timeout: time.Duration(timeout), Grace: time.Duration(grace),
				Environ: environ, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
				Bind: where, Near: near, ReportBinding: report,
			})
		},
	}
	flags := command.Flags()
	flags.SetInterspersed(false) // what follows COMMAND is COMMAND's
	flags.SetNormalizeFunc(otherNames)
	flags.StringVarP(&ranks, "ranks", "n", ranks, "number of `RANKS`, or auto: one for each usable core, SMT threads counted once (also --nproc-per-node)")
	flags.StringVar(&nodes, "nnodes", nodes, "number of `MACHINES`; this version launches on one: 1 or 1:1")
	flags.IntVar(&restarts, "max-restarts", 0, "start the whole job again up to `K` times after a failure")
	flags.Var(&timeout, "timeout", "deadline `D` of joining and of every collective, as 90s, 2m or 90: RINGLANE_TIMEOUT of the ranks (60s if neither is set)")
	flags.Var(&grace, "grace", "time `D` from asking the ranks to end until SIGKILL")
	bind.add(flags)
	flags.BoolVar(&report, "report-bindings", false, "say which CPUs each rank is bound to")
	return command
}

func newGuardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    launch.GuardCommand,
		Short:  "Clean up after a launcher (started by it)",
		Hidden: true,
		Args:   noArguments,
		RunE:   func(*cobra.Command, []string) error { return launch.Guard(os.Stdin) },
	}
}

// visibleDevices are the variables by which people choose GPUs themselves.
var visibleDevices = []string{"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}

// inRingOrder adds the variables that hand GPUs out in the order of the ring,
// unless the user has chosen already, and returns the NUMA node of each GPU that
// it hands out, -1 where that is not known.
func inRingOrder(environ []string, ring func() topology.Ring) (with []string, near []int) {
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(visibleDevices, name) {
			return environ, nil
		}
	}
	r := ring()
	variables, _ := r.Environment()
	if len(variables) == 0 {
		return environ, nil
	}
	for _, gpu := range r.Order {
		node := -1
		if gpu.Node != nil {
			node = *gpu.Node
		}
		near = append(near, node)
	}
	return append(environ, variables...), near
}

func ringOfThisMachine() topology.Ring {
	m, err := probe.Live("/")
	if err != nil {
		return topology.Ring{} // without a PCI bus there is nothing to order
	}
	return topology.New(m).Ring(nil)
}

// otherNames accepts torchrun's and mpirun's spellings of our flags.
func otherNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	switch name {
	case "nproc-per-node":
		name = "ranks"
	case "bind-to":
		name = "bind"
	}
	return pflag.NormalizedName(name)
}

func parseRanks(text string) (int, error) {
	if text == "auto" {
		return launch.Cores(), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, usagef("-n %s: not a number of ranks (write 1 or more, or auto for one rank on each usable core)", text)
	}
	return n, nil
}

func checkNodes(text string) error {
	if text != "1" && text != "1:1" {
		return usagef("--nnodes %s: this version launches on one machine (leave --nnodes out, or write 1)", text)
	}
	return nil
}

// seconds is a flag: a duration as RINGLANE_TIMEOUT has it.
type seconds time.Duration

func (s *seconds) Set(text string) error {
	d, err := communicator.ParseTimeout(text) // as the ranks will read it
	*s = seconds(d)
	return err
}

func (s *seconds) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

func (s *seconds) Type() string { return "duration" }
