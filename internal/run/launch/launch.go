// Package launch starts the ranks of one job on this machine as torchrun does,
// merges their output, names the first that fails, passes signals on, restarts
// the job where asked, and leaves no process and no file behind however it ends.
//
// Each rank leads a session of its own. A terminal's Ctrl-C then reaches the
// launcher alone, which passes it on once; and rank 0 may read a terminal and
// change its modes without being stopped for it, because the kernel's job
// control concerns only the session whose terminal it is.
package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec says what to launch.
type Spec struct {
	Command     []string      // program and arguments of every rank
	Ranks       int           // how many, 1 or more
	MaxRestarts int           // how often the whole job is started again after a failure
	Timeout     time.Duration // RINGLANE_TIMEOUT of the ranks; 0 leaves the variable as it is
	Grace       time.Duration // what a rank that was asked to end has before SIGKILL
	Environ     []string      // environment that the ranks' own is added to
	Stdin       *os.File      // of rank 0; the others read the end of file
	Unmarked    bool          // the ranks write to Stdout and Stderr themselves, as a single rank always does
	Stdout      *os.File
	Stderr      *os.File

	Bind          Bind  // whether each rank is kept on cores of its own
	Near          []int // NUMA node of the GPU of each rank, -1 where unknown; nil without GPUs
	ReportBinding bool  // say on Stderr where each rank runs
}

// Error is why a job failed, with the exit status that tells it to a script:
// that of the first rank that failed, 128 plus the number of a signal, 127 or
// 126 for a command that is missing or cannot be executed, 1 otherwise.
type Error struct {
	Status int
	text   string
}

func (e *Error) Error() string { return e.text }

// ExitStatus returns Status.
func (e *Error) ExitStatus() int { return e.Status }

func failed(err error) *Error { return &Error{1, err.Error()} }

// endings are the signals that ask the launcher to end the job; passed are
// those that it hands on without a meaning of its own.
var (
	endings = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}
	passed  = []os.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH}
)

// job is what the attempts of one launch share.
type job struct {
	Spec
	program string // path of the command's program
	run     string // unique to this launch
	signals chan os.Signal
	guard   *guard
	printer *printer
	stopped os.Signal // first signal that asked for the end
}

// Run launches the job and waits for its end. A nil error means that every
// rank ended with exit status 0; any other error is an *Error. Signals that
// this process receives meanwhile are the job's.
func Run(spec Spec) error {
	program, err := find(spec.Command[0])
	if err != nil {
		return err
	}
	// The kernel ties Pdeathsig to the thread that forks, not to the process:
	// this thread stays as long as the ranks do.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	j := &job{
		Spec: spec, program: program, run: newName(),
		signals: make(chan os.Signal, 16),
		printer: newPrinter(spec.Stdout, spec.Stderr),
	}
	j.listen()
	defer signal.Stop(j.signals)
	if j.guard, err = startGuard(); err != nil {
		return failed(fmt.Errorf("cannot start the guard process: %w (it runs this program again through /proc/self/exe)", err))
	}
	defer j.guard.close()

	for restart := 0; ; restart++ {
		failure, err := j.attempt(restart)
		switch {
		case err != nil:
			return err
		case j.stopped != nil && failure == nil:
			sig := j.stopped.(unix.Signal)
			return &Error{128 + int(sig), fmt.Sprintf("stopped by %s: every rank has ended", unix.SignalName(sig))}
		case failure == nil:
			return nil
		case j.stopped != nil || restart == j.MaxRestarts:
			return &Error{failure.status(), failure.describe(j.Ranks)}
		}
		j.printer.message(fmt.Sprintf("%s; starting all %d ranks again (restart %d of %d)",
			failure.what(j.Ranks), j.Ranks, restart+1, j.MaxRestarts))
	}
}

// listen takes the signals that this process did not inherit as ignored:
// nohup and a shell's background jobs stay what they are, for the ranks too.
func (j *job) listen() {
	for _, sig := range append(append([]os.Signal{unix.SIGTSTP, unix.SIGCONT}, endings...), passed...) {
		if !signal.Ignored(sig) {
			signal.Notify(j.signals, sig)
		}
	}
	// With a reader of its output gone the launcher must still end its ranks:
	// it wants the error of the write, not the signal.
	signal.Notify(j.signals, unix.SIGPIPE)
}

// find resolves a command as the shell does, with the shell's exit statuses.
func find(command string) (string, error) {
	program, err := exec.LookPath(command)
	if err == nil || errors.Is(err, exec.ErrDot) {
		return program, nil
	}
	return "", cannotStart(command, err)
}

func cannotStart(command string, err error) *Error {
	var why *exec.Error
	if errors.As(err, &why) {
		err = why.Err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	status, remedy := 126, "it must be an executable file"
	switch {
	case errors.Is(err, exec.ErrNotFound):
		err = errors.New("no such program in PATH")
		status, remedy = 127, "check its name, or activate the environment that has it"
	case errors.Is(err, fs.ErrNotExist):
		status, remedy = 127, "check its path; for a script also the interpreter in its first line"
	case errors.Is(err, syscall.ENOEXEC):
		remedy = "a script needs a first line such as #!/bin/sh, or its interpreter before it"
	}
	if strings.HasSuffix(command, ".py") {
		remedy = "to run a Python script: ringlane run -- python " + command
	}
	return &Error{status, fmt.Sprintf("cannot start %s: %v (%s)", command, err, remedy)}
}
