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
// processes too. Without a GPU the test is skipped; a driver that was named, or
// built, and has none is a failure.
func Open(t testing.TB) *cuda.Driver {
	t.Helper()
	choose.Do(func() {
		if os.Getenv(cuda.Variable) == "" && !installed() {
			os.Setenv(cuda.Variable, emulator.Build(t))
			os.Unsetenv("CUDA_VISIBLE_DEVICES") // is for GPUs of this machine
		}
	})
	d, err := cuda.Open()
	if err == nil {
		return d
	}
	if driver := os.Getenv(cuda.Variable); errors.Is(err, cuda.ErrNone) && (driver == "" || driver == "off") {
		t.Skip(err)
	}
	t.Fatal(err)
	return nil
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

// installed reports whether this machine has an NVIDIA driver.
func installed() bool {
	for _, control := range []string{"/dev/nvidiactl", "/dev/dxg"} {
		if _, err := os.Stat(control); err == nil {
			return true
		}
	}
	return false
}
