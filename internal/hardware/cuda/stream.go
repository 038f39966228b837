package cuda

// Stream is a queue of work for a GPU: a CUstream or cudaStream_t.
type Stream uintptr

// Streams that exist by themselves.
const (
	Legacy    Stream = 1 // like 0: waits for the other streams, and they for it
	PerThread Stream = 2
)

// Priority is whose work goes first where streams compete for a GPU.
type Priority uint8

const (
	Normal Priority = iota
	High
)

// NewStream makes a stream that does not wait for the legacy one.
func (c *Context) NewStream(p Priority) (Stream, error) {
	const nonBlocking = 1 // CU_STREAM_NON_BLOCKING
	r := newResults()
	defer r.free()
	err := c.within(func() error {
		number := 0 // Normal
		if p == High {
			if err := call(cuCtxGetStreamPriorityRange, r.address(0), r.address(1)); err != nil {
				return err
			}
			number = r.int(1)
		}
		return call(cuStreamCreateWithPriority, r.address(2), nonBlocking, uintptr(number))
	})
	return Stream(r[2]), err
}

// Destroy ends the stream. Work in it is still done.
func (s Stream) Destroy() error { return call(cuStreamDestroy, uintptr(s)) }

// Synchronize waits until the work in s is done. It has no deadline: who needs
// one asks Query.
func (s Stream) Synchronize() error { return call(cuStreamSynchronize, uintptr(s)) }

// Query reports whether the work in s is done.
func (s Stream) Query() (bool, error) { return done(call(cuStreamQuery, uintptr(s))) }

// done tells work that is not done from a call that failed.
func done(err error) (bool, error) {
	if err == nil {
		return true, nil
	}
	if StatusOf(err) == statusNotReady {
		return false, nil
	}
	return false, err
}

// WaitEvent makes the work that is put into s from now on wait for e.
func (s Stream) WaitEvent(e Event) error { return call(cuStreamWaitEvent, uintptr(s), uintptr(e), 0) }

// Record makes e stand for the work that is in s now.
func (s Stream) Record(e Event) error { return call(cuEventRecord, uintptr(e), uintptr(s)) }

// Copy copies n bytes between any two places that the GPU reaches.
func (s Stream) Copy(dst, src Pointer, n uint64) error {
	return call(cuMemcpyAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

// Set writes value into n bytes.
func (s Stream) Set(p Pointer, value byte, n uint64) error {
	return call(cuMemsetD8Async, uintptr(p), uintptr(value), uintptr(n), uintptr(s))
}

// Capturing reports whether work for s is being captured into a graph, and the
// number of that capture in this process. A capture that a forbidden call has
// spoiled is an error, of status [StatusInvalidated].
func (s Stream) Capturing() (yes bool, id uint64, err error) {
	if s == 0 || s == Legacy { // cannot be captured, and may not be asked while others are
		return false, 0, nil
	}
	r := newResults()
	defer r.free()
	if err := call(cuStreamGetCaptureInfo, uintptr(s), r.address(0), r.address(1), 0, 0, 0); err != nil {
		return false, 0, err
	}
	switch r.int(0) {
	case 0: // CU_STREAM_CAPTURE_STATUS_NONE
		return false, 0, nil
	case 1: // ACTIVE
		return true, uint64(r[1]), nil
	}
	return true, uint64(r[1]), &Error{Call: cuStreamGetCaptureInfo.name(), Status: StatusInvalidated}
}

// BeginCapture puts the work for s into a graph from now on, instead of doing
// it. Other threads may go on as before.
func (s Stream) BeginCapture() error {
	const threadLocal = 1 // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
	return call(cuStreamBeginCapture, uintptr(s), threadLocal)
}

// EndCapture gives the graph of what came since BeginCapture, on the thread
// that began.
func (s Stream) EndCapture() (*Graph, error) {
	r := newResults()
	defer r.free()
	if err := call(cuStreamEndCapture, uintptr(s), r.address(0)); err != nil {
		return nil, err
	}
	return &Graph{r[0]}, nil
}

// Graph is captured work.
type Graph struct{ handle uintptr }

// Instantiate makes the graph ready to be launched.
func (g *Graph) Instantiate() (*Exec, error) {
	r := newResults()
	defer r.free()
	if err := call(cuGraphInstantiate, r.address(0), g.handle, 0); err != nil {
		return nil, err
	}
	return &Exec{r[0]}, nil
}

// Destroy ends the graph. What was instantiated of it stays.
func (g *Graph) Destroy() error { return call(cuGraphDestroy, g.handle) }

// Exec is a graph that can be launched any number of times.
type Exec struct{ handle uintptr }

// Launch puts the work of the graph into s.
func (x *Exec) Launch(s Stream) error { return call(cuGraphLaunch, x.handle, uintptr(s)) }

// Destroy ends the graph, when it runs no more.
func (x *Exec) Destroy() error { return call(cuGraphExecDestroy, x.handle) }
