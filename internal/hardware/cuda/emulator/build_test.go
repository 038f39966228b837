package emulator_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// compiler stands for one: it makes the file that it is told to make.
const compiler = `#!/bin/bash
while [[ $# -gt 0 ]]; do [[ $1 != -o ]] || echo made >"$2"; shift; done
`

// What one build has handed out is there after the next one, however old it is,
// and nothing is left in the folder of temporary files.
func TestBuild(t *testing.T) {
	folder, out, scratch := t.TempDir(), t.TempDir(), t.TempDir()
	cxx := filepath.Join(folder, "cxx")
	if err := os.WriteFile(cxx, []byte(compiler), 0o755); err != nil {
		t.Fatal(err)
	}
	build := func(kernels ...string) string {
		t.Helper()
		c := exec.Command("../../../../tools/emulator.sh", kernels...)
		c.Env = append(os.Environ(), "CXX="+cxx, "RINGLANE_EMULATOR_OUT="+out, "TMPDIR="+scratch)
		c.Stderr = os.Stderr
		path, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(path))
	}
	age := func() {
		err := filepath.Walk(out, func(path string, _ os.FileInfo, err error) error {
			long := time.Now().Add(-100 * time.Hour)
			return errors.Join(err, os.Chtimes(path, long, long))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	unused := build("testdata/kernels.cu")
	age()
	ours := build()
	if _, err := os.Stat(unused); err == nil {
		t.Errorf("%s has been unused for days and is still there", unused)
	}
	age()
	if again := build(); again != ours {
		t.Errorf("built %s and then %s of the same", ours, again)
	}
	build("testdata/kernels.cu")
	if _, err := os.Stat(ours); err != nil {
		t.Errorf("another build took away what this one is using: %v", err)
	}
	if left, err := os.ReadDir(scratch); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A build that is killed leaves nothing in the folder of temporary files.
func TestKilledBuild(t *testing.T) {
	folder, out, scratch := t.TempDir(), t.TempDir(), t.TempDir()
	cxx := filepath.Join(folder, "cxx")
	// It kills the script when it is to compile.
	script := `#!/bin/bash
[[ $1 == --version ]] || kill -KILL $SCRIPT
`
	if err := os.WriteFile(cxx, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("bash", "-c", "export SCRIPT=$$; exec ../../../../tools/emulator.sh")
	c.Env = append(os.Environ(), "CXX="+cxx, "RINGLANE_EMULATOR_OUT="+out, "TMPDIR="+scratch)
	if err := c.Run(); err == nil {
		t.Fatal("the build was not killed")
	}
	if left, err := os.ReadDir(scratch); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
