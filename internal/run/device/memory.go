package device

import (
	"errors"
	"fmt"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/hardware/window/cudaipc"
	"ringlane/internal/hardware/window/pinned"
	"ringlane/internal/run/communicator"
)

// memory is what a rank has for itself and for its peers.
type memory struct {
	state  cuda.Pointer
	window *cudaipc.Window // the parts of peers that reach this GPU
	host   *pinned.Window  // the parts of peers that do not
	// own begins with Control, which kernels see; then comes the board.
	own     []byte
	control *pinned.Window
	peers   []reached // by rank
}

// reached is what a rank and a peer have of each other.
type reached struct {
	outbox, inbox cuda.Pointer // the peer's part for this rank, and this rank's for it
	board         board
	close         func() error // ends the use of the peer's memory
}

const controlBytes = 4096

// part is where the part for a writer begins in a reader's window: a rank has
// none for itself.
func part(reader, writer int, bytes uint64) uint64 {
	if writer > reader {
		writer--
	}
	return uint64(writer) * bytes
}

// offer is what a rank says of its memory.
type offer struct {
	Window []byte // a cudaipc.Handle; empty where there is none
	Why    string // there is none
	Board  int    // where it lies, for PeerMemory
}

// allocate makes what depends on no peer: this rank's state, control and board,
// and, for peers that may reach it, a window with parts of so many bytes.
func (d *Comm) allocate(bytes uint64, straight bool) (o offer, err error) {
	m, ctx := &d.memory, d.gpu.context
	m.peers = make([]reached, d.size)
	if !d.comm.Lends() {
		return o, failf(communicator.Memory, "GPUs need memory that all ranks see, and there is none (unset RINGLANE_WINDOW, or raise the limit that ulimit -v shows)")
	}
	if m.own, err = communicator.Alloc(controlBytes + boardBytes); err != nil {
		return o, err
	}
	if m.control, err = pinned.Register(ctx, m.own[:controlBytes]); err != nil {
		return o, err
	}
	m.peers[d.rank].board = board{m.own[controlBytes:]}
	o.Board, _ = d.comm.Offset(m.own[controlBytes:])
	if m.state, err = ctx.Alloc(stateBytes); err == nil {
		err = ctx.Set(m.state, 0, stateBytes)
	}
	if err != nil || !straight {
		o.Why = fmt.Sprintf("%v of rank %d reaches no peer", d.gpu.device, d.rank)
		return o, err
	}
	m.window, err = cudaipc.Create(ctx, bytes*uint64(d.size-1))
	switch {
	case cuda.StatusOf(err) == cuda.StatusOutOfMemory:
		return o, fmt.Errorf("%w (lower RINGLANE_DEVICE_WINDOW)", err)
	case err != nil:
		o.Why = err.Error()
		return o, nil
	}
	handle := m.window.Handle()
	o.Window = handle[:]
	return o, nil
}

// dropWindow frees the window if no peer uses it.
func (d *Comm) dropWindow() error {
	for p := range d.size {
		if p != d.rank && d.path(p, d.rank).Kind != Host {
			return nil
		}
	}
	w := d.memory.window
	d.memory.window = nil
	if w == nil {
		return nil
	}
	return w.Close()
}

// reach maps the window of a peer.
func (d *Comm) reach(peer int, o offer) error {
	if len(o.Window) == 0 {
		return errors.New(o.Why)
	}
	if d.memory.window == nil {
		return errors.New("this rank has no window")
	}
	w, err := cudaipc.Import(d.gpu.context, cudaipc.Handle(o.Window))
	if err != nil {
		return err
	}
	bytes := w.Size() / uint64(d.size-1)
	r := &d.memory.peers[peer]
	r.outbox = w.Pointer() + cuda.Pointer(part(peer, d.rank, bytes))
	r.inbox = d.memory.window.Pointer() + cuda.Pointer(part(d.rank, peer, bytes))
	r.close = w.Close
	return nil
}

// unreach ends the use of a peer's memory.
func (d *Comm) unreach(peer int) (err error) {
	r := &d.memory.peers[peer]
	if r.close != nil {
		err = r.close()
	}
	r.outbox, r.inbox, r.close = 0, 0, nil
	return err
}

// stage makes parts of so many bytes in host memory for the peers that need
// them, and returns where they lie, by rank.
func (d *Comm) stage(bytes uint64) (at []int, err error) {
	at = make([]int, d.size)
	var need []int
	for p := range d.size {
		if p != d.rank && d.path(d.rank, p).Kind == Host {
			need = append(need, p)
		}
	}
	if len(need) == 0 {
		return at, nil
	}
	mem, err := communicator.Alloc(len(need) * int(bytes))
	if err != nil {
		return nil, fmt.Errorf("%w (lower RINGLANE_DEVICE_WINDOW)", err)
	}
	if d.memory.host, err = pinned.Register(d.gpu.context, mem); err != nil {
		return nil, errors.Join(err, communicator.Free(mem))
	}
	first, _ := d.comm.Offset(mem)
	for i, p := range need {
		d.memory.peers[p].inbox = d.memory.host.Pointer() + cuda.Pointer(uint64(i)*bytes)
		at[p] = first + i*int(bytes)
	}
	return at, nil
}

// reachHost has the GPU see this rank's part in the host memory of a peer.
func (d *Comm) reachHost(peer, at int, bytes uint64) error {
	mem := d.comm.PeerMemory(peer, at, int(bytes))
	if mem == nil {
		return fmt.Errorf("the memory of rank %d cannot be seen", peer)
	}
	w, err := pinned.Register(d.gpu.context, mem)
	if err != nil {
		return err
	}
	d.memory.peers[peer].outbox, d.memory.peers[peer].close = w.Pointer(), w.Close
	return nil
}

// areas is where areas for rows without flags begin in a part: behind the halves of
// short lines, which are behind everything else.
func (d *Comm) areas() uint64 { return d.geometry.PartBytes() + uint64(2*d.devices.Layout.Short) }

// clear makes this rank's parts zero, and areas in them absent.
func (d *Comm) clear() error {
	areas := d.areas()
	for p := range d.memory.peers {
		if in := d.memory.peers[p].inbox; in != 0 {
			err := errors.Join(
				d.gpu.context.Set(in, 0, areas),
				d.gpu.context.Set(in+cuda.Pointer(areas), kernels.Absent, uint64(3*d.devices.Layout.Area)))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// release ends the use of the peers' memory.
func (d *Comm) release() error {
	var all error
	for p := range d.memory.peers {
		all = errors.Join(all, d.unreach(p))
	}
	return all
}

// free gives back what is this rank's own. lent says that a peer has not said
// that it is done with it: then what it may still write to stays.
func (d *Comm) free(lent bool) error {
	m := &d.memory
	var all error
	if m.control != nil {
		all = errors.Join(all, m.control.Close())
	}
	if m.state != 0 {
		all = errors.Join(all, d.gpu.context.Free(m.state))
	}
	if lent {
		return all
	}
	if m.window != nil {
		all = errors.Join(all, m.window.Close())
	}
	if m.host != nil {
		all = errors.Join(all, m.host.Close(), communicator.Free(m.host.Bytes))
	}
	return errors.Join(all, communicator.Free(m.own))
}
