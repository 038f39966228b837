// Package cudatest gives tests a GPU: this machine's, or the emulator's.
package cudatest

import (
	"errors"
	"os"
	"sync"
	"testing"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/emulator"
)

var choose sync.Once

// Open opens the driver that RINGLANE_CUDA_DRIVER names, else that of this
// machine's GPUs, else the emulator, which has two. It is the driver of child
// processes too.
func Open(t testing.TB) *cuda.Driver {
	t.Helper()
	choose.Do(func() {
		if os.Getenv(cuda.Variable) == "" && !real() {
			os.Setenv(cuda.Variable, emulator.Build(t))
		}
	})
	d, err := cuda.Open()
	if errors.Is(err, cuda.ErrNone) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Contexts retains the contexts of all GPUs until the test ends.
func Contexts(t testing.TB) []*cuda.Context {
	t.Helper()
	var contexts []*cuda.Context
	for _, d := range Open(t).Devices() {
		c, err := d.Retain()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Release(); err != nil {
				t.Error(err)
			}
		})
		contexts = append(contexts, c)
	}
	return contexts
}

// real reports whether this machine has NVIDIA GPUs.
func real() bool {
	for _, control := range []string{"/dev/nvidiactl", "/dev/dxg"} {
		if _, err := os.Stat(control); err == nil {
			return true
		}
	}
	return false
}
