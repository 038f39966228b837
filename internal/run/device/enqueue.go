package device

import (
	"errors"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// Enqueue puts a collective into s, and returns at once. It may be captured into
// a graph.
func (d *Comm) Enqueue(call Call, s cuda.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return err
	}
	if d.settlement.open {
		d.settleEngines(&call, s)
	}
	p := d.last
	if p == nil || p.key != call.key() || call.SendCounts != nil || call.RecvCounts != nil {
		var err error
		if p, err = d.planFor(&call); err != nil {
			return err
		}
	}
	if p.in > 0 && call.In == 0 || p.out > 0 && call.Out == 0 {
		host := call.onHost()
		return failf(communicator.Argument, "%v: a buffer is NULL (pass memory that the GPU sees)", &host)
	}
	if !p.fits(call.In, call.Out) {
		host := call.onHost()
		return failf(communicator.Argument, "%v: input and output overlap, but not as this collective allows (use separate buffers, or the in-place form)", &host)
	}
	if call.Count == 0 && call.Collective != schedule.Barrier && call.SendCounts == nil {
		return nil // on all ranks
	}
	if d.size == 1 {
		return d.copyAlone(p, &call, s)
	}
	p.exchange.In, p.exchange.Out = uint64(call.In), uint64(call.Out)
	p.exchange.Sequence = d.calls + 1
	captured, err := d.launch(p, s)
	if err != nil {
		return err
	}
	d.calls++
	d.memory.peers[d.rank].board.enter(d.calls, p.about)
	d.settlement.passed(captured)
	if captured {
		d.captured.Store(d.calls, p.about)
	}
	return nil
}

// usable says why no call is possible. The caller holds d.mu.
func (d *Comm) usable() error {
	if d.closed {
		return errClosed
	}
	return d.Err()
}

var errClosed = failf(communicator.Closed, "the communicator on GPUs is closed on this rank (join again)")

// launch puts a plan's kernel into s, behind the call before.
func (d *Comm) launch(p *plan, s cuda.Stream) (captured bool, err error) {
	if err := d.gpu.context.Enter(); err != nil {
		return false, d.refused(p, err)
	}
	defer d.gpu.context.Leave()
	if captured, err = d.order.before(s); err != nil {
		return captured, d.refused(p, err)
	}
	function, err := d.kernelOf(p)
	if err != nil {
		return captured, d.refused(p, err)
	}
	if p.choice.Lanes > 0 {
		err = d.carry(p, function, s, captured)
	} else {
		err = d.place(function, s, d.blocks(p, s), uint32(p.choice.Threads), p.params)
	}
	if err == nil {
		err = d.order.after(s, captured)
	}
	if err != nil {
		return captured, d.refused(p, err)
	}
	return captured, nil
}

// Beside says that what runs in s shares the GPU with other work: there a call takes
// few multiprocessors, if other ranks need not take as many, and so leaves the others
// to that work while it waits for its peers.
func (d *Comm) Beside(s cuda.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return err
	}
	d.beside, d.shares, d.few = s, true, besidePeers
	if d.devices.Host {
		d.few = besideHost
	}
	return nil
}

// earlyThreads is as much of a GPU as a kernel may take that waits in place for the one
// before it: an eighth of a large one. What other communicators need to have in place
// at the same time must fit beside both.
const earlyThreads = 32 << 10

// place launches a kernel, early if it may be, and small: then it is in place when the
// call before it ends, instead of one launch later.
func (d *Comm) place(f *cuda.Function, s cuda.Stream, blocks, threads uint32, params *cuda.Params) error {
	if f.Early && blocks*threads <= earlyThreads && !d.devices.Shared {
		return s.LaunchEarly(f, blocks, threads, 0, params)
	}
	return s.Launch(f, blocks, threads, 0, params)
}

// Blocks of a call beside other work: those that wait keep multiprocessors from it, and
// the longer it takes, the longer they do. Between two H200, in one process, 38 MiB of
// f32 take 130, 141, 171 and 217 us over NVLink with 128, 64, 32 and 16 of them, and
// through host memory 1034, 1035, 1080 and 1279 us with 48, 24, 16 and 8.
const (
	besidePeers = 64
	besideHost  = 16
)

// blocks is how many a plan's kernel has in s. What goes straight to peers goes the same
// way whatever blocks move it, so that ranks need not agree: rows without flags, and
// pieces, whose rings each block has as many of.
func (d *Comm) blocks(p *plan, s cuda.Stream) uint32 {
	all := p.choice.Blocks
	straight := p.choice.Algorithm != collective.Ring && p.choice.Algorithm != collective.Hierarchical
	if !d.shares || s != d.beside || d.devices.DeviceOverride.Blocks != 0 || p.choice.Line != 0 || !straight {
		return uint32(all)
	}
	if p.choice.Sentinel {
		return uint32(min(all, d.few))
	}
	for few := min(all, d.few); few > d.few/2; few-- {
		if all%few == 0 {
			return uint32(few)
		}
	}
	return uint32(all)
}

func (d *Comm) refused(p *plan, err error) error {
	e := failf(codeOf(err), "%v: %v", p.about, err)
	if errors.Is(err, cuda.ErrLost) {
		d.condemn(e)
	}
	return e
}

// copyAlone is what every collective of a single rank comes to.
func (d *Comm) copyAlone(p *plan, call *Call, s cuda.Stream) error {
	if call.In == call.Out || p.in == 0 {
		return nil
	}
	if err := d.gpu.context.CopyAsync(call.Out, call.In, p.in, s); err != nil {
		return d.refused(p, err)
	}
	return nil
}
