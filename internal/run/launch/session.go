package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// session is the session of one rank. The rank leads it, and every process
// that the rank starts stays in it unless that process asks for a session of
// its own: a session reaches further than a process group, which `timeout` and
// every shell with job control leave.
type session struct {
	Leader int    `json:"leader"`
	Start  uint64 `json:"start"` // start time of the leader in clock ticks: tells it from a later process with its pid
}

// newSession describes the session led by the running or unreaped process pid.
func newSession(pid int) (session, error) {
	p, err := readProcess(strconv.Itoa(pid))
	if err != nil {
		return session{}, err
	}
	return session{Leader: pid, Start: p.start}, nil
}

// signal sends sig to the process group of the leader. A group that is gone is
// no error: there is nobody left to tell. The number of a leader that ended
// long ago may be a stranger's by now.
func (s session) signal(sig unix.Signal) {
	if p, err := readProcess(strconv.Itoa(s.Leader)); err == nil && p.start != s.Start {
		return
	}
	_ = unix.Kill(-s.Leader, sig)
}

// process is what /proc/PID/stat says that matters here.
type process struct {
	pid, session int
	state        byte
	start        uint64
}

// ended reports a process that runs no more and only waits to be reaped.
func (p process) ended() bool { return p.state == 'Z' || p.state == 'X' }

func readProcess(pid string) (process, error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return process{}, err
	}
	// The second field is the program's name in parentheses, which may itself
	// hold spaces and parentheses; the fields of proc(5) count on after the last one.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return process{}, fmt.Errorf("parse /proc/%s/stat: %d fields after the name, want 20 or more", pid, len(fields))
	}
	p := process{state: fields[0][0]}
	if p.pid, err = strconv.Atoi(pid); err != nil {
		return process{}, err
	}
	if p.session, err = strconv.Atoi(string(fields[3])); err != nil {
		return process{}, err
	}
	p.start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return p, err
}

// members lists the processes of the sessions that still run.
func members(sessions []session) []int {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(sessions) == 0 {
		return nil
	}
	ours := make(map[int]uint64, len(sessions))
	for _, s := range sessions {
		ours[s.Leader] = s.Start
	}
	var found []process
	for _, name := range names {
		p, err := readProcess(filepath.Base(name))
		if err != nil { // it ended while we looked
			continue
		}
		if start, ok := ours[p.pid]; ok && p.start != start {
			delete(ours, p.pid) // the number was given to a stranger: the session is gone
		}
		if !p.ended() {
			found = append(found, p)
		}
	}
	var pids []int
	for _, p := range found {
		if _, ok := ours[p.session]; ok {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// killSessions sends SIGKILL to every process of the sessions until none runs,
// also those forked while it looks, and reports whether none is left. A
// process that waits in the kernel for a device that never answers survives
// even this.
func killSessions(sessions []session, patience time.Duration) bool {
	for deadline := time.Now().Add(patience); ; {
		pids := members(sessions)
		if len(pids) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
