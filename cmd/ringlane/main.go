// Command ringlane is the command line of Ringlane: flags in, text out.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// Exit statuses that are the same for every command.
const (
	statusFailed = 1
	statusUsage  = 2
)

// execute runs the command line and returns its exit status. An error that
// knows its own status, by a method ExitStatus, decides it.
func execute(args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" { // doctor's answer is printed already
		fmt.Fprintf(stderr, "%s: %s\n", command.CommandPath(), text)
	}
	var known interface{ ExitStatus() int }
	if errors.As(err, &known) {
		return known.ExitStatus()
	}
	return statusFailed
}

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func (e usageError) ExitStatus() int { return statusUsage }

// usagef returns a usage error; its text says what is wrong and, in
// parentheses, what to write.
func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "ringlane",
		Short: "Data-parallel training on PCIe machines: launch it, measure it, mend the machine",
		Long: `Ringlane trains one model on several processes of a PCIe machine: it starts the
ranks, carries their AllReduce and its family, and measures what that costs. And it
draws the machine underneath, and says what is wrong with it.

Exit status of every command: 0 success, 1 failure, 2 a wrong command line;
"ringlane run" ends with the exit status of the job, "ringlane doctor" with 1 for a
warning and 2 for a fault.`,
		Example: `  ringlane run -n 4 -- python train.py
  ringlane doctor
  ringlane help run`,
		Args:          refuseUnknown,
		RunE:          func(root *cobra.Command, _ []string) error { return root.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       readBuild().String(),

		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommand(newHelpCommand())
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return usagef("%v (see `%s --help`)", err, command.CommandPath())
	})
	root.AddCommand(
		newRunCommand(),
		newTopoCommand(),
		newBenchCommand(),
		newDoctorCommand(),
		newCaptureCommand(),
		newBenchRankCommand(),
		newMeasureRankCommand(),
		newGuardCommand(),
		newVersionCommand(),
	)
	return root
}

// refuseUnknown refuses arguments after the last command that they name.
func refuseUnknown(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	remedy := fmt.Sprintf("see `%s --help`", root.CommandPath())
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		remedy = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q (%s)", args[0], remedy)
}

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		ValidArgsFunction: func(help *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if about, _, err := help.Root().Find(args); err == nil {
				for _, command := range about.Commands() {
					if command.IsAvailableCommand() {
						names = append(names, command.Name())
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(help *cobra.Command, args []string) error {
			about, rest, err := help.Root().Find(args)
			if err != nil {
				return usagef("%v (see `ringlane --help`)", err)
			}
			if err := refuseUnknown(about, rest); err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// noArguments is cobra.NoArgs in the form of the house.
func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q (see `%s --help`)", args[0], command.CommandPath())
	}
	return nil
}
