package cuda

import (
	"fmt"
	"runtime"
	"unsafe"
)

// CopyTo copies src to dst and returns when it is there. It waits for no other
// work on the GPU.
func (c *Context) CopyTo(dst Pointer, src []byte) error {
	defer runtime.KeepAlive(src)
	return c.within(func() error {
		if err := callWith(cuMemcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)), uintptr(c.setup)); err != nil {
			return err
		}
		return c.setup.Synchronize()
	})
}

// CopyFrom copies src to dst and returns when it is there. It waits for no
// other work on the GPU.
func (c *Context) CopyFrom(dst []byte, src Pointer) error {
	defer runtime.KeepAlive(dst)
	return c.within(func() error {
		if err := callWith(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)), uintptr(c.setup)); err != nil {
			return err
		}
		return c.setup.Synchronize()
	})
}

// Flags of cuMemHostRegister.
const (
	hostPortable = 1 // for every context of the process
	hostMapped   = 2 // kernels can use it
)

// HostRegister locks host memory, which is mapped and not of Go's heap, and
// gives its address for kernels.
func (c *Context) HostRegister(mem []byte) (Pointer, error) {
	if len(mem) == 0 {
		return 0, fmt.Errorf("register host memory: there is none")
	}
	r := newResults()
	defer r.free()
	err := c.within(func() error {
		start := uintptr(unsafe.Pointer(&mem[0]))
		if err := call(cuMemHostRegister, start, uintptr(len(mem)), hostPortable|hostMapped); err != nil {
			return err
		}
		err := call(cuMemHostGetDevicePointer, r.address(0), start, 0)
		if err != nil {
			_ = call(cuMemHostUnregister, start)
		}
		return err
	})
	return Pointer(r[0]), err
}

// HostUnregister ends what HostRegister began. It comes before the memory is
// unmapped.
func (c *Context) HostUnregister(mem []byte) error {
	return c.within(func() error { return callWith(cuMemHostUnregister, uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) })
}

// Handle names an allocation of GPU memory for other processes (CUipcMemHandle).
type Handle [64]byte

// Export gives the handle of the allocation that p lies in, the whole of it:
// who imports it gets the address of its start.
func (c *Context) Export(p Pointer) (Handle, error) {
	var h Handle
	err := c.within(func() error { return callWith(cuIpcGetMemHandle, uintptr(unsafe.Pointer(&h)), uintptr(p)) })
	return h, err
}

// Import maps an allocation of another process for kernels of c, also where it
// lies on another GPU. To import it twice counts: each has its Unimport. The
// other process keeps the memory allocated until then.
func (c *Context) Import(h Handle) (Pointer, error) {
	const lazyPeers = 1 // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only value there is
	r := newResults()
	defer r.free()
	err := c.within(func() error {
		// The handle is passed by value. 64 bytes are too many for registers:
		// on amd64 they follow on the stack, after the six argument registers;
		// on arm64 the caller makes a copy and passes its address.
		switch runtime.GOARCH {
		case "amd64":
			w := (*[8]uintptr)(unsafe.Pointer(&h))
			return call(cuIpcOpenMemHandle, r.address(0), lazyPeers, 0, 0, 0, 0, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7])
		case "arm64":
			return callWith(cuIpcOpenMemHandle, r.address(0), uintptr(unsafe.Pointer(&h)), lazyPeers)
		}
		return fmt.Errorf("cuIpcOpenMemHandle: not known how %s passes a struct", runtime.GOARCH)
	})
	return Pointer(r[0]), err
}

// Unimport ends what Import began.
func (c *Context) Unimport(p Pointer) error {
	return c.within(func() error { return call(cuIpcCloseMemHandle, uintptr(p)) })
}
