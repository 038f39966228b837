package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ringlane/internal/hardware/probe"
	"ringlane/internal/logic/drawing"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/topology"
)

// statusBlind is the exit status of the commands that look at a machine where
// no input could be read at all.
const statusBlind = 3

// blindError says that there is nothing to look at.
type blindError struct{ error }

func (blindError) ExitStatus() int { return statusBlind }

// topoFormats are the forms that topo can write.
var topoFormats = map[string]func(*drawing.Sheet, io.Writer) error{
	"json":       (*drawing.Sheet).JSON,
	"dot":        (*drawing.Sheet).DOT,
	"svg":        (*drawing.Sheet).SVG,
	"nccl-xml":   (*drawing.Sheet).NCCLTopology,
	"nccl-graph": (*drawing.Sheet).NCCLGraph,
}

func newTopoCommand() *cobra.Command {
	var (
		from   []string
		format = "text"
		output string
		asJSON bool
		try    bool
	)
	command := &cobra.Command{
		Use:   "topo [--from PATH...]",
		Short: "Draw the PCIe tree of a machine, its shared uplinks and its ring",

		DisableFlagsInUseLine: true,

		Long: `Draw the PCIe tree of this machine, or of the one that the files after --from
describe: sockets, root ports, switches, GPUs, NICs and NVMe drives, the speed and
width of every link and the gigabytes a second it carries one way after line
encoding, the uplinks that several devices share, the path between every two GPUs,
and the order in which a ring should visit them.

--from takes any mix of: a capture of ringlane, a directory tree of /sys, the text
of lspci (-v to -vvvv, -xxx, -t), nvidia-smi topo -m and -q, nvidia-bug-report.log
(plain or .gz), NCCL's topology file and log, kernel logs, /proc/cmdline; "-" is
standard input. The content tells what a file is, not its name.

FORMAT is one of
  text        for people; in colour on a terminal (NO_COLOR turns that off)
  json        {"gpus","pairs","shared_uplinks","ring","tree","problems"}; an unknown
              bandwidth is null
  dot         for Graphviz
  svg         a picture
  nccl-xml    the tree for NCCL_TOPO_FILE
  nccl-graph  the ring for NCCL_GRAPH_FILE, for jobs on one machine

A switch is one node: its upstream port and its downstream ports. A GPU that saves
power runs its link slowly; its bandwidth is then what both ends can do, and the
text says so. Paths have the names of nvidia-smi topo -m: PIX, PXB, PHB, NODE, SYS.
Peer access is yes or no where a driver or NCCL said so, likely where nothing
speaks against it, a detour where ACS or the IOMMU sends it up to the root complex,
doubtful where the platform or a hypervisor decides.

--measure starts a process on each GPU of this machine and tries every pair of them:
patterns written and read across, one way, the other and both at once, are verified,
and gigabytes a second and the time of a flag are taken. What fails is said beside
what the tree let expect, with the doctor's reason, and the ring is ordered by what
was measured. In JSON each of "pairs" then has "measured": {"path","reason",
"push_gb_per_s","pull_gb_per_s","latency_us"}, the two numbers of a rate being those
from a to b and from b to a. It takes a few seconds and some memory of each GPU.

Exit status: 0; 1 if the output cannot be written; 2 for a wrong command line; 3 if
no input could be read at all.`,
		Example: `  ringlane topo
  ringlane topo --measure
  ringlane topo --format svg -o machine.svg
  ringlane topo --from lspci.txt topo.txt
  lspci -vvv | ringlane topo --from -`,
		Args: func(command *cobra.Command, args []string) error {
			if len(from) == 0 {
				return noArguments(command, args)
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			if asJSON {
				format = "json"
			}
			draw := topoFormats[format]
			if format == "text" {
				draw = func(s *drawing.Sheet, w io.Writer) error {
					return s.Text(w, output == "" && onTerminal(command.OutOrStdout()))
				}
			}
			if draw == nil {
				known := strings.Join(slices.Sorted(maps.Keys(topoFormats)), " ")
				return usagef("--format %s: there is no such format (write text %s)", format, known)
			}
			var measured []drawing.Measurement
			if try {
				if len(from) > 0 {
					return usagef("--measure is for this machine (leave --from out)")
				}
				var err error
				if measured, err = measureGPUs(); err != nil {
					return err
				}
			}
			m, unread := readMachine(append(from, args...), command.InOrStdin())
			if unread != nil && format != "json" {
				return unread
			}
			sheet := drawing.NewSheet(topology.New(m), nil)
			if try {
				sheet.Measure(measured)
			}
			var text bytes.Buffer
			if err := draw(sheet, &text); err != nil {
				return err
			}
			if output == "" {
				if _, err := command.OutOrStdout().Write(text.Bytes()); err != nil {
					return err
				}
				return unread
			}
			if err := os.WriteFile(output, text.Bytes(), 0o644); err != nil {
				return fmt.Errorf("write %s: %w", output, err)
			}
			return unread
		},
	}
	flags := command.Flags()
	flags.StringArrayVar(&from, "from", nil, "read `PATH`, and all that follow it, instead of this machine")
	flags.StringVar(&format, "format", format, "`FORMAT`: text json dot svg nccl-xml nccl-graph")
	flags.StringVarP(&output, "output", "o", "", "write to `FILE`")
	flags.BoolVar(&try, "measure", false, "try and measure every pair of GPUs")
	flags.BoolVar(&asJSON, "json", false, "the same as --format json")
	return command
}

// readMachine reads this machine, or what files say of one. Its error says why
// nothing was seen and has the exit status for that; the machine is there all
// the same, for those who want its problems as JSON.
func readMachine(paths []string, stdin io.Reader) (*machine.Machine, error) {
	var m *machine.Machine
	var err error
	if len(paths) == 0 {
		m, err = probe.Live("/")
	} else {
		m, err = probe.Read(paths, stdin)
	}
	if err != nil {
		return m, blindError{withProblems(err, m.Problems)}
	}
	return m, nil
}

// withProblems appends what was wrong with each input.
func withProblems(err error, problems []machine.Problem) error {
	const shown = 10
	for i, p := range problems {
		if i == shown {
			return fmt.Errorf("%w\n  and %d more", err, len(problems)-shown)
		}
		err = fmt.Errorf("%w\n  %s: %s", err, p.Input, p.Text)
	}
	return err
}

// onTerminal reports whether output is read by a person who wants colour.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
