package device

import (
	"errors"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/run/communicator"
)

// order keeps calls on different streams in the order in which they came: a
// call waits for the one before it by an event. Calls that are captured into a
// graph are kept in order within it; where a graph runs among other calls is for
// the one who launches it to see to.
type order struct {
	done     cuda.Event // the last call, once marked
	captured cuda.Event // the same within a capture

	any    bool
	last   cuda.Stream // of the last call that was not captured
	marked bool
	// several says that there has been more than one stream: from then on each
	// call is marked when it is made. Before, the mark comes late, and saves a
	// call of the driver.
	several bool

	capture       uint64 // the capture of the last captured call
	captureStream cuda.Stream
}

func (o *order) make(c *cuda.Context) (err error) {
	if o.done, err = c.NewEvent(false); err == nil {
		o.captured, err = c.NewEvent(false)
	}
	return err
}

func (o *order) free(c *cuda.Context) error {
	err := c.Enter()
	if err != nil {
		return err
	}
	defer c.Leave()
	for _, e := range []cuda.Event{o.done, o.captured} {
		if e != 0 {
			err = errors.Join(err, e.Destroy())
		}
	}
	return err
}

// before has s wait for the last call. It reports whether s is captured.
func (o *order) before(s cuda.Stream) (capturing bool, err error) {
	capturing, id, err := s.Capturing()
	if err != nil {
		return false, err
	}
	if capturing {
		if id == o.capture && s != o.captureStream {
			if err = o.captureStream.Record(o.captured); err == nil {
				err = s.WaitEvent(o.captured)
			}
		}
		o.capture, o.captureStream = id, s
		return true, err
	}
	if !o.any || s == o.last {
		return false, nil
	}
	if !o.marked {
		if busy, _, err := o.last.Capturing(); err != nil || busy {
			return false, failf(communicator.Argument, "the stream of the call before is captured into a graph now (make calls on other streams before that, or after)")
		}
		if err := o.last.Record(o.done); err != nil {
			return false, err
		}
	}
	o.several = true
	return false, s.WaitEvent(o.done)
}

// after marks the call that has been put into s.
func (o *order) after(s cuda.Stream, capturing bool) error {
	if capturing {
		return nil
	}
	o.any, o.last, o.marked = true, s, o.several
	if o.several {
		return s.Record(o.done)
	}
	return nil
}
