package launch

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestFirstFailureIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script string
		status int
		says   string
	}{
		{`exit 7`, 7, "ended with exit status 7"},
		{`kill -SEGV $$`, 139, "was killed by SIGSEGV"},
		{`kill -KILL $$`, 137, "was killed by SIGKILL"},
		{`kill -TERM $$`, 143, "was killed by SIGTERM"},
	} {
		l := launcher(t, sh(3, `[ $RANK = 2 ] && echo "pid $$" && `+c.script+`; exec sleep 1000`)).begin()
		l.end(c.status)
		last := l.seen[len(l.seen)-1]
		var pid string
		for _, line := range l.seen {
			if text, ok := strings.CutPrefix(line, "[2] pid "); ok {
				pid = text
			}
			if strings.HasPrefix(line, "ringlane run: ") {
				last = line
			}
		}
		if want := "rank 2 of 3 (pid " + pid + ") " + c.says; !strings.Contains(last, want) || !regexp.MustCompile(`: .+ \(.+\)$`).MatchString(last) {
			t.Errorf("%s: the last line is %q, want %q, why and what to do", c.script, last, want)
		}
	}
}

// TestOthersReportBeforeTheyAreEnded also shows that of two ranks that fail
// one right after the other the first is named.
func TestOthersReportBeforeTheyAreEnded(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(2, `ranks=$RINGLANE_RENDEZVOUS/ranks.json
		[ $RANK = 1 ] && exit 5
		while [ ! -e $ranks ]; do :; done
		pid=$(sed 's/.*"1":{"pid":\([0-9]*\).*/\1/' $ranks)
		while read _ _ state rest </proc/$pid/stat && [ $state != Z ]; do :; done 2>/dev/null
		echo "rank 1 is gone"; exit 1`)).begin()
	l.end(5)
	l.await("[0] rank 1 is gone")
}

func TestRankThatIgnoresTermIsKilled(t *testing.T) {
	t.Parallel()
	spec := sh(3, `trap '' TERM; echo ready; [ $RANK = 1 ] && exit 3; while :; do sleep 1000; done`)
	spec.Grace = time.Millisecond
	l := launcher(t, spec).begin()
	l.end(3)
	l.await("ranks 0, 2 did not end")
}

func TestStoppedRankHearsTerm(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(2, `if [ $RANK = 1 ]; then trap 'echo "bye"; exit 0' TERM; kill -STOP $$; sleep 1000; exit; fi
		pid=
		while [ -z "$pid" ]; do pid=$(sed 's/.*"1":{"pid":\([0-9]*\).*/\1/' $RINGLANE_RENDEZVOUS/ranks.json 2>/dev/null); done
		while read _ _ state rest </proc/$pid/stat && [ $state != T ]; do :; done
		exit 3`)).begin()
	l.end(3)
	l.await("[1] bye")
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	spec := sh(2, `echo "attempt $TORCHELASTIC_RESTART_COUNT $RINGLANE_JOB $RINGLANE_RENDEZVOUS"
		[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && exit 9; exit 0`)
	spec.MaxRestarts = 2
	l := launcher(t, spec).begin()
	l.end(0)
	l.await("restart 1 of 2", "restart 2 of 2")
	found := regexp.MustCompile(`(?m)^\[0\] attempt (\d) (\S+) (\S+)$`).FindAllStringSubmatch(l.output(), -1)
	seen := map[string]bool{}
	for _, f := range found {
		seen[f[1]], seen[f[2]], seen[f[3]] = true, true, true
	}
	if len(found) != 3 || len(seen) != 9 {
		t.Errorf("want three attempts with a job and a directory each; said:\n%s", l.output())
	}

	spec.MaxRestarts = 1
	launcher(t, spec).begin().end(9)
}

func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(2, `trap 'echo got USR1' USR1; trap 'echo got USR2' USR2; trap 'echo got INT; exit 0' INT
		echo ready; while :; do sleep 0.01; done`)).begin()
	l.await("[0] ready", "[1] ready")
	for _, sig := range []unix.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGINT} {
		name := strings.TrimPrefix(unix.SignalName(sig), "SIG")
		l.signal(sig)
		l.await("[0] got "+name, "[1] got "+name)
	}
	l.end(130)
}

