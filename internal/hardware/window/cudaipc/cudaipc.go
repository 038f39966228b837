// Package cudaipc makes windows of GPU memory between processes of one machine.
package cudaipc

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	"ringlane/internal/hardware/cuda"
)

// Window is memory of one GPU that kernels of several processes use, on this
// GPU and on its peers.
type Window struct {
	context *cuda.Context
	pointer cuda.Pointer
	size    uint64
	handle  Handle
	close   func() error
}

// Handle is what a peer needs to import a window, on the same machine.
type Handle [112]byte

// Where a handle has what.
const (
	handleProcess = 0  // 16 bytes: process
	handlePointer = 16 // 8 bytes: address in that process
	handleSize    = 24 // 8 bytes
	handleDevice  = 32 // 16 bytes: UUID of the GPU
	handleIPC     = 48 // 64 bytes: cuda.Handle
)

// process tells this process from every other one. Its number would not do:
// containers count their own.
var process = sync.OnceValue(func() (id [16]byte) {
	rand.Read(id[:])
	return id
})

// created are the windows of this process by address, for peers in the same
// process: the driver does not open a handle where it was made.
var created = struct {
	sync.Mutex
	windows map[cuda.Pointer]*Window
}{windows: map[cuda.Pointer]*Window{}}

// granule is what the driver maps for others at once: an allocation that shared
// it with others would show them to the peers as well.
const granule = 2 << 20

// Create makes a window of size bytes, all zero, in memory of c's GPU.
func Create(c *cuda.Context, size uint64) (*Window, error) {
	fail := func(err error) (*Window, error) {
		return nil, fmt.Errorf("make a window of %d bytes on %v: %w", size, c.Device(), err)
	}
	whole := (max(size, 1) + granule - 1) / granule * granule
	p, err := c.Alloc(whole)
	if err != nil {
		return fail(err)
	}
	ipc, err := c.Export(p)
	if err == nil {
		err = c.Set(p, 0, whole)
	}
	if err != nil {
		_ = c.Free(p)
		return fail(err)
	}
	w := &Window{context: c, pointer: p, size: size}
	id, device := process(), c.Device().UUID
	copy(w.handle[handleProcess:], id[:])
	binary.LittleEndian.PutUint64(w.handle[handlePointer:], uint64(p))
	binary.LittleEndian.PutUint64(w.handle[handleSize:], size)
	copy(w.handle[handleDevice:], device[:])
	copy(w.handle[handleIPC:], ipc[:])

	created.Lock()
	defer created.Unlock()
	created.windows[p] = w
	w.close = func() error {
		created.Lock()
		delete(created.windows, p)
		created.Unlock()
		return c.Free(p)
	}
	return w, nil
}

// Import maps a window for kernels of c. The process that created it keeps it
// until all importers have closed theirs: it must not die or close it while a
// kernel may still use it.
func Import(c *cuda.Context, h Handle) (*Window, error) {
	w := &Window{
		context: c,
		pointer: cuda.Pointer(binary.LittleEndian.Uint64(h[handlePointer:])),
		size:    binary.LittleEndian.Uint64(h[handleSize:]),
		handle:  h,
	}
	fail := func(err error) (*Window, error) {
		return nil, fmt.Errorf("import a window of %d bytes of GPU %x on %v: %w", w.size, h[handleDevice:handleIPC], c.Device(), err)
	}
	if [16]byte(h[handleProcess:]) == process() {
		created.Lock()
		from := created.windows[w.pointer]
		created.Unlock()
		if from == nil || from.handle != h {
			return fail(fmt.Errorf("it was closed in this process before"))
		}
		if from.context.Device() != c.Device() {
			if err := c.EnableAccess(from.context); err != nil {
				return fail(err)
			}
		}
		w.close = func() error { return nil }
		return w, nil
	}
	p, err := c.Import(cuda.Handle(h[handleIPC:]))
	if err != nil {
		return fail(err)
	}
	w.pointer = p
	w.close = func() error { return c.Unimport(p) }
	return w, nil
}

// Handle is what peers import the window with.
func (w *Window) Handle() Handle { return w.handle }

// Pointer is where kernels of the context that the window was created or
// imported for find its first byte.
func (w *Window) Pointer() cuda.Pointer { return w.pointer }

// Size is the length of the window in bytes.
func (w *Window) Size() uint64 { return w.size }

// Close ends this side of the window, when no kernel uses it any more. Closing
// twice is once.
func (w *Window) Close() error {
	if w.close == nil {
		return nil
	}
	err := w.close()
	w.close = nil
	if err != nil {
		return fmt.Errorf("close a window of %d bytes on %v: %w", w.size, w.context.Device(), err)
	}
	return nil
}
