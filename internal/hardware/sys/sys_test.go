package sys

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// tree writes files below a directory that stands for the root.
func tree(t *testing.T, files map[string]string) Grants {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Grants{Root: root}
}

func TestMemoryLimit(t *testing.T) {
	const meminfo = "MemTotal: 100 kB\nMemAvailable:    24576 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  MemoryLimit
	}{
		"no groups": {map[string]string{"proc/meminfo": meminfo}, MemoryLimit{24 << 20, ""}},
		"version 2": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "5\n",
			"sys/fs/cgroup/a/memory.max": "1000\n", "sys/fs/cgroup/a/memory.current": "700\n",
			"sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 50\n",
		}, MemoryLimit{350, "/sys/fs/cgroup/a"}},
		"version 1": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/job\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1000\n", "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1500\n",
		}, MemoryLimit{0, "/sys/fs/cgroup/memory/job"}},
		"in a container whose group is its root": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/hidden/by/namespace\n",
			"sys/fs/cgroup/memory.max": "900\n", "sys/fs/cgroup/memory.current": "100\n",
		}, MemoryLimit{800, "/sys/fs/cgroup"}},
	} {
		if got := tree(t, c.files).Memory(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestCoresUnderAQuota(t *testing.T) {
	own := Grants{Root: t.TempDir()}.Cores()
	for name, c := range map[string]struct {
		files map[string]string
		want  int
	}{
		"version 2":     {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, 1},
		"version 1":     {map[string]string{"proc/self/cgroup": "3:cpu,cpuacct:/a\n", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "100000\n", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, 1},
		"no quota":      {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n"}, own},
		"a large quota": {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "90000000 100000\n"}, own},
	} {
		if got := tree(t, c.files).Cores(); got != c.want {
			t.Errorf("%s: %d cores, want %d", name, got, c.want)
		}
	}
}

// The limit of a real memory control group is seen from inside it.
func TestMemoryLimitOfARealGroup(t *testing.T) {
	const version1 = "/sys/fs/cgroup/memory"
	dir, file, limit := "/sys/fs/cgroup/ringlane-test-"+strconv.Itoa(os.Getpid()), "memory.max", "64M"
	if _, err := os.Stat(version1); err == nil {
		dir, file = version1+"/ringlane-test-"+strconv.Itoa(os.Getpid()), "memory.limit_in_bytes"
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("SKIPPED: no control group can be made here: %v", err)
	}
	defer os.Remove(dir)
	if err := os.WriteFile(filepath.Join(dir, file), []byte(limit), 0o644); err != nil {
		t.Skipf("SKIPPED: the group takes no memory limit: %v", err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestPrintMemory$", "-test.v")
	cmd.Env = append(os.Environ(), "SYS_TEST_GROUP="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestPrintMemory is the process in the group of the test above.
func TestPrintMemory(t *testing.T) {
	dir := os.Getenv("SYS_TEST_GROUP")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	got := Grants{}.Memory()
	if got.Group != dir || got.Available > 64<<20 || got.Available < 16<<20 {
		t.Errorf("%+v, want up to 64 MiB in %s", got, dir)
	}
}

func TestFutexWakesASleeper(t *testing.T) {
	var word atomic.Uint32
	done := make(chan time.Duration)
	go func() {
		start := time.Now()
		for word.Load() == 0 {
			FutexWait(&word, 0, time.Minute)
		}
		done <- time.Since(start)
	}()
	time.Sleep(20 * time.Millisecond) // most likely it sleeps by now; right either way
	word.Store(1)
	FutexWake(&word)
	if d := <-done; d > 30*time.Second {
		t.Errorf("woken after %v", d)
	}
	FutexWait(&word, 1, time.Millisecond) // its time is up
	FutexWait(&word, 1, -time.Second)
	FutexWait(&word, 0, time.Minute) // the value is not the one: at once
}

func TestProcess(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if self.Ended() {
		t.Error("this process has ended")
	}
	if got := ProcessState(os.Getpid()); got != "running" && got != "sleeping" {
		t.Errorf("this process is %q", got)
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGSTOP)
	for ProcessState(cmd.Process.Pid) != "stopped by a signal" {
		time.Sleep(time.Millisecond)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if got := ProcessState(cmd.Process.Pid); got != "" {
		t.Errorf("a process that is gone is %q", got)
	}
}

func TestWordsAreChecked(t *testing.T) {
	mem := make([]byte, 64)
	Word64(mem, 8).Store(0x0102030405060708)
	if Word32(mem, 8).Load() != 0x05060708 || Words64(mem)[1] != 0x0102030405060708 {
		t.Error("words do not lie where they should")
	}
	for _, off := range []int{-8, 4, 60, 64} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a word at %d of 64 bytes", off)
				}
			}()
			Word64(mem, off)
		}()
	}
}

func TestOverlap(t *testing.T) {
	b := make([]byte, 10)
	if !Overlap(b[:5], b[4:]) || Overlap(b[:5], b[5:]) || Overlap(b[:0], b) || !Same(b, b[:3]) || Same(b, b[1:]) || Same(b[:0], b) {
		t.Error("overlap of slices is wrong")
	}
}
