package device

import (
	"errors"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// Override has calls carried out as o asks for, from the next one on, whatever
// Options ask for; the zero value leaves all to the size. All ranks say the same
// at once, when their GPUs are done with all that came before. A graph keeps the
// choices that it was captured with, and is replayed only while the override is in
// force that it was captured under.
func (d *Comm) Override(o collective.DeviceOverride) error {
	meet := func() error { return d.comm.Do(&communicator.Call{Collective: schedule.Barrier}) }
	if err := meet(); err != nil {
		return err
	}
	d.mu.Lock()
	err := d.usable()
	if err == nil {
		d.forget()
		d.devices.DeviceOverride = o
		err = d.clearLines()
	}
	d.mu.Unlock()
	return errors.Join(err, meet())
}

// Candidates are the fixed choices that are worth a try for a call.
func (d *Comm) Candidates(call Call) []collective.DeviceCandidate {
	return d.devices.Candidates(call.Collective, call.Type, bytesOf(call))
}

// Ready says why a call cannot be carried out as it is chosen to be. It loads what
// the call takes, and puts nothing anywhere.
func (d *Comm) Ready(call Call) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return err
	}
	p, err := d.planFor(&call)
	if err != nil || d.size == 1 {
		return err
	}
	p.exchange.In, p.exchange.Out = uint64(call.In), uint64(call.Out)
	f, err := d.kernelOf(p)
	if err != nil {
		return d.refused(p, err)
	}
	alone := p.choice.Lanes > 0 && !p.reduces // its kernels are of one warp
	if p.choice.Threads > f.MaxThreads && !alone {
		return failf(communicator.System, "%v: a block of %d threads is too large for %v", p.about, p.choice.Threads, f)
	}
	return nil
}

// clearLines makes the halves of this rank's parts zero: where lines get another
// length, data would be taken for flags.
func (d *Comm) clearLines() error {
	for p := range d.memory.peers {
		in := d.memory.peers[p].inbox
		if in == 0 {
			continue
		}
		l, behind := &d.devices.Layout, cuda.Pointer(d.geometry.PartBytes())
		if err := errors.Join(d.gpu.context.Set(in, 0, uint64(2*l.Half)), d.gpu.context.Set(in+behind, 0, uint64(2*l.Short))); err != nil {
			return failf(codeOf(err), "override the choice: %v", err)
		}
	}
	return nil
}
