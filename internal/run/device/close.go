package device

import (
	"errors"
	"time"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/run/communicator"
)

// Synchronize waits until the work in s is done, or returns the failure of the
// communicator. Work of others in s may take as long as it likes.
func (d *Comm) Synchronize(s cuda.Stream) error {
	if err := d.gpu.context.Enter(); err != nil {
		return failf(codeOf(err), "synchronize: %v", err)
	}
	defer d.gpu.context.Leave()
	var late time.Time // when a failure was first seen
	for polls := 0; ; polls++ {
		done, err := s.Query()
		if err != nil {
			e := failf(codeOf(err), "synchronize: %v", err)
			if errors.Is(err, cuda.ErrLost) {
				d.condemn(e)
			}
			return e
		}
		failure := d.Err()
		switch {
		case done && failure != nil && d.intact():
			return nil
		case done:
			return failure
		case failure != nil && late.IsZero():
			late = time.Now()
		case failure != nil && time.Since(late) > drainFor:
			return failure
		}
		if polls < 200 {
			sys.Pause()
		} else {
			sys.Nap(min(time.Duration(polls-199)*time.Microsecond, napsAtMost))
		}
	}
}

// intact reports whether no kernel of this rank has given up: what they have
// done counts although a peer was lost after that.
func (d *Comm) intact() bool {
	d.fate.Lock()
	defer d.fate.Unlock()
	if d.released {
		return false
	}
	var word [4]byte
	return d.gpu.context.CopyFrom(word[:], d.memory.state) == nil && word == [4]byte{}
}

// Close leaves the communicator: it waits for the work on this GPU, and until no
// peer can write here any more, both with a limit, and gives everything back.
// Graphs in which calls were captured cannot be launched after that.
func (d *Comm) Close() error {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.released {
		return nil
	}
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	idle, err := d.drain(d.comm.Timeout() + drainFor)
	close(d.watch.quit)
	<-d.watch.over
	d.comm.Withdraw(d.ending)
	if idle {
		err = errors.Join(err, d.release())
	}
	lent := !d.part(idle, d.Err() != nil)

	d.mu.Lock()
	defer d.mu.Unlock()
	d.fate.Lock()
	defer d.fate.Unlock()
	d.failed.CompareAndSwap(nil, errClosed)
	d.released = true
	if !idle { // to free what a kernel uses is to wait for it
		return err
	}
	d.forget()
	d.private.free()
	return errors.Join(err, d.order.free(d.gpu.context), d.engine.free(d.gpu.context), d.free(lent), d.gpu.release())
}

// drain waits for everything that the GPU does for this process, and tells the
// kernels of this rank to give up if that takes too long. It reports whether the
// GPU is done.
func (d *Comm) drain(limit time.Duration) (idle bool, err error) {
	done := make(chan error, 1)
	go func() { done <- d.gpu.context.Synchronize() }()
	for range 2 {
		timer := time.NewTimer(limit)
		select {
		case err := <-done:
			timer.Stop()
			return true, err
		case <-timer.C:
		}
		d.giveUp()
		limit = drainFor
	}
	return false, failf(communicator.Timeout, "close: %v is still busy (is another process of the job stuck? look at nvidia-smi)", d.gpu.device)
}

// part tells the peers that this rank uses their memory no more, if that is so,
// and waits for them to say the same. It reports whether all did, or are gone.
func (d *Comm) part(idle, failed bool) bool {
	for p := range d.size {
		if idle && p != d.rank && !d.comm.Left(p) {
			d.memory.peers[p].board.leave(d.rank)
		}
	}
	limit := 2 * drainFor
	if failed {
		limit = drainFor
	}
	own := d.memory.peers[d.rank].board
	for start := time.Now(); ; sys.Nap(napsAtMost) {
		waiting := false
		for p := range d.size {
			waiting = waiting || p != d.rank && !own.left(p) && !d.comm.Left(p)
		}
		if !waiting || time.Since(start) > limit {
			return !waiting
		}
	}
}
