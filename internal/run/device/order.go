package device

import (
	"errors"

	"ringlane/internal/hardware/cuda"
)

// Order has what is put into then from now on run after what is in first now. It
// returns at once. Where first is captured into a graph, so is then from now on.
func (d *Comm) Order(first, then cuda.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return err
	}
	if first == then {
		return nil
	}
	err := d.gpu.context.Enter()
	if err == nil {
		err = d.order.between(first, then)
		d.gpu.context.Leave()
	}
	if err == nil {
		return nil
	}
	e := failf(codeOf(err), "order of streams: %v", err)
	if errors.Is(err, cuda.ErrLost) {
		d.condemn(e)
	}
	return e
}

// order keeps calls on different streams in the order in which they came: a
// call waits for the one before it by an event. That is recorded behind every
// call, not when another stream comes: the first may be gone by then, or being
// captured. Calls that are captured into a graph are kept in order within it;
// where a graph runs among other calls is for the one who launches it to see to.
type order struct {
	done cuda.Event  // the last call that was not captured
	any  bool        // there was one
	last cuda.Stream // its stream

	captured      cuda.Event
	capture       uint64 // that the last captured call belongs to
	captureStream cuda.Stream

	fork cuda.Event // where one stream goes on after another: waited for as soon as recorded
}

func (o *order) make(c *cuda.Context) (err error) {
	for _, e := range []*cuda.Event{&o.done, &o.captured, &o.fork} {
		if *e, err = c.NewEvent(false); err != nil {
			return err
		}
	}
	return nil
}

func (o *order) free(c *cuda.Context) error {
	err := c.Enter()
	if err != nil {
		return err
	}
	defer c.Leave()
	for _, e := range []cuda.Event{o.done, o.captured, o.fork} {
		if e != 0 {
			err = errors.Join(err, e.Destroy())
		}
	}
	return err
}

// before has s wait for the last call. It reports whether s is captured.
func (o *order) before(s cuda.Stream) (capturing bool, err error) {
	capturing, id, err := s.Capturing()
	switch {
	case err != nil:
		return capturing, err
	case capturing:
		if id == o.capture && s != o.captureStream {
			err = s.WaitEvent(o.captured)
		}
		o.capture = id
		return true, err
	case o.any && s != o.last:
		return false, s.WaitEvent(o.done)
	}
	return false, nil
}

// after marks the call that has been put into s.
func (o *order) after(s cuda.Stream, capturing bool) error {
	if capturing {
		o.captureStream = s
		return s.Record(o.captured)
	}
	o.any, o.last = true, s
	return s.Record(o.done)
}

// between has then go on after first. One event does for all streams, captured or
// not: to record it anew changes nothing for those that wait already.
func (o *order) between(first, then cuda.Stream) error {
	if err := first.Record(o.fork); err != nil {
		return err
	}
	return then.WaitEvent(o.fork)
}
