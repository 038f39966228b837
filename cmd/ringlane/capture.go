package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"ringlane/internal/hardware/probe"
	"ringlane/internal/model/machine"
)

func newCaptureCommand() *cobra.Command {
	var (
		from     []string
		output   = "-"
		identity bool
	)
	command := &cobra.Command{
		Use:   "capture [--from PATH...] [-o FILE]",
		Short: "Write all that topo and doctor need of this machine into one file",

		DisableFlagsInUseLine: true,

		Long: `Write one file with all that topo and doctor need of this machine: PCI devices with
their configuration space, links, AER counters, IOMMU groups and NUMA nodes, the
kernel's command line and log, and nvidia-smi's output if it is there. The file is
compressed JSON; docs/capture.md describes it. Both commands read it after --from.

Serial numbers, UUIDs, MAC addresses and the host's name are replaced by made-up ones,
which are the same in every capture of this machine, unless --keep-identity is given.
Nothing of that is needed for a diagnosis.

After --from it makes the same file of what people sent: the inputs that topo and
doctor take, in any mix.

It works without root, and says on standard error what it could not read: without
root the kernel hides most of configuration space, and often its log.

Exit status: 0; 1 if the file cannot be written; 2 for a wrong command line; 3 if
there is no PCI bus to read.`,
		Example: `  sudo ringlane capture -o machine.ringlane
  ringlane capture -o machine.ringlane --from nvidia-bug-report.log.gz lspci.txt
  ringlane doctor --from machine.ringlane`,
		Args: func(command *cobra.Command, args []string) error {
			if len(from) == 0 {
				return noArguments(command, args)
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			m, err := captured(append(from, args...), command.InOrStdin())
			if err != nil {
				return err
			}
			if !identity {
				if m, err = withoutIdentity(m, machineKey()); err != nil {
					return err
				}
			}
			for _, p := range m.Problems {
				fmt.Fprintf(command.ErrOrStderr(), "not read: %s: %s\n", p.Input, p.Text)
			}
			if output == "-" {
				return writeCapture(command.OutOrStdout(), m)
			}
			return writeCaptureFile(output, m)
		},
	}
	flags := command.Flags()
	flags.StringArrayVar(&from, "from", nil, "read `PATH`, and all that follow it, instead of this machine")
	flags.StringVarP(&output, "output", "o", output, "write to `FILE`; - is standard output")
	flags.BoolVar(&identity, "keep-identity", false, "keep serial numbers, UUIDs, MAC addresses and the host's name")
	return command
}

// captured is the document to write: of this machine with its whole log, so that
// a newer ringlane can read more from it, or of what files say of another.
func captured(paths []string, stdin io.Reader) (*machine.Machine, error) {
	if len(paths) > 0 {
		return readMachine(paths, stdin)
	}
	m, log, err := liveMachine()
	if err != nil {
		return nil, blindError{err}
	}
	m.LogText = log
	return m, nil
}

func writeCapture(w io.Writer, m *machine.Machine) error {
	z := gzip.NewWriter(w)
	if err := m.Save(z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write capture: %w", err)
	}
	return nil
}

// writeCaptureFile leaves either a whole file or none.
func writeCaptureFile(path string, m *machine.Machine) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".ringlane-capture-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	err = writeCapture(f, m)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// liveCommands are the programs whose text belongs to a capture, each with
// what else can tell the same where it fails.
var liveCommands = [][][]string{
	{{"dmesg"}, {"journalctl", "-k", "-b", "--no-pager", "-o", "short-monotonic"}},
	{{"nvidia-smi", "topo", "-m"}},
	{{"nvidia-smi", "topo", "-p2p", "r"}},
	{{"nvidia-smi", "-q"}},
}

// liveLog is the place of the kernel log in liveCommands.
const liveLog = 0

// commandLimit bounds each program: nvidia-smi waits for ever for a GPU that is
// gone, and Slurm gives a health check 60 seconds for everything.
const commandLimit = 10 * time.Second

// liveMachine reads this machine, its kernel log and what nvidia-smi says. The
// log is returned as it was read, too.
func liveMachine() (*machine.Machine, []machine.LogText, error) {
	texts := make([]string, len(liveCommands))
	failed := make([]error, len(liveCommands))
	var wait sync.WaitGroup
	for i, ways := range liveCommands {
		wait.Go(func() {
			for _, argv := range ways {
				text, err := runCommand(argv[0], argv[1:]...)
				if err == nil && !empty(text) {
					texts[i], failed[i] = text, nil
					return
				}
				if err == nil {
					err = fmt.Errorf("%s has nothing to say", argv[0])
				}
				failed[i] = errors.Join(failed[i], err)
			}
		})
	}
	wait.Wait()

	folder, err := os.MkdirTemp("", "ringlane-")
	if err != nil {
		return nil, nil, fmt.Errorf("read this machine: %w", err)
	}
	defer os.RemoveAll(folder)
	names := map[string]string{"/": "this machine"}
	paths := []string{"/"}
	for i, text := range texts {
		if text == "" {
			continue
		}
		path := filepath.Join(folder, fmt.Sprintf("%d.txt", i))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, nil, fmt.Errorf("read this machine: %w", err)
		}
		names[path] = strings.Join(liveCommands[i][0], " ")
		paths = append(paths, path)
	}
	m, err := probe.Read(paths, strings.NewReader(""))
	if err != nil || !m.Saw(machine.KindSysfs) {
		return nil, nil, errors.New("read this machine: there is no PCI bus in /sys/bus/pci/devices (is /sys mounted?)")
	}
	rename(m, names)
	if failed[liveLog] != nil {
		m.Problems = append(m.Problems, machine.Problem{
			Input: "kernel log", Class: machine.Denied, Text: oneLine(failed[liveLog]) + " (run it as root)",
		})
	}
	var log []machine.LogText
	if texts[liveLog] != "" {
		log = []machine.LogText{{
			LogPart: machine.LogPart{Input: names[filepath.Join(folder, "0.txt")]},
			Lines:   strings.Split(strings.TrimRight(texts[liveLog], "\n"), "\n"),
		}}
	}
	return m, log, nil
}

