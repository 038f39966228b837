// Package pinned makes host memory usable by kernels: shared between processes,
// it is a window between GPUs that cannot reach each other.
package pinned

import (
	"fmt"

	"ringlane/internal/hardware/cuda"
)

// Window is host memory that the driver has locked and mapped for kernels.
type Window struct {
	// Bytes is the memory as the processor sees it.
	Bytes []byte

	context *cuda.Context
	pointer cuda.Pointer
	closed  bool
}

// Register makes a window of mem for kernels of every GPU in this process. mem
// is mapped memory, such as a window of package shm, registered once in a
// process and mapped for as long as the window is open.
func Register(c *cuda.Context, mem []byte) (*Window, error) {
	p, err := c.HostRegister(mem)
	if err != nil {
		return nil, fmt.Errorf("lock %d bytes of host memory for %v: %w", len(mem), c.Device(), err)
	}
	return &Window{Bytes: mem, context: c, pointer: p}, nil
}

// Pointer is where kernels find the first byte.
func (w *Window) Pointer() cuda.Pointer { return w.pointer }

// Close unlocks the memory, when no kernel uses it any more, and leaves it
// mapped. Closing twice is once.
func (w *Window) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	if err := w.context.HostUnregister(w.Bytes); err != nil {
		return fmt.Errorf("unlock %d bytes of host memory: %w", len(w.Bytes), err)
	}
	return nil
}
