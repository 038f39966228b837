package communicator

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Tests of what a dying, stopped or missing process does to the others start
// this test binary again as ranks: scenarios are what such a rank does.
const scenarioVariable = "COMMUNICATOR_TEST_SCENARIO"

func TestMain(m *testing.M) {
	name := os.Getenv(scenarioVariable)
	os.Setenv("XDG_CACHE_HOME", "/nonexistent") // what was measured here is no part of a test
	if name == "" {
		os.Exit(m.Run())
	}
	if err := scenarios[name](); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// worker is a rank in a process of its own.
type worker struct {
	*exec.Cmd
	lines *bufio.Scanner
	in    io.WriteCloser
}

// crew starts one process a listed rank of a job of size ranks.
func crew(t *testing.T, scenario string, size int, ranks []int, environ ...string) []*worker {
	t.Helper()
	dir, job := t.TempDir(), uniqueJob()
	private(t, dir)
	var all []*worker
	for _, rank := range ranks {
		w := &worker{Cmd: exec.Command("/proc/self/exe")}
		w.Env = append(os.Environ(), scenarioVariable+"="+scenario,
			fmt.Sprint("RINGLANE_RANK=", rank), fmt.Sprint("RINGLANE_SIZE=", size),
			"RINGLANE_JOB="+job, "RINGLANE_RENDEZVOUS="+dir)
		w.Env = append(w.Env, environ...)
		w.Stderr = os.Stderr
		out, err := w.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if w.in, err = w.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		w.lines = bufio.NewScanner(out)
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			w.Process.Kill()
			w.Wait()
		})
		all = append(all, w)
	}
	return all
}

// line is the next line that the rank writes.
func (w *worker) line(t *testing.T) string {
	t.Helper()
	if !w.lines.Scan() {
		t.Fatalf("rank with pid %d ended without a word (%v)", w.Process.Pid, w.lines.Err())
	}
	return w.lines.Text()
}

func ranksTo(n int) (list []int) {
	for r := range n {
		list = append(list, r)
	}
	return list
}

// scenarios are run by name in processes of their own.
var scenarios = map[string]func() error{
	// reduce makes large allreduces until one fails.
	"reduce": func() error {
		c, err := joinFromProcess()
		if err != nil {
			return err
		}
		fmt.Println("joined")
		for {
			if err := allReduceOnes(c, 1<<20); err != nil {
				return err
			}
		}
	},
	// join says only that it has joined. It moves to a control group first if
	// one is named.
	"join": func() error {
		if group := os.Getenv("COMMUNICATOR_TEST_GROUP"); group != "" {
			if err := os.WriteFile(group+"/cgroup.procs", fmt.Append(nil, os.Getpid()), 0o644); err != nil {
				return err
			}
		}
		c, err := joinFromProcess()
		if err != nil {
			return err
		}
		fmt.Println("joined")
		return c.Close()
	},
	// crowd makes many small and some large allreduces.
	"crowd": func() error {
		c, err := joinFromProcess()
		if err != nil {
			return err
		}
		defer c.Close()
		for i := range 300 {
			if err := allReduceOnes(c, 1+i%7*3000); err != nil {
				return err
			}
		}
		fmt.Println("done")
		return nil
	},
	// wait joins and receives from rank 1, which never sends.
	"wait": func() error {
		c, err := joinFromProcess()
		if err != nil {
			return err
		}
		fmt.Println("joined")
		if c.rank == 1 {
			io.Copy(io.Discard, os.Stdin)
			return nil
		}
		_, err = c.Recv(make([]byte, 8), 0, 1, 0)
		return err
	},
	// group joins, and ranks 0 and 1 make a group; rank 1 is stopped before.
	"group": func() error {
		c, err := joinFromProcess()
		if err != nil {
			return err
		}
		fmt.Println("joined")
		if c.rank == 1 {
			io.Copy(io.Discard, os.Stdin)
			return nil
		}
		_, err = c.Group([]int{0, 1})
		return err
	},
}

func joinFromProcess() (*Comm, error) {
	cfg, err := FromProcess()
	if err != nil {
		return nil, err
	}
	return Join(cfg)
}

// result reads the error that a rank ends with, and how long after start.
func (w *worker) result(t *testing.T, start time.Time) (string, time.Duration) {
	t.Helper()
	text := w.line(t)
	after := time.Since(start)
	if !strings.HasPrefix(text, "error: ") {
		t.Fatalf("rank with pid %d says %q, want an error", w.Process.Pid, text)
	}
	return text, after
}

// everyone runs check for each worker at once.
func everyone(crew []*worker, check func(i int, w *worker)) {
	var wg sync.WaitGroup
	for i, w := range crew {
		wg.Go(func() { check(i, w) })
	}
	wg.Wait()
}