// empty reports whether a program said nothing but remarks, such as
// journalctl's "-- No entries --".
func empty(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-- ") {
			return false
		}
	}
	return true
}

// rename puts names for people in the place of temporary files.
func rename(m *machine.Machine, names map[string]string) {
	put := func(at *string) {
		if n, ok := names[*at]; ok {
			*at = n
		}
	}
	for i := range m.Inputs {
		put(&m.Inputs[i].Name)
	}
	for i := range m.Problems {
		put(&m.Problems[i].Input)
	}
	for i := range m.LogParts {
		put(&m.LogParts[i].Input)
	}
}

func oneLine(err error) string { return strings.Join(strings.Split(err.Error(), "\n"), "; ") }

// runCommand returns what a program prints. It is given up when its time is
// over, even if it cannot be killed because a driver holds it.
func runCommand(name string, args ...string) (string, error) {
	type result struct {
		out []byte
		err error
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		command := exec.CommandContext(ctx, name, args...)
		command.Env = append(os.Environ(), "LC_ALL=C")
		command.WaitDelay = time.Second
		out, err := command.Output()
		done <- result{out, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			var exit *exec.ExitError
			if errors.As(r.err, &exit) && len(exit.Stderr) > 0 {
				r.err = errors.New(strings.TrimSpace(string(exit.Stderr)))
			}
			return "", fmt.Errorf("run %s: %w", name, r.err)
		}
		return string(r.out), nil
	case <-ctx.Done():
		select {
		case r := <-done:
			if r.err == nil {
				return string(r.out), nil
			}
		case <-time.After(2 * time.Second):
		}
		return "", fmt.Errorf("run %s: no answer in %v", name, commandLimit)
	}
}
