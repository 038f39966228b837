package launch

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// rank is one process of the job.
type rank struct {
	number  int
	process *exec.Cmd
	pidfd   int
	session session
	started time.Time
}

// exit is the end of a rank.
type exit struct {
	rank  *rank
	wait  syscall.WaitStatus
	after time.Duration
}

func (e *exit) failed() bool { return !e.wait.Exited() || e.wait.ExitStatus() != 0 }

// status is the exit status that a shell would give.
func (e *exit) status() int {
	if e.wait.Signaled() {
		return 128 + int(e.wait.Signal())
	}
	return e.wait.ExitStatus()
}

// what says which rank ended and how.
func (e *exit) what(ranks int) string {
	how := fmt.Sprintf("ended with exit status %d", e.wait.ExitStatus())
	if e.wait.Signaled() {
		how = "was killed by " + unix.SignalName(e.wait.Signal())
	}
	return fmt.Sprintf("rank %d of %d (pid %d) %s after %v",
		e.rank.number, ranks, e.rank.process.Process.Pid, how, e.after.Round(time.Millisecond))
}

// describe adds to what the likely cause and what to do.
func (e *exit) describe(ranks int) string {
	why, remedy := "the command failed", "its own message stands above"
	if ranks > 1 {
		why = "it was the first rank to fail"
		remedy = fmt.Sprintf("its own message stands above in the lines marked [%d]", e.rank.number)
	}
	if e.wait.Signaled() {
		switch e.wait.Signal() {
		case unix.SIGKILL:
			why = "somebody killed it, or the kernel did for want of memory"
			remedy = "see `dmesg`; a smaller batch or fewer DataLoader workers need less memory"
		case unix.SIGSEGV, unix.SIGILL, unix.SIGFPE:
			why = "native code in it crashed"
			remedy = "PYTHONFAULTHANDLER=1 makes Python print where"
		case unix.SIGBUS:
			why = "memory that it had mapped was not there, as when a memory limit or a device gives out"
			remedy = "see `dmesg`; PYTHONFAULTHANDLER=1 makes Python print where"
		case unix.SIGABRT:
			why = "native code in it gave up"
			remedy += "; PYTHONFAULTHANDLER=1 makes Python print where"
		default:
			why = "another process sent it that signal"
			remedy = "see who stops jobs on this machine"
		}
	}
	return fmt.Sprintf("%s: %s (%s)", e.what(ranks), why, remedy)
}

// startRank starts one rank, which writes to the given files itself.
func (a *attempt) startRank(number int, env []string, stdout, stderr *os.File) (*rank, error) {
	process := exec.Command(a.program, a.Command[1:]...)
	process.Args[0] = a.Command[0]
	process.Err = nil // find has decided that a program of the current directory is fine
	process.Env = env
	process.Stdout, process.Stderr = stdout, stderr
	if number == 0 && a.Stdin != nil && !inBackground(a.Stdin) {
		process.Stdin = a.Stdin
	}
	release, err := a.bind(number)
	if err != nil {
		return nil, err
	}
	defer release()
	r := &rank{number: number, process: process, pidfd: -1, started: time.Now()}
	process.SysProcAttr = &unix.SysProcAttr{
		Setsid: true,
		PidFD:  &r.pidfd,
		// Should launcher and guard both be killed, the rank at least goes too.
		Pdeathsig: unix.SIGKILL,
	}
	if err := process.Start(); err != nil {
		return nil, cannotStart(a.Command[0], err)
	}
	if r.session, err = newSession(process.Process.Pid); err != nil {
		err = failed(fmt.Errorf("cannot look at rank %d: %w (is /proc mounted?)", number, err))
	} else {
		err = a.watcher.add(r)
	}
	if err != nil {
		_ = process.Process.Kill()
		_ = process.Wait()
		_ = unix.Close(r.pidfd)
		return nil, err
	}
	a.guard.tell(notice{Session: &r.session})
	return r, nil
}

// inBackground reports a terminal that somebody else has in the foreground.
// Rank 0, free of job control in its own session, would take that one's input.
func inBackground(stdin *os.File) bool {
	foreground, err := unix.IoctlGetInt(int(stdin.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground != unix.Getpgrp()
}