func TestEachEndingSignalGivesItsStatus(t *testing.T) {
	t.Parallel()
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		if signal.Ignored(sig) {
			t.Logf("%v: not tried: this test was started with it ignored, as under nohup", sig)
			continue
		}
		spec := sh(2, `echo ready; exec sleep 1000`)
		spec.MaxRestarts = 3 // an end that was asked for is no failure
		l := launcher(t, spec).begin()
		l.await("[0] ready", "[1] ready")
		l.signal(sig)
		l.end(128 + int(sig))
		if strings.Contains(l.output(), "restart") {
			t.Errorf("%v: restarted:\n%s", sig, l.output())
		}
	}
}

// TestInterruptAfterFailure: the job failed by itself, and is not restarted
// for somebody who wants its end.
func TestInterruptAfterFailure(t *testing.T) {
	t.Parallel()
	spec := sh(2, `trap '' TERM; trap 'exit 0' INT; [ $RANK = 1 ] && exit 3; while :; do sleep 0.01; done`)
	spec.MaxRestarts = 3
	l := launcher(t, spec).begin()
	l.await("ending rank 0")
	l.signal(unix.SIGINT)
	l.end(3)
	if strings.Contains(l.output(), "restart") {
		t.Errorf("restarted:\n%s", l.output())
	}
}

func TestSecondInterruptKills(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(2, `trap '' INT; echo ready; while :; do sleep 1000; done`)).begin()
	l.await("[0] ready", "[1] ready")
	l.signal(unix.SIGINT)
	l.await("SIGINT: ending ranks 0, 1")
	l.signal(unix.SIGINT)
	l.end(130)
}

// TestSameTermTwiceIsOneRequest is about timeout(1), which signals its child
// and then its process group, the child included.
func TestSameTermTwiceIsOneRequest(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(1, `trap 'echo saving' TERM; trap 'echo half' USR1; trap 'echo saved; exit 0' USR2; echo ready; while :; do sleep 0.01; done`)).begin()
	l.await("ready")
	l.signal(unix.SIGTERM)
	l.await("saving")
	l.signal(unix.SIGTERM)
	l.signal(unix.SIGUSR1)
	l.await("half")
	l.signal(unix.SIGUSR2)
	l.end(143)
	l.await("saved")
	if n := strings.Count(l.output(), "saving"); n != 1 {
		t.Errorf("the rank got SIGTERM %d times, want once:\n%s", n, l.output())
	}
}

func TestKilledLauncherLeavesNothing(t *testing.T) {
	t.Parallel()
	// A child of each rank leaves its process group, as timeout(1) does.
	l := launcher(t, sh(3, `timeout 2000 sleep 1000 & echo ready; trap '' TERM; while :; do sleep 1000; done`)).begin()
	l.await("[0] ready", "[1] ready", "[2] ready")
	l.eventually("all run", func() bool { return len(l.running()) >= 2+3*4 })
	if files := l.files(); len(files) != 1 {
		t.Fatalf("files %v, want the rendezvous directory", files)
	}
	l.signal(unix.SIGKILL)
	l.eventually("no process is left", func() bool { return len(l.running()) == 0 })
	l.eventually("no file is left", func() bool { return len(l.files()) == 0 })
}

// TestKilledGuard shows that the launcher cleans up without its guard, and
// that the kernel takes the ranks along if both are killed.
func TestKilledGuard(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		l := launcher(t, sh(2, `echo ready; exec sleep 1000`)).begin()
		l.await("[0] ready", "[1] ready")
		var guard int
		for _, pid := range l.running() {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if strings.HasSuffix(string(line), "\x00"+GuardCommand+"\x00") {
				guard = pid
			}
		}
		if guard == 0 {
			t.Fatal("no guard runs")
		}
		_ = unix.Kill(guard, unix.SIGKILL)
		if both {
			l.signal(unix.SIGKILL)
			l.eventually("no process is left", func() bool { return len(l.running()) == 0 })
			continue
		}
		l.signal(unix.SIGTERM)
		l.end(143)
	}
}

func TestGrandchildren(t *testing.T) {
	t.Parallel()
	// One ends by itself and is heard; two would hold the pipe for ever, one of
	// them deaf to SIGTERM.
	l := launcher(t, sh(2, `(sleep 0.1; echo late words) & sleep 1000 & (trap '' TERM; exec sleep 1000) & echo early words`)).begin()
	l.end(0)
	l.await("[0] early words", "[0] late words", "[1] early words", "[1] late words")
}

