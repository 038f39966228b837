package launch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"ringlane/internal/run/communicator"
)

// patience bounds every wait of these tests; none of them asserts a time.
const patience = 30 * time.Second

const (
	specVariable = "LAUNCH_TEST_SPEC" // makes the test binary a launcher
	markVariable = "LAUNCH_TEST_MARK" // by which a test finds every process that it caused
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == GuardCommand {
		if err := Guard(os.Stdin); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if text := os.Getenv(specVariable); text != "" {
		os.Exit(runSpec(text))
	}
	os.Exit(m.Run())
}

func runSpec(text string) int {
	var spec Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		panic(err)
	}
	spec.Environ = os.Environ()
	spec.Stdin, spec.Stdout, spec.Stderr = os.Stdin, os.Stdout, os.Stderr
	var e *Error
	if err := Run(spec); errors.As(err, &e) {
		fmt.Fprintln(os.Stderr, "ringlane run:", err)
		return e.ExitStatus()
	}
	return 0
}

// launched is a launcher in a process of its own.
type launched struct {
	t        *testing.T
	process  *exec.Cmd
	mark     string
	tmp      string
	said     chan string // lines of standard output and standard error
	seen     []string
	finished sync.WaitGroup
}

// launcher prepares one; begin starts it.
func launcher(t *testing.T, spec Spec) *launched {
	t.Helper()
	if spec.Grace == 0 {
		spec.Grace = patience
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp("", "rl") // t.TempDir's names are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	l := &launched{t: t, mark: newName(), tmp: tmp, said: make(chan string, 1024)}
	l.process = exec.Command(os.Args[0])
	l.process.Env = append(os.Environ(), specVariable+"="+string(text), markVariable+"="+l.mark,
		"TMPDIR="+tmp, "XDG_RUNTIME_DIR=", "OMP_NUM_THREADS=")
	l.process.Env = slices.DeleteFunc(l.process.Env, func(s string) bool { return s == "OMP_NUM_THREADS=" })
	return l
}

func sh(ranks int, script string) Spec {
	return Spec{Command: []string{"sh", "-c", script}, Ranks: ranks}
}

func (l *launched) begin() *launched {
	l.t.Helper()
	out, err := l.process.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	errs, err := l.process.StderrPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.process.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { // a test that failed leaves nothing either
		_ = l.process.Process.Kill()
		for _, pid := range l.running() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	for _, r := range []io.Reader{out, errs} {
		l.finished.Go(func() {
			scanner := bufio.NewScanner(r)
			scanner.Buffer(nil, 1<<26)
			for scanner.Scan() {
				l.said <- scanner.Text()
			}
		})
	}
	go func() { l.finished.Wait(); close(l.said) }()
	return l
}

// await reads output until each of the texts was part of a line.
func (l *launched) await(texts ...string) {
	l.t.Helper()
	late := time.After(patience)
	for len(texts) > 0 {
		texts = slices.DeleteFunc(texts, func(text string) bool {
			return slices.ContainsFunc(l.seen, func(line string) bool { return strings.Contains(line, text) })
		})
		if len(texts) == 0 {
			return
		}
		select {
		case line, ok := <-l.said:
			if !ok {
				l.t.Fatalf("never said %q; said:\n%s", texts, l.output())
			}
			l.seen = append(l.seen, line)
		case <-late:
			l.t.Fatalf("did not say %q in %v; said:\n%s", texts, patience, l.output())
		}
	}
}

func (l *launched) output() string { return strings.Join(l.seen, "\n") + "\n" }

func (l *launched) signal(sig unix.Signal) { _ = l.process.Process.Signal(sig) }

// end waits for the launcher's end, and checks its exit status and that no
// process and no file is left.
func (l *launched) end(status int) {
	l.t.Helper()
	late := time.AfterFunc(patience, func() { l.signal(unix.SIGKILL) })
	defer late.Stop()
	for line := range l.said {
		l.seen = append(l.seen, line)
	}
	_ = l.process.Wait()
	if got := l.process.ProcessState.ExitCode(); got != status {
		l.t.Errorf("exit status %d, want %d; said:\n%s", got, status, l.output())
	}
	if pids := l.running(); len(pids) > 0 {
		l.t.Errorf("processes %v are left", pids)
	}
	if files := l.files(); len(files) > 0 {
		l.t.Errorf("files %v are left", files)
	}
}

// running lists the processes that the launcher caused, itself included.
func (l *launched) running() []int {
	var pids []int
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(text, []byte(markVariable+"="+l.mark)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (l *launched) files() []string {
	files, _ := filepath.Glob(filepath.Join(l.tmp, "*"))
	return files
}

// eventually polls for what no channel tells: the end of other processes.
func (l *launched) eventually(what string, done func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func TestEnvironmentOfEachRank(t *testing.T) {
	t.Parallel()
	spec := sh(3, `printf 'env %s\n' "$(env | tr '\n' ' ')"; echo "ranks $(cat $RINGLANE_RENDEZVOUS/ranks.json)"
		echo "mode $(stat -c %a $RINGLANE_RENDEZVOUS)"; echo "pid $$"`)
	spec.Timeout = 90 * time.Second
	spec.MaxRestarts = 2
	// ranks.json appears when all ranks run, so a rank that looks at once waits for it.
	spec.Command[2] = `while [ ! -e $RINGLANE_RENDEZVOUS/ranks.json ]; do :; done; ` + spec.Command[2]
	l := launcher(t, spec).begin()
	l.end(0)

	placed, err := Place(BindAuto, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	shared := map[string]string{}
	for rank := range 3 {
		values := map[string]string{}
		var places map[string]communicator.Member
		var pid int
		for _, line := range l.seen {
			line, ok := strings.CutPrefix(line, fmt.Sprintf("[%d] ", rank))
			if !ok {
				continue
			}
			kind, text, _ := strings.Cut(line, " ")
			switch kind {
			case "env":
				for _, pair := range strings.Fields(text) {
					name, value, _ := strings.Cut(pair, "=")
					values[name] = value
				}
			case "ranks":
				if err := json.Unmarshal([]byte(text), &places); err != nil {
					t.Fatalf("ranks.json: %v", err)
				}
			case "mode":
				if text != "700" {
					t.Errorf("mode of the rendezvous directory is %s, want 700", text)
				}
			case "pid":
				pid, _ = strconv.Atoi(text)
			}
		}
		number := strconv.Itoa(rank)
		for name, want := range map[string]string{
			"RANK": number, "LOCAL_RANK": number, "ROLE_RANK": number, "GROUP_RANK": "0",
			"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "ROLE_WORLD_SIZE": "3", "GROUP_WORLD_SIZE": "1",
			"ROLE_NAME": "default", "MASTER_ADDR": "127.0.0.1",
			"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "2",
			"RINGLANE_RANK": number, "RINGLANE_SIZE": "3", "RINGLANE_TIMEOUT": "90s",
			"OMP_NUM_THREADS": strconv.Itoa(placed.Cores), "PYTHONUNBUFFERED": "1",
		} {
			if values[name] != want {
				t.Errorf("rank %d: %s=%q, want %q", rank, name, values[name], want)
			}
		}
		for _, name := range []string{"MASTER_PORT", "RINGLANE_JOB", "RINGLANE_RENDEZVOUS", "TORCHELASTIC_RUN_ID"} {
			if rank == 0 {
				shared[name] = values[name]
			}
			if values[name] == "" || values[name] != shared[name] {
				t.Errorf("rank %d: %s=%q, want what rank 0 has: %q", rank, name, values[name], shared[name])
			}
		}
		if at := places[number]; at.PID != pid || at.Host == "" {
			t.Errorf("ranks.json places rank %d at %+v, want pid %d", rank, at, pid)
		}
	}
	if filepath.Dir(shared["RINGLANE_RENDEZVOUS"]) != l.tmp {
		t.Errorf("the ranks meet in %s, want it under %s", shared["RINGLANE_RENDEZVOUS"], l.tmp)
	}
}

func TestUserSettingsStay(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(2, `echo $OMP_NUM_THREADS $PYTHONUNBUFFERED $RINGLANE_TIMEOUT`))
	l.process.Env = append(l.process.Env, "OMP_NUM_THREADS=7", "PYTHONUNBUFFERED=", "RINGLANE_TIMEOUT=5s", "RANK=9")
	l.begin().end(0)
	slices.Sort(l.seen)
	if want := []string{"[0] 7 5s", "[1] 7 5s"}; !slices.Equal(l.seen, want) {
		t.Errorf("said %q, want %q", l.seen, want)
	}
}

func TestSingleRankWritesUnmarked(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(1, `echo out; echo err >&2; printf rest`)).begin()
	l.end(0)
	slices.Sort(l.seen)
	if want := []string{"err", "out", "rest"}; !slices.Equal(l.seen, want) {
		t.Errorf("said %q, want %q", l.seen, want)
	}
}

func TestStandardInputGoesToRankZero(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(2, `echo "reads: $(cat)"`))
	l.process.Stdin = strings.NewReader("hello")
	l.begin().end(0)
	slices.Sort(l.seen)
	if want := []string{"[0] reads: hello", "[1] reads: "}; !slices.Equal(l.seen, want) {
		t.Errorf("said %q, want %q", l.seen, want)
	}
}

func TestOutputStreamsStayApart(t *testing.T) {
	t.Parallel()
	l := launcher(t, sh(2, `echo out; echo err >&2`))
	var out, errs bytes.Buffer
	l.process.Stdout, l.process.Stderr = &out, &errs
	if err := l.process.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		got  *bytes.Buffer
		want string
	}{{&out, "out"}, {&errs, "err"}} {
		lines := strings.Split(strings.TrimSpace(c.got.String()), "\n")
		slices.Sort(lines)
		if want := []string{"[0] " + c.want, "[1] " + c.want}; !slices.Equal(lines, want) {
			t.Errorf("%q, want %q", lines, want)
		}
	}
}

func TestLongLinesStayWhole(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	l := launcher(t, sh(4, fmt.Sprintf(`head -c %d /dev/zero | tr '\0' $RANK; echo; head -c 100000 /dev/zero | tr '\0' $RANK`, size))).begin()
	l.end(0)
	if len(l.seen) != 8 {
		t.Fatalf("%d lines, want 8", len(l.seen))
	}
	for _, line := range l.seen {
		mark, text, _ := strings.Cut(line, " ")
		digit := strings.Trim(mark, "[]")
		if strings.Trim(text, digit) != "" || len(text) != size && len(text) != 100000 {
			t.Errorf("a line marked %s has %d bytes or those of another rank", mark, len(text))
		}
	}
}

// TestNothingLeaks runs a job in this process and looks for goroutines.
func TestNothingLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	spec := sh(3, `echo output; exit $RANK`)
	spec.MaxRestarts, spec.Grace, spec.Environ = 1, patience, os.Environ()
	spec.Stdin, spec.Stdout, spec.Stderr = null, null, null
	var e *Error
	if err := Run(spec); !errors.As(err, &e) || e.Status == 0 {
		t.Errorf("Run: %v, want a failed rank", err)
	}
	goleak.VerifyNone(t, before)
}
