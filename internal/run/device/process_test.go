package device

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// Tests of what a dying, stopped or missing process does to the others start
// this test binary again as ranks: scenarios are what such a rank does.
const scenarioVariable = "DEVICE_TEST_SCENARIO"

func TestMain(m *testing.M) {
	name := os.Getenv(scenarioVariable)
	measurements = steady                       // what an emulator measures is noise
	os.Setenv("XDG_CACHE_HOME", "/nonexistent") // what was measured here is no part of a test
	if os.Getenv("RINGLANE_EMULATOR") == "" {
		os.Setenv("RINGLANE_EMULATOR", "gpus=3,sms=16,threads=256,memory=512M")
	}
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

// spawn starts a job of n ranks. RANK in environ stands for the rank.
func spawn(t *testing.T, scenario string, n int, environ ...string) []*worker {
	t.Helper()
	driver := cudatest.Open(t) // for them too
	if !emulated(driver) && slices.ContainsFunc(environ, func(e string) bool { return strings.HasPrefix(e, "RINGLANE_EMULATOR=") }) {
		t.Skip("GPUs cannot be made to fail: this is for the emulator")
	}
	dir, job := t.TempDir(), uniqueJob()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var all []*worker
	for rank := range n {
		w := &worker{Cmd: exec.Command("/proc/self/exe")}
		w.Env = append(os.Environ(), scenarioVariable+"="+scenario, "RINGLANE_TIMEOUT=20s", "RINGLANE_DEVICE_WINDOW="+window,
			fmt.Sprint("RINGLANE_RANK=", rank), fmt.Sprint("RINGLANE_SIZE=", n), "RINGLANE_JOB="+job, "RINGLANE_RENDEZVOUS="+dir)
		for _, text := range environ {
			w.Env = append(w.Env, strings.ReplaceAll(text, "RANK", fmt.Sprint(rank)))
		}
		w.Stderr = os.Stderr
		out, err := w.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if w.in, err = w.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		w.lines = bufio.NewScanner(out)
		endWithUs(t, w.Cmd)
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

// endWithUs has a process that is yet to start end with this one, even if it is
// stopped then. The kernel ties Pdeathsig to the thread that forks: it is kept
// for as long as the test runs.
func endWithUs(t *testing.T, process *exec.Cmd) {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// line is the next line that the rank writes.
func (w *worker) line(t *testing.T) string {
	t.Helper()
	if !w.lines.Scan() {
		t.Errorf("rank with pid %d ended without a word (%v)", w.Process.Pid, w.lines.Err())
	}
	return w.lines.Text()
}

// says expects the next line.
func (w *worker) says(t *testing.T, want string) {
	t.Helper()
	if got := w.line(t); got != want {
		t.Errorf("rank with pid %d says %q, want %q", w.Process.Pid, got, want)
	}
}

// everyone runs check for each worker at once.
func everyone(ranks []*worker, check func(i int, w *worker)) {
	var wg sync.WaitGroup
	for i, w := range ranks {
		wg.Go(func() { check(i, w) })
	}
	wg.Wait()
}

// solo is a rank in a process of its own.
type solo struct {
	host   *communicator.Comm
	comm   *Comm
	stream cuda.Stream
	buffer cuda.Pointer
}

const soloCount = 3000

// alone joins as the environment says, with job after the name of the job.
func alone(job string) (*solo, error) {
	cfg, err := communicator.FromProcess()
	if err != nil {
		return nil, err
	}
	cfg.Job += job
	c, err := communicator.Join(cfg)
	if err != nil {
		return nil, err
	}
	driver, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	d, err := Join(c, c.Rank()%len(driver.Devices()))
	if err != nil {
		return nil, err
	}
	s := &solo{host: c, comm: d}
	if s.stream, err = d.Context().NewStream(cuda.Normal); err != nil {
		return nil, err
	}
	s.buffer, err = d.Context().Alloc(8 * soloCount)
	return s, err
}

// sum has all ranks add ones and checks the result.
func (s *solo) sum(count int) error {
	one := make([]byte, 8*count)
	for i := 0; i < len(one); i += 8 {
		one[i] = 1
	}
	if err := s.comm.Context().CopyTo(s.buffer, one); err != nil {
		return err
	}
	err := s.comm.Enqueue(Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: count, In: s.buffer, Out: s.buffer}, s.stream)
	if err != nil {
		return err
	}
	if err := s.comm.Synchronize(s.stream); err != nil {
		return err
	}
	out := make([]byte, 8*count)
	if err := s.comm.Context().CopyFrom(out, s.buffer); err != nil {
		return err
	}
	for i := 0; i < len(out); i += 8 {
		if got := binary.LittleEndian.Uint64(out[i:]); got != uint64(s.comm.Size()) {
			return fmt.Errorf("element %d of a sum of %d ones is %d", i/8, s.comm.Size(), got)
		}
	}
	return nil
}

// close ends everything, and fails if the GPU holds more than at the start.
func (s *solo) close() error {
	ctx := s.comm.Context()
	if err := ctx.Free(s.buffer); err != nil {
		return err
	}
	return s.host.Close()
}

// scenarios are run by name in processes of their own.
var scenarios = map[string]func() error{
	// sum makes some sums of all sizes.
	"sum": func() error {
		s, err := alone("")
		if err != nil {
			return err
		}
		for i := range 40 {
			if err := s.sum(1 + i*soloCount/40); err != nil {
				return err
			}
		}
		for _, p := range s.comm.Paths() {
			if s.comm.Rank() == 0 {
				fmt.Println(p.From, p.To, p.Kind, p.Why)
			}
		}
		if s.comm.Rank() == 0 {
			fmt.Println("chosen for host memory:", s.comm.devices.Host)
		}
		fmt.Println("done")
		return s.close()
	},
	// again makes sums until that fails, and then some more in a communicator
	// that is new.
	"again": func() error {
		s, err := alone("")
		if err != nil {
			return err
		}
		fmt.Println("joined")
		for err == nil {
			err = s.sum(soloCount)
		}
		fmt.Println("error:", strings.ReplaceAll(err.Error(), "\n", " "))
		if err := s.close(); err != nil {
			return err
		}
		if _, err := fmt.Scanln(); err != nil {
			return err
		}
		if s, err = alone(" again"); err != nil {
			return err
		}
		for range 20 {
			if err := s.sum(soloCount); err != nil {
				return err
			}
		}
		fmt.Println("well")
		return s.close()
	},
	// absent has rank 1 leave a call out.
	"absent": func() error {
		s, err := alone("")
		if err != nil {
			return err
		}
		if err := s.sum(10); err != nil {
			return err
		}
		if s.comm.Rank() == 1 {
			io.Copy(io.Discard, os.Stdin)
		}
		for err == nil { // rank 0 has sent its part of one before it gave up
			err = s.sum(10)
		}
		return err
	},
	// leave has rank 1 close what rank 0 goes on with.
	"leave": func() error {
		s, err := alone("")
		if err != nil {
			return err
		}
		if err := s.sum(10); err != nil {
			return err
		}
		if s.comm.Rank() == 1 {
			if err := s.close(); err != nil {
				return err
			}
			fmt.Println("left")
			return nil
		}
		return s.sum(10)
	},
	// differ has rank 1 ask for another call, which is so much like that of the
	// others that kernels come to an end.
	"differ": func() error {
		s, err := alone("")
		if err != nil {
			return err
		}
		for err == nil {
			if err = s.comm.Enqueue(Call{Count: 10 + s.comm.Rank(), In: s.buffer, Out: s.buffer}, s.stream); err == nil {
				err = s.comm.Synchronize(s.stream)
			}
		}
		return err
	},
}

// failure is the next line of a rank, which is to be an error.
func (w *worker) failure(t *testing.T, start time.Time) (string, time.Duration) {
	t.Helper()
	text := w.line(t)
	if !strings.HasPrefix(text, "error: ") {
		t.Errorf("rank with pid %d says %q, want an error", w.Process.Pid, text)
	}
	return text, time.Since(start)
}
