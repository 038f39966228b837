package cuda

import (
	"time"
	"unsafe"
)

// Event is a point in the work of a stream: a CUevent or cudaEvent_t.
type Event uintptr

// NewEvent makes an event. One without timing costs less.
func (c *Context) NewEvent(timing bool) (Event, error) {
	flags := uintptr(2) // CU_EVENT_DISABLE_TIMING
	if timing {
		flags = 0
	}
	e, err := c.result(cuEventCreate, flags)
	return Event(e), err
}

// Destroy ends the event. Who waits for it still does.
func (e Event) Destroy() error { return call(cuEventDestroy, uintptr(e)) }

// Query reports whether the work that e stands for is done. It is, where no
// stream has recorded e.
func (e Event) Query() (bool, error) { return done(call(cuEventQuery, uintptr(e))) }

// Synchronize waits until the work that e stands for is done. It has no
// deadline: who needs one asks Query.
func (e Event) Synchronize() error { return call(cuEventSynchronize, uintptr(e)) }

// Since is the time that the GPU took from start to e, both made with timing
// and done.
func (e Event) Since(start Event) (time.Duration, error) {
	var milliseconds float32
	err := callWith(cuEventElapsedTime, uintptr(unsafe.Pointer(&milliseconds)), uintptr(start), uintptr(e))
	return time.Duration(float64(milliseconds) * 1e6), err
}
