package sys

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is a handle on a process that stays valid when its number is used
// again, and across pid namespaces.
type Process struct{ fd int }

// Self is a handle on the calling process, to be handed to others.
func Self() (Process, error) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return Process{}, fmt.Errorf("pidfd_open: %w (Linux 5.3 or later is needed)", err)
	}
	return Process{fd}, nil
}

// ProcessFromFD takes over a descriptor that another process made with Self.
func ProcessFromFD(fd int) Process { return Process{fd} }

// FD is the descriptor to hand to another process.
func (p Process) FD() int { return p.fd }

// Ended reports whether the process has ended.
func (p Process) Ended() bool {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
}

// Close gives the handle back.
func (p Process) Close() error { return unix.Close(p.fd) }

// ProcessState describes what the kernel is doing with pid in a word or two,
// such as "running" or "stopped by a signal", or "" where it cannot be seen.
func ProcessState(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command name in parentheses may itself hold any character.
	_, rest, ok := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	if !ok || rest == "" {
		return ""
	}
	switch rest[0] {
	case 'R':
		return "running"
	case 'S', 'I':
		return "sleeping"
	case 'D':
		return "in uninterruptible sleep"
	case 'T':
		return "stopped by a signal"
	case 't':
		return "stopped by a debugger"
	case 'Z', 'X', 'x':
		return "ended"
	}
	return ""
}
