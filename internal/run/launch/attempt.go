package launch

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// reportTime is what the other ranks have, after the first failed, to fail
	// by themselves and say what they saw of it: which collective, which link.
	reportTime = time.Second
	// lingerTime is what processes that outlive their rank have to end, first
	// by themselves and then after SIGTERM.
	lingerTime = 2 * time.Second
	// killPatience bounds the wait for processes to go after SIGKILL.
	killPatience = 10 * time.Second
	// lookInterval is how often processes that outlive their rank are looked for.
	lookInterval = 10 * time.Millisecond
)

// attempt is one start of all ranks.
type attempt struct {
	*job
	binding Binding
	ranks   []*rank
	streams []*stream
	watcher *watcher
	exits   chan exit
}

// attempt starts all ranks and waits for their end. It returns the first
// failure among them, or an error if they could not be started or ended.
func (j *job) attempt(restart int) (first *exit, err error) {
	// Anew each time: what this process may use can change meanwhile.
	binding, err := Place(j.Bind, j.Ranks, j.Near)
	if err != nil {
		return nil, failed(err)
	}
	if j.ReportBinding {
		for _, line := range binding.Lines() {
			j.printer.message(line)
		}
	}
	port, err := freePort()
	if err != nil {
		return nil, failed(err)
	}
	name := newName()
	rendezvous, err := makeRendezvous(name, func(directory string) { j.guard.tell(notice{Directory: directory}) })
	if err != nil {
		return nil, failed(err)
	}
	defer os.RemoveAll(rendezvous)

	a := &attempt{job: j, binding: binding, exits: make(chan exit, j.Ranks)}
	if a.watcher, err = newWatcher(); err != nil {
		return nil, err
	}
	err = a.start(environment{
		base: j.Environ, ranks: j.Ranks, port: port, run: j.run, job: name, rendezvous: rendezvous,
		restart: restart, maxRestarts: j.MaxRestarts, timeout: j.Timeout, threads: binding.Cores,
	})
	go a.watcher.watch(a.exits)
	if err != nil {
		killSessions(a.sessions(), killPatience)
		for range a.ranks {
			<-a.exits
		}
	} else if first, err = a.supervise(); err != nil {
		return nil, err
	}
	a.settle()
	for _, r := range a.ranks {
		j.guard.tell(notice{Ended: r.session.Leader})
	}
	return first, err
}

// start starts the ranks and says where they are.
func (a *attempt) start(e environment) error {
	var pids []int
	for number := range a.Ranks {
		r, err := a.startMarked(number, e.of(number))
		if err != nil {
			return err
		}
		a.ranks = append(a.ranks, r)
		pids = append(pids, r.session.Leader)
	}
	if err := writeRanks(e.rendezvous, pids); err != nil {
		return failed(fmt.Errorf("cannot write ranks.json: %w", err))
	}
	return nil
}

// startMarked starts a rank whose output is marked with its number. A single
// rank needs no mark and keeps the launcher's own output, terminal or not.
func (a *attempt) startMarked(number int, env []string) (*rank, error) {
	if a.Ranks == 1 || a.Unmarked {
		return a.startRank(number, env, a.Stdout, a.Stderr)
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return nil, failed(err)
	}
	defer outWrite.Close()
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		outRead.Close()
		return nil, failed(err)
	}
	defer errWrite.Close()
	r, err := a.startRank(number, env, outWrite, errWrite)
	if err != nil {
		outRead.Close()
		errRead.Close()
		return nil, err
	}
	p := a.printer
	a.streams = append(a.streams,
		startStream(outRead, p.newLines(&p.out, number)),
		startStream(errRead, p.newLines(&p.err, number)))
	return r, nil
}

func (a *attempt) sessions() []session {
	var all []session
	for _, r := range a.ranks {
		all = append(all, r.session)
	}
	return all
}

// signal sends sig to the process group of every rank.
func (a *attempt) signal(sig unix.Signal) {
	for _, r := range a.ranks {
		r.session.signal(sig)
	}
}