// TestEscapedGrandchild: a daemon in its own session is left alone, and its
// hold on the pipe does not hold the job.
func TestEscapedGrandchild(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(2, `setsid sh -c 'echo daemon $$; exec sleep 1000' & sleep 0.1; echo last words`))
	l.begin()
	late := time.AfterFunc(patience, func() { l.signal(unix.SIGKILL) })
	defer late.Stop()
	l.await("[0] daemon", "[1] daemon", "[0] last words", "[1] last words")
	for range l.said { // to the launcher's end
	}
	_ = l.process.Wait()
	if got := l.process.ProcessState.ExitCode(); got != 0 {
		t.Errorf("exit status %d, want 0", got)
	}
	if pids := l.running(); len(pids) != 2 {
		t.Errorf("processes %v run, want the two daemons", pids)
	}
}

func TestReaderOfOutputLeaves(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(2, `while echo line; do :; done; exit 4`))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l.process.Stdout = write
	if err := l.process.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if _, err := read.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	read.Close()
	late := time.AfterFunc(patience, func() { l.signal(unix.SIGKILL) })
	defer late.Stop()
	_ = l.process.Wait()
	// The ranks end as a program does whose reader leaves: by SIGPIPE.
	if got := l.process.ProcessState.ExitCode(); got != 128+int(unix.SIGPIPE) {
		t.Errorf("exit status %d, want %d", got, 128+int(unix.SIGPIPE))
	}
	if pids, files := l.running(), l.files(); len(pids)+len(files) > 0 {
		t.Errorf("processes %v and files %v are left", pids, files)
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range []struct {
		command string
		status  int
		says    string
	}{
		{"no-such-program", 127, "cannot start no-such-program: no such program in PATH ("},
		{filepath.Join(dir, "missing"), 127, "no such file or directory ("},
		{write("plain", "", 0o600), 126, "permission denied ("},
		{write("train.py", "", 0o600), 126, "(to run a Python script: ringlane run -- python "},
		{write("garbage", "\x00", 0o700), 126, "exec format error ("},
		{write("orphan", "#!/no/such/interpreter\n", 0o700), 127, "no such file or directory ("},
		{dir, 126, "("},
	} {
		l := launcher(t, Spec{Command: []string{c.command}, Ranks: 2, MaxRestarts: 3}).begin()
		l.end(c.status)
		if len(l.seen) != 1 || !strings.Contains(l.output(), c.says) {
			t.Errorf("%s: said %q, want one line with %q", c.command, l.output(), c.says)
		}
	}
}

func TestProcessWithAnOddName(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "x) Z 1 (y")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho ready; read line\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	l := launcher(t, Spec{Command: []string{script}, Ranks: 1})
	in, err := l.process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	l.begin().await("ready")
	for _, pid := range l.running() {
		p, err := readProcess(strconv.Itoa(pid))
		// 0 is a session led from outside this PID namespace, as in a container.
		sid, _ := unix.Getsid(pid)
		if err != nil || p.pid != pid || p.session != sid || p.start == 0 || p.ended() {
			t.Errorf("readProcess(%d) = %+v, %v, want session %d", pid, p, err, sid)
		}
	}
	in.Close()
	l.end(1)
}

// TestEndsComeInOrder: ranks that ended before anybody looked are reported in
// the order in which they ended.
func TestEndsComeInOrder(t *testing.T) {
	a := &attempt{job: &job{Spec: sh(4, `read line`), program: "/bin/sh", guard: &guard{}}, exits: make(chan exit, 4)}
	var err error
	if a.watcher, err = newWatcher(); err != nil {
		t.Fatal(err)
	}
	inputs := make([]*os.File, 4)
	for i := range inputs {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		a.Stdin, inputs[i] = read, write
		r, err := a.startRank(0, os.Environ(), nil, nil) // rank 0 is the one that reads
		if err != nil {
			t.Fatal(err)
		}
		read.Close()
		r.number = i
	}
	for _, i := range []int{2, 0, 3, 1} {
		inputs[i].Close()
		pid := strconv.Itoa(a.watcher.ranks[i].process.Process.Pid)
		for {
			if p, err := readProcess(pid); err != nil || p.ended() {
				break
			}
		}
	}
	go a.watcher.watch(a.exits)
	for _, want := range []int{2, 0, 3, 1} {
		if e := <-a.exits; e.rank.number != want || e.status() != 1 {
			t.Errorf("rank %d ended with %d, want rank %d with 1", e.rank.number, e.status(), want)
		}
	}
}
