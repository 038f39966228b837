package launch

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// GuardCommand is the subcommand by which the launcher starts its own program
// again as the guard; that program must then call Guard(os.Stdin).
const GuardCommand = "guard"

// guardPatience bounds the wait for processes to go after SIGKILL.
const guardPatience = 10 * time.Second

// notice is one message from the launcher to its guard.
type notice struct {
	Directory string   `json:"directory,omitempty"` // to be removed
	Session   *session `json:"session,omitempty"`   // to be killed
	Ended     int      `json:"ended,omitempty"`     // leader of a session with nobody left in it
}

// Guard reads what the launcher starts and makes until the launcher ends, by
// whatever means: then it kills what still runs and removes the directories.
// It is the same on a normal end, so the path that matters after kill -9 is
// walked every day.
func Guard(launcher io.Reader) error {
	// A signal to everything (a terminal that closes, a service manager that
	// stops) must not end the guard before its launcher.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)

	sessions := map[int]session{}
	var directories []string
	for decoder := json.NewDecoder(launcher); ; {
		var n notice
		if decoder.Decode(&n) != nil { // closed, perhaps in the middle of a notice
			break
		}
		if n.Directory != "" {
			directories = append(directories, n.Directory)
		}
		if n.Session != nil {
			sessions[n.Session.Leader] = *n.Session
		}
		delete(sessions, n.Ended)
	}

	var left []session
	for _, s := range sessions {
		left = append(left, s)
	}
	var err error
	if !killSessions(left, guardPatience) {
		err = fmt.Errorf("processes %v still run after SIGKILL: they wait in the kernel (see /proc/PID/stack)", members(left))
	}
	for _, directory := range directories {
		if e := os.RemoveAll(directory); e != nil && err == nil {
			err = e
		}
	}
	return err
}

// guard is the launcher's end of its guard process.
type guard struct {
	process *exec.Cmd
	pipe    *os.File
}

func startGuard() (*guard, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	// /proc/self/exe is this program even if its file was replaced meanwhile.
	process := exec.Command("/proc/self/exe", GuardCommand)
	process.Args[0] = os.Args[0]
	process.Dir = "/" // keeps no file system busy
	process.Stdin = read
	process.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := process.Start(); err != nil {
		write.Close()
		return nil, err
	}
	return &guard{process, write}, nil
}

// tell hands a notice to the guard. If somebody killed the guard the launcher
// goes on without: it cleans up itself unless it is killed too.
func (g *guard) tell(n notice) { _ = json.NewEncoder(g.pipe).Encode(n) }

// close ends the guard and waits until it has cleaned up.
func (g *guard) close() {
	g.pipe.Close()
	late := time.AfterFunc(2*guardPatience, func() { _ = g.process.Process.Kill() })
	_ = g.process.Wait()
	late.Stop()
}
