package pinned_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
	"ringlane/internal/hardware/window/pinned"
	"ringlane/internal/hardware/window/shm"
)

// Two mappings of one memory, as two processes have them, are a window between
// GPUs: what one writes the processor and the other GPU see.
func TestShared(t *testing.T) {
	contexts := cudatest.Contexts(t)
	const size = 1 << 20
	one, err := shm.Create("pinned test", size, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	fd, err := unix.Dup(one.FD())
	if err != nil {
		t.Fatal(err)
	}
	two, err := shm.Open(fd, size)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	first, last := contexts[0], contexts[len(contexts)-1]
	a, err := pinned.Register(first, one.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	b, err := pinned.Register(last, two.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Set(a.Pointer()+4096, 9, 64); err != nil {
		t.Fatal(err)
	}
	if one.Bytes[4095] != 0 || one.Bytes[4096] != 9 || one.Bytes[4159] != 9 || one.Bytes[4160] != 0 {
		t.Error("the processor does not see what the GPU wrote")
	}
	p, err := last.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 64)
	err = errors.Join(last.CopyAsync(p, b.Pointer()+4096, 64, 0), last.Synchronize(), last.CopyFrom(got, p), last.Free(p))
	if err != nil || got[0] != 9 || got[63] != 9 {
		t.Errorf("the other GPU does not see it: % x, %v", got[:4], err)
	}
	if _, err := pinned.Register(first, one.Bytes); err == nil || !strings.Contains(err.Error(), "lock 1048576 bytes of host memory for GPU 0 (") ||
		cuda.StatusOf(err) == 0 {
		t.Errorf("the memory was registered twice: %v", err)
	}
	if err := errors.Join(a.Close(), a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	again, err := pinned.Register(first, one.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := pinned.Register(first, nil); err == nil {
		t.Error("nothing was registered")
	}
}
