package device

import (
	"time"

	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/run/communicator"
)

// watch has a goroutine look at what kernels and peers say.
type watch struct {
	quit, over chan struct{}
}

const (
	watchEvery = 20 * time.Millisecond
	// napsAtMost is how long a goroutine that waits for a GPU sleeps at most.
	napsAtMost = 200 * time.Microsecond
	// drainFor is how long kernels that have been told to give up may take.
	drainFor = time.Second
)

func (d *Comm) begin() {
	d.watch = watch{make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(d.watch.over)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-d.watch.quit:
				return
			case <-tick.C:
				d.look()
			}
		}
	}()
}

// look makes a failure of what a kernel has written down, of what ranks say that
// they have called, or of what befell the communicator.
func (d *Comm) look() {
	if d.failed.Load() != nil {
		return
	}
	if f, ok := d.fault(); ok {
		d.condemn(d.explain(&f))
	} else if err := d.comm.Check(); err != nil {
		d.fail(failf(codeOf(err), "%v", err))
	} else if err := d.compare(); err != nil {
		d.condemn(err)
	}
}

// condemn makes err the fate of all ranks.
func (d *Comm) condemn(err *communicator.Error) {
	d.fail(err)
	d.comm.Fail(err.Code, err.Text)
}

// fail makes err the fate of this communicator and has running kernels give up.
// The first failure stays.
func (d *Comm) fail(err *communicator.Error) {
	d.fate.Lock()
	defer d.fate.Unlock()
	if d.failed.CompareAndSwap(nil, err) {
		d.giveUp()
	}
}

// giveUp has kernels of this rank return that wait, or will.
func (d *Comm) giveUp() { sys.Word64(d.memory.own, controlAbort).Store(1) }

// Offsets of words of kernels.Control.
const (
	controlAbort = 0
	controlFault = 128
)

// fault is what a kernel of this rank has written down, if one has.
func (d *Comm) fault() (f kernels.Fault, ok bool) {
	word := func(i int) uint64 { return sys.Word64(d.memory.own, controlFault+8*i).Load() }
	if word(0) == 0 {
		return f, false
	}
	ranks, place := word(3), word(4)
	return kernels.Fault{
		Written: 1, Sequence: word(1), Waited: word(2),
		Rank: uint32(ranks), Peer: uint32(ranks >> 32), Place: kernels.Place(uint32(place)), Block: uint32(place >> 32),
		Step: word(5), Chunk: word(6),
	}, true
}

// Err is the failure of the communicator, once there is one: being closed is one
// too. It costs two loads where there is none.
func (d *Comm) Err() error {
	if d.failed.Load() == nil {
		if _, ok := d.fault(); ok {
			d.look()
		}
	}
	if err := d.failed.Load(); err != nil {
		return err
	}
	return nil
}

// Abort fails every pending and later call of every rank with the given reason.
func (d *Comm) Abort(why string) {
	d.condemn(failf(communicator.Closed, "rank %d aborted the communicator: %s", d.rank, why))
}
