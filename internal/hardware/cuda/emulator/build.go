// Package emulator builds a CUDA driver that runs this project's kernels on
// processors, for tests on machines without a GPU: real processes share its
// device memory, launch kernels, capture graphs, and fail in the ways that GPUs
// and their paths do.
//
// RINGLANE_EMULATOR describes the machine, for example
//
//	gpus=2,sms=4,threads=128,memory=256M,mig=off,p2p=drop:0>1
//
// with gpus, multiprocessors of each, threads of a block, memory of a GPU for each
// process, and whether each GPU is a MIG instance. p2p is on, off, drop, hang or corrupt, for all pairs or for what
// one GPU does in the memory of another; it may be given several times. See
// driver/settings.h.
package emulator

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// noCompiler is how tools/emulator.sh ends where there is no C++ compiler.
const noCompiler = 3

// Build returns the path of the emulator, for RINGLANE_CUDA_DRIVER, and builds it
// first unless that has been done. Kernels of the test's own are files beside the
// project's. The test is skipped where there is no C++ compiler.
func Build(tb testing.TB, kernels ...string) string {
	tb.Helper()
	_, here, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(here) {
		tb.Fatal("build the emulator: no path of the sources (built with -trimpath?)")
	}
	emulator := filepath.Dir(here)
	script := filepath.Join(emulator, "..", "..", "..", "..", "tools", "emulator.sh")
	// go test takes results from its cache until a file changes that the test has
	// looked at, and knows nothing of what the script reads.
	for _, source := range append(kernels, script, filepath.Join(emulator, "*.h"), filepath.Join(emulator, "driver/*"), filepath.Join(emulator, "../kernels/*")) {
		found, _ := filepath.Glob(source)
		for _, file := range found {
			os.Stat(file)
		}
	}
	build := exec.Command(script, kernels...)
	build.Stderr = os.Stderr
	path, err := build.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == noCompiler {
		tb.Skip("the CUDA emulator needs a C++ compiler (install g++)")
	}
	if err != nil {
		tb.Fatalf("build the emulator: %v", err)
	}
	return strings.TrimSpace(string(path))
}
