package cuda_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
)

// No name is looked up for two calls, and errors leave versions out.
func TestNames(t *testing.T) {
	names, called := cuda.Exported()
	seen := map[string]bool{}
	for i, of := range names {
		if len(of) == 0 {
			t.Fatalf("call %d has no name", i)
		}
		for _, name := range of {
			if seen[name] {
				t.Errorf("%s is two calls", name)
			}
			seen[name] = true
		}
	}
	for _, want := range []string{"cuInit", "cuMemAlloc", "cuDeviceGetUuid", "cuGraphInstantiateWithFlags", "cuMemcpyHtoDAsync"} {
		if !slices.Contains(called, want) {
			t.Errorf("nothing is called %s", want)
		}
	}
	if i := slices.IndexFunc(called, func(name string) bool { return strings.Contains(name, "_") }); i >= 0 {
		t.Errorf("%s has a version", called[i])
	}
}

// A call that an old driver lacks is an error of that call, not of Open.
func TestMissing(t *testing.T) {
	c := cudatest.Contexts(t)[0]
	defer cuda.Lack("cuMemGetInfo_v2")()
	_, _, err := c.MemoryInfo()
	want := "cuMemGetInfo: the NVIDIA driver has no cuMemGetInfo_v2: unsupported operation (it is too old: update it)"
	if err == nil || err.Error() != want || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// A GPU that the driver says nothing of is named.
func TestMissingDevice(t *testing.T) {
	n := len(cudatest.Open(t).Devices())
	want := fmt.Sprintf("GPU %d: cuDeviceGet: CUDA_ERROR_INVALID_DEVICE (101): ", n)
	if err := cuda.Look(n); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
	defer cuda.Lack("cuDeviceTotalMem_v2")()
	want = "GPU 0: cuDeviceTotalMem: the NVIDIA driver has no cuDeviceTotalMem_v2"
	if err := cuda.Look(0); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// A driver from before captures had modes does without.
func TestMissingMode(t *testing.T) {
	c := cudatest.Contexts(t)[0]
	defer cuda.Lack("cuThreadExchangeStreamCaptureMode")()
	if err := c.Synchronize(); err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	cudatest.Open(t)
	for _, c := range []struct {
		call   string
		status int
		want   string
		lost   bool
	}{
		{"cuMemFree", 1, "cuMemFree: CUDA_ERROR_INVALID_VALUE (1): invalid argument", false},
		{"cuStreamQuery", 700, " (700)", true},
		{"cuStreamQuery", 700, "(the CUDA context is lost: start the program again", true},
		{"cuLaunchKernel", 719, " (719)", true},
		{"cuLaunchKernel", 701, "(ask for fewer threads a block", false},
		{"cuInit", 804, "take its folder (cuda-compat) out of LD_LIBRARY_PATH)", false},
		{"cuInit", 999, "nvidia-uvm", false},
		{"cuMemAlloc", 3, "forked", false},
		{"cuMemAlloc", 201, "(is the GPU's context current on this thread?)", false},
		{"cuIpcOpenMemHandle", 201, "the pointer is valid there)", false},
		{"cuIpcOpenMemHandle", 217, "stage through host memory)", false},
		{"cuIpcGetMemHandle", 1, "expandable_segments", false},
		{"cuMemHostRegister", 2, "memlock", false},
		{"cuStreamSynchronize", 900, "(a CUDA graph is being captured", false},
		{"cuNone", 123456, "cuNone: CUresult (123456)", false},
	} {
		var err error = &cuda.Error{Call: c.call, Status: c.status}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
		if errors.Is(err, cuda.ErrLost) != c.lost || cuda.StatusOf(err) != c.status {
			t.Errorf("%v: status %d, context lost: %v", err, cuda.StatusOf(err), !c.lost)
		}
	}
	if cuda.StatusOf(cuda.ErrNone) != 0 || cuda.StatusOf(nil) != 0 {
		t.Error("what is no error of a call has a status")
	}
}

// Whatever context was current is so again after Leave, also when methods that
// enter another one ran in between.
func TestLeave(t *testing.T) {
	gpus := cudatest.Contexts(t)
	a, b := gpus[0], gpus[len(gpus)-1]
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cuda.Current() != 0 {
		t.Fatal("a context is current before the test")
	}
	if err := a.Enter(); err != nil {
		t.Fatal(err)
	}
	if err := b.Enter(); err != nil {
		t.Fatal(err)
	}
	p, err := a.Alloc(64)
	if err := errors.Join(err, a.Set(p, 1, 64), a.Free(p)); err != nil {
		t.Fatal(err)
	}
	if cuda.Current() != b.Number() {
		t.Error("a method of one context left another one current than the one that was entered")
	}
	if mode := cuda.CaptureMode(); mode != 0 {
		t.Errorf("a method left capture mode %d on the thread", mode)
	}
	b.Leave()
	if cuda.Current() != a.Number() {
		t.Error("Leave did not make the context current that was before")
	}
	a.Leave()
	if cuda.Current() != 0 {
		t.Error("Leave left a context where there was none")
	}
}
