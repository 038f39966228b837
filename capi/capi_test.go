package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestFromC builds the library and a C program against the public header, and
// runs the program as two ranks.
func TestFromC(t *testing.T) {
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	run("go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, "libringlane.so"), ".")
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "gcc"
	}
	program := filepath.Join(dir, "ranks")
	run(compiler, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I../include", "testdata/ranks.c", "-o", program, "-L"+dir, "-lringlane", "-Wl,-rpath,"+dir)

	meeting := filepath.Join(dir, "meeting")
	if err := os.Mkdir(meeting, 0o700); err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for rank := range 2 {
		ranks.Go(func() {
			cmd := exec.Command(program)
			cmd.Env = append(os.Environ(), fmt.Sprint("RINGLANE_RANK=", rank), "RINGLANE_SIZE=2", "RINGLANE_JOB=from C", "RINGLANE_RENDEZVOUS="+meeting, "RINGLANE_TIMEOUT=30s", "RINGLANE_CUDA_DRIVER=off")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "all is well") {
				t.Errorf("rank %d: %v\n%s", rank, err, out)
			}
		})
	}
	ranks.Wait()
}
