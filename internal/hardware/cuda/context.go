package cuda

import (
	"runtime"
)

// Context is a GPU's primary context: the one that the CUDA runtime uses as
// well, so torch's memory, streams and events are at home in it.
type Context struct {
	device *Device
	handle uintptr
	// setup carries the copies of CopyTo, CopyFrom and Set, so that they wait
	// for nothing but themselves, whatever the caller's streams are doing.
	setup Stream
}

// Retain takes a reference to the primary context of d, and makes it where
// nobody has. Release gives it back.
func (d *Device) Retain() (*Context, error) {
	r := newResults()
	defer r.free()
	if err := call(cuDevicePrimaryCtxRetain, r.address(0), d.handle); err != nil {
		return nil, err
	}
	c := &Context{device: d, handle: r[0]}
	var err error
	if c.setup, err = c.NewStream(Normal); err != nil {
		_ = call(cuDevicePrimaryCtxRelease, d.handle)
		return nil, err
	}
	return c, nil
}

// Release gives the reference to the context back. What was made in it ends
// with the last reference, at the latest.
func (c *Context) Release() error {
	err := c.within(func() error { return c.setup.Destroy() })
	if e := call(cuDevicePrimaryCtxRelease, c.device.handle); err == nil {
		err = e
	}
	return err
}

// Device is the GPU that the context belongs to.
func (c *Context) Device() *Device { return c.device }

// Enter makes the context current on the calling thread, which stays the
// goroutine's own until Leave makes the one current again that was. Enter and
// Leave nest. After an error there is nothing to leave.
func (c *Context) Enter() error {
	runtime.LockOSThread()
	if err := call(cuCtxPushCurrent, c.handle); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	return nil
}

// Leave ends what Enter began.
func (c *Context) Leave() {
	r := newResults()
	_ = call(cuCtxPopCurrent, r.address(0)) // what Enter has pushed is there to pop
	r.free()
	runtime.UnlockOSThread()
}

// relaxed is CU_STREAM_CAPTURE_MODE_RELAXED.
const relaxed = 2

// entered runs do in the context.
func (c *Context) entered(do func() error) error {
	if err := c.Enter(); err != nil {
		return err
	}
	defer c.Leave()
	return do()
}

// within runs do, which prepares something, in the context. While any thread
// of the process captures a graph, calls that may wait for the GPU are refused
// and spoil the capture, unless the thread says that it knows better: nothing
// that is prepared here belongs to a graph.
func (c *Context) within(do func() error) error {
	return c.entered(func() error {
		r := newResults()
		defer r.free()
		r[0] = relaxed
		if call(cuThreadExchangeStreamCaptureMode, r.address(0)) == nil { // r[0] is now the mode that was
			defer func() { _ = call(cuThreadExchangeStreamCaptureMode, r.address(0)) }()
		}
		return do()
	})
}

// Synchronize waits until everything that was started in the context, by
// anyone, is done. It has no deadline.
func (c *Context) Synchronize() error {
	return c.within(func() error { return call(cuCtxSynchronize) })
}

// EnableAccess lets kernels of c use the memory of peer's GPU. To do so twice
// is no error.
func (c *Context) EnableAccess(peer *Context) error {
	err := c.within(func() error { return call(cuCtxEnablePeerAccess, peer.handle, 0) })
	if StatusOf(err) == statusPeersEnabled {
		return nil
	}
	return err
}
