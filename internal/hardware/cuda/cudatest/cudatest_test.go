package cudatest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
)

// TestOpen is also what TestSkips has a child run.
func TestOpen(t *testing.T) { cudatest.Open(t) }

// Tests are skipped where there is no GPU, and fail where a driver has none that
// ought to have one.
func TestSkips(t *testing.T) {
	cudatest.Open(t) // builds the emulator, if it is to be built
	for _, c := range []struct{ driver, visible, want string }{
		{"off", "0", "--- SKIP: TestOpen"},
		{"/nowhere/libcuda.so.1", "0", "--- FAIL: TestOpen"},
		{os.Getenv(cuda.Variable), "", "--- FAIL: TestOpen"},
	} {
		if c.driver == "" {
			continue // the GPUs of this machine
		}
		child := exec.Command(os.Args[0], "-test.run=^TestOpen$", "-test.v")
		child.Env = append(os.Environ(), cuda.Variable+"="+c.driver, "CUDA_VISIBLE_DEVICES="+c.visible)
		out, _ := child.CombinedOutput()
		if !strings.Contains(string(out), c.want) {
			t.Errorf("with the driver %q and the GPUs %q: no %q in\n%s", c.driver, c.visible, c.want, out)
		}
	}
}
