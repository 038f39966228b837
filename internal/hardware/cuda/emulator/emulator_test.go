package emulator_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringlane/internal/hardware/cuda/emulator"
)

// TestCases runs the programs of testdata against the emulator, each of their
// cases in a process of its own.
func TestCases(t *testing.T) {
	library := emulator.Build(t, filepath.Join("testdata", "kernels.cu"))
	program := filepath.Join(t.TempDir(), "cases")
	sources, err := filepath.Glob("testdata/*.cc")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	build := exec.Command(cmp.Or(os.Getenv("CXX"), "g++"), append(sources, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread",
		"-o", program, library)...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the cases: %v\n%s", err, out)
	}
	names, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(names)) {
		t.Run(name, func(t *testing.T) {
			out, status := run(t, program, name)
			if want := failing[name]; want != "" {
				if !strings.Contains(out, want) || status.Signal() != syscall.SIGABRT {
					t.Errorf("ended with %v, and said %q, not %q", status, out, want)
				}
				return
			}
			if status != 0 {
				t.Errorf("ended with %#x:\n%s", int(status), out)
			}
			if want := complaining[name]; !strings.Contains(out, want) || want == "" && out != "" {
				t.Errorf("said %q, not %q", out, want)
			}
		})
	}
}

// failing are cases that abort, with what they say.
var failing = map[string]string{
	"barrier_that_is_never_complete": "kernel test_forever, block 0: every thread waits for one that never comes",
}

// complaining are cases that say something.
var complaining = map[string]string{
	"settings_that_are_refused": `RINGLANE_EMULATOR: "gpu=2" is none of gpus=0..16`,
}

func run(t *testing.T, program, name string) (string, syscall.WaitStatus) {
	t.Helper()
	var out strings.Builder
	c := exec.Command(program, name)
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	err := c.Wait()
	status, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		t.Fatal(err)
	}
	return out.String(), status
}
