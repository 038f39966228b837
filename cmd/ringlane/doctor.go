package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ringlane/internal/logic/diagnose"
	"ringlane/internal/model/machine"
)

// foundStatus is the exit status of doctor where it found something: the
// answer is printed already, so the error has no text of its own.
type foundStatus int

func (s foundStatus) Error() string { return "" }

func (s foundStatus) ExitStatus() int { return int(s) }

// doctorAnswer is the JSON of doctor.
type doctorAnswer struct {
	diagnose.Report
	Problems []machine.Problem `json:"problems"`
}

// doctorWriter is a form of the answer; it returns the exit status.
type doctorWriter func(w io.Writer, m *machine.Machine, r diagnose.Report) (int, error)

func newDoctorCommand() *cobra.Command {
	var (
		from            []string
		format          = "text"
		asJSON          bool
		detector, slurm bool
		watching        bool
		limits          = diagnose.DefaultThresholds
	)
	command := &cobra.Command{
		Use:   "doctor [--from PATH...]",
		Short: "Say what is wrong with the PCIe tree of a machine, and what to do",

		DisableFlagsInUseLine: true,

		Long: `Say what is wrong with the PCIe tree of this machine, or of the one that the files
after --from describe, worst first: the part, the lines and registers that show it,
why it matters, what to do now and for good, and whom it affects. Consequences stand
behind their cause. docs/doctor.md lists everything that it can say.

--from takes any mix of: a capture of ringlane, a directory tree of /sys, the text
of lspci (-v to -vvvv, -xxx, -t), dmesg, journal and syslog, nvidia-smi topo -m and
-q, nvidia-bug-report.log (plain or .gz), NCCL's topology file and log,
/proc/cmdline; "-" is standard input. The content tells what a file is, not its name.

FORMAT is one of
  text  for people; in colour on a terminal (NO_COLOR turns that off)
  json  {"findings":[{"code","severity","component","also","evidence","explanation",
        "remedy","affects","caused_by"}],"status","problems"}

Severities: fault (act), warning (likely to become a fault, or costs performance),
notice (worth knowing, needs no action), blind (could not be seen, and how to see it).

Exit status: 0 no finding above notice, 1 a warning, 2 a fault, 3 if no input could
be read at all; what could not be seen never makes it worse.
With --watch it keeps looking, says what changes (counters, links, the kernel's log)
and ends at Ctrl-C with the status of what it saw last; with --json each change is an
object on a line of its own.
With --node-problem-detector: 0 no fault, 1 a fault, 2 unknown, and one short line.
With --slurm, for HealthCheckProgram: 0, or 1 on a fault: the reason is printed and
the node is drained with it (scontrol), unless it is drained already.`,
		Example: `  ringlane doctor
  ringlane doctor --from lspci.txt dmesg.txt
  sudo dmesg | ringlane doctor --from - --json
  sudo ringlane doctor --watch`,
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
			if detector && slurm {
				return usagef("--node-problem-detector and --slurm are for different programs (choose one)")
			}
			if limits.PerMinute < 1 || limits.PerHour < 1 || limits.Untimed < 1 {
				return usagef("a storm needs at least one error (give --storm-minute, --storm-hour and --storm-total values above 0)")
			}
			if watching {
				if len(from) > 0 || detector || slurm {
					return usagef("--watch looks at this machine, for people or with --json (leave --from, --node-problem-detector and --slurm out)")
				}
				if format != "text" && format != "json" {
					return usagef("--format %s: there is no such format (write text or json)", format)
				}
				status, err := watchMachine(limits, format == "json", command.OutOrStdout(), command.ErrOrStderr())
				if err == nil && status != 0 {
					return foundStatus(status)
				}
				return err
			}
			write := map[string]doctorWriter{"json": doctorJSON, "text": doctorText}[format]
			switch {
			case detector:
				write = detectorLine
			case slurm:
				write = slurmLine
				if len(from) == 0 { // of another machine there is nothing to drain here
					write = slurmHealth{run: runCommand, node: slurmNode()}.check
				}
			case write == nil:
				return usagef("--format %s: there is no such format (write text or json)", format)
			}
			m, err := doctorMachine(append(from, args...), command.InOrStdin())
			if err != nil {
				if detector {
					fmt.Fprintln(command.OutOrStdout(), "the PCIe tree could not be read")
					return foundStatus(detectorUnknown)
				}
				if format == "json" && !slurm {
					unread := diagnose.Report{Findings: []diagnose.Finding{}, Status: diagnose.StatusUnreadable}
					if _, err := doctorJSON(command.OutOrStdout(), m, unread); err != nil {
						return err
					}
				}
				return err
			}
			status, err := write(command.OutOrStdout(), m, diagnose.Run(m, limits))
			if err == nil && status != 0 {
				return foundStatus(status)
			}
			return err
		},
	}
	flags := command.Flags()
	flags.StringArrayVar(&from, "from", nil, "read `PATH`, and all that follow it, instead of this machine")
	flags.StringVar(&format, "format", format, "`FORMAT`: text json")
	flags.BoolVar(&asJSON, "json", false, "the same as --format json")
	flags.IntVar(&limits.PerMinute, "storm-minute", limits.PerMinute, "`N` corrected errors of one link inside one minute are a storm")
	flags.IntVar(&limits.PerHour, "storm-hour", limits.PerHour, "`N` corrected errors of one link inside one hour are a storm")
	flags.IntVar(&limits.Untimed, "storm-total", limits.Untimed, "`N` corrected errors of one link are a storm where no time is known")
	flags.BoolVar(&watching, "watch", false, "keep looking at this machine, and say what changes")
	flags.BoolVar(&detector, "node-problem-detector", false, "answer as a plugin of node-problem-detector")
	flags.BoolVar(&slurm, "slurm", false, "answer as Slurm's HealthCheckProgram")
	return command
}

// doctorMachine reads this machine with its log and nvidia-smi, or what files
// say of one.
func doctorMachine(paths []string, stdin io.Reader) (*machine.Machine, error) {
	if len(paths) > 0 {
		return readMachine(paths, stdin)
	}
	m, _, err := liveMachine()
	if err != nil {
		return &machine.Machine{}, blindError{err}
	}
	return m, nil
}

func doctorJSON(w io.Writer, m *machine.Machine, r diagnose.Report) (int, error) {
	answer := doctorAnswer{r, m.Problems}
	if answer.Problems == nil {
		answer.Problems = []machine.Problem{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return r.Status, e.Encode(answer)
}