// supervise waits until every rank has ended. The first failure, or a signal
// that asks for the end, ends the others: first by asking, then by SIGKILL.
func (a *attempt) supervise() (first *exit, err error) {
	left := make(map[*rank]bool, len(a.ranks)) // those that still run
	for _, r := range a.ranks {
		left[r] = true
	}
	var asked unix.Signal // what the ranks were last asked to end by
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	ask := func(sig unix.Signal) {
		if asked == 0 {
			timer.Reset(a.Grace)
		}
		asked = sig
		a.signal(sig)
		a.signal(unix.SIGCONT) // a rank that was stopped hears of it only when it goes on
	}
	kill := func() error {
		timer.Stop()
		if sessions := a.sessions(); !killSessions(sessions, killPatience) {
			return failed(fmt.Errorf("processes %v still run %v after SIGKILL: they wait in the kernel, as for a device that fell off the bus (see /proc/PID/stack and `dmesg`)",
				members(sessions), killPatience))
		}
		return nil
	}
	for len(left) > 0 {
		select {
		case e := <-a.exits:
			delete(left, e.rank)
			if e.failed() && first == nil && asked == 0 {
				first = &e
				timer.Reset(reportTime)
			}
		case <-timer.C:
			if asked == 0 {
				a.printer.message(fmt.Sprintf("%s; ending %s", first.what(a.Ranks), numbers(left)))
				ask(unix.SIGTERM)
				break
			}
			a.printer.message(fmt.Sprintf("%s did not end within %v of %s: SIGKILL", numbers(left), a.Grace, unix.SignalName(asked)))
			err = kill()
		case s := <-a.signals:
			switch sig := s.(unix.Signal); sig {
			case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
				switch {
				case a.stopped == nil:
					a.stopped = sig
					a.printer.message(fmt.Sprintf("%s: ending %s (Ctrl-C kills at once)", unix.SignalName(sig), numbers(left)))
					ask(sig)
				case sig == unix.SIGINT: // the second Ctrl-C
					err = kill()
				case sig != a.stopped: // the same again is one request sent twice, as timeout(1) does
					ask(sig)
				}
			case unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH:
				// To the rank alone, as kill(1) would: a helper that does not
				// know them would die of them.
				for _, r := range a.ranks {
					_ = r.process.Process.Signal(sig)
				}
			case unix.SIGTSTP: // Ctrl-Z: the terminal cannot stop other sessions
				a.signal(unix.SIGSTOP)
				_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			case unix.SIGCONT:
				a.signal(unix.SIGCONT)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return first, nil
}

// numbers lists ranks for a message: "rank 3", "ranks 0, 2".
func numbers(ranks map[*rank]bool) string {
	var all []int
	for r := range ranks {
		all = append(all, r.number)
	}
	slices.Sort(all)
	word := "rank"
	if len(all) > 1 {
		word = "ranks"
	}
	return word + " " + strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ", "), "[]")
}

// settle ends what the ranks left behind and takes in the last of the output.
// Processes that outlive their rank may have something to finish and to say;
// they have lingerTime for it, and as long again after SIGTERM.
func (a *attempt) settle() {
	sessions := a.sessions()
	if !a.quiet(sessions) {
		if len(members(sessions)) > 0 {
			a.signal(unix.SIGTERM)
			a.quiet(sessions)
		}
		killSessions(sessions, killPatience)
	}
	for _, s := range a.streams {
		s.giveUp() // a process in a session of its own may still hold the pipe
	}
	for _, s := range a.streams {
		for ended := false; !ended; {
			select {
			case <-s.done:
				ended = true
			case sig := <-a.signals: // nobody takes our output: a paused terminal, a pager
				ended = a.asksToEnd(sig)
			}
		}
	}
}

// quiet waits until the sessions are empty and the output has ended. It
// reports false after lingerTime, or at once when a signal asks for the end.
func (a *attempt) quiet(sessions []session) bool {
	late := time.After(lingerTime)
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	streams := a.streams
	for {
		var open <-chan struct{}
		if len(streams) > 0 {
			open = streams[0].done
		} else if len(members(sessions)) == 0 {
			return true
		}
		select {
		case <-open:
			streams = streams[1:]
		case <-look.C:
		case <-late:
			return false
		case sig := <-a.signals:
			if a.asksToEnd(sig) {
				return false
			}
		}
	}
}

// asksToEnd remembers a signal that asks for the end, and reports it.
func (a *attempt) asksToEnd(s os.Signal) bool {
	switch s {
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
		if a.stopped == nil {
			a.stopped = s
		}
		return true
	}
	return false
}
