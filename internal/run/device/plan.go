package device

import (
	"fmt"
	"math/bits"
	"reflect"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// plan is how calls of one key are carried out: everything but the buffers.
type plan struct {
	key      key
	about    description
	choice   collective.DeviceChoice
	in, out  uint64 // bytes
	inPlace  bool   // In and Out may overlap, if they do so with this distance:
	apart    uint64 // Out - In
	kernel   kernel
	fast     kernel // for buffers that are aligned to words, if there is one
	reduces  bool   // what comes from peers
	params   *cuda.Params
	exchange *kernels.Exchange // what params holds
}

var (
	exchangeBytes = int(reflect.TypeFor[kernels.Exchange]().Size())
	turnBytes     = int(reflect.TypeFor[kernels.Turn]().Size())
	stateBytes    = uint64(reflect.TypeFor[kernels.State]().Size())
)

// plans is how many a communicator keeps: a model has some tens of shapes.
const plans = 512

// planFor returns the plan of a call that is not the last one's. The caller
// holds d.mu.
func (d *Comm) planFor(call *Call) (*plan, error) {
	if call.SendCounts != nil || call.RecvCounts != nil {
		if d.private == nil {
			d.private = &plan{}
		}
		return d.private, d.draw(d.private, call)
	}
	if p := d.plans[call.key()]; p != nil {
		d.last = p
		return p, nil
	}
	p := &plan{key: call.key()}
	if err := d.draw(p, call); err != nil {
		return nil, err
	}
	if len(d.plans) >= plans {
		d.forget()
	}
	d.plans[p.key] = p
	d.last = p
	return p, nil
}

// forget drops all plans. Launches have copied what they need.
func (d *Comm) forget() {
	for _, p := range d.plans {
		p.free()
	}
	clear(d.plans)
	d.last = nil
}

func (p *plan) free() {
	if p != nil && p.params != nil {
		_ = p.params.Free()
		p.params, p.exchange = nil, nil
	}
}

// draw makes the plan of a call, and checks the call, its buffers included.
func (d *Comm) draw(p *plan, call *Call) error {
	if err := d.check(call); err != nil {
		return err
	}
	host := call.onHost()
	in, out, err := d.comm.Lengths(&host)
	if err != nil {
		return err
	}
	size := call.Type.Size()
	p.about = describe(call)
	p.in, p.out = uint64(in*size), uint64(out*size)
	if call.Collective != schedule.Barrier {
		if err := d.visible(host.String()+": input", call.In, p.in); err != nil {
			return err
		}
		if err := d.visible(host.String()+": output", call.Out, p.out); err != nil {
			return err
		}
	} else {
		p.in, p.out = 0, 0
	}
	p.kernel, p.fast = kernel{}, kernel{}
	p.inPlace, p.apart = inPlace(call, d.rank)
	if err := p.prepare(); err != nil {
		return failf(communicator.System, "%v: %v", &host, err)
	}
	if d.size == 1 {
		return nil
	}
	p.choice = d.Describe(*call)
	if err := d.arrange(p, call, &host); err != nil {
		return failf(communicator.System, "%v: %v", &host, err)
	}
	return nil
}

// arrange makes what the kernel of a plan is told, from the schedule, and says
// which kernel that is.
func (d *Comm) arrange(p *plan, call *Call, host *communicator.Call) error {
	f := fusion{peers: make([]flow, d.size)}
	if call.Collective != schedule.Barrier {
		s, err := d.schedule(call, p.choice.Algorithm)
		if err != nil {
			return err
		}
		switch p.choice.Algorithm {
		case collective.Ring:
			return d.arrangeRing(p, s, host)
		case collective.Hierarchical:
			return d.arrangeHierarchical(p, s, host)
		}
		if f, err = fuse(s, host, d.rank); err != nil {
			return err
		}
	}
	d.fill(p, &f)
	p.kernel, p.reduces = kernelFor(p.choice, call.Type, f.reduces), f.reduces
	if f.reduces {
		p.exchange.Op = uint32(call.Op)
		p.fast = fastFor(p.choice, call.Type, p.exchange)
	}
	return nil
}

// arrangeRing is arrange for schedules that go round the ring.
func (d *Comm) arrangeRing(p *plan, s *scheduled, host *communicator.Call) error {
	others := d.devices.Others(d.rank)
	if !rings(s.programs[d.rank], others[0], others[len(others)-1]) {
		return fmt.Errorf("%s does not go from each rank to the next", s.name)
	}
	x := p.exchange
	d.address(x, p.choice)
	x.Op = uint32(host.Op)
	for _, r := range others {
		d.peer(x, r, p.choice)
	}
	after := &x.Peers[0]
	for chunk := range s.chunks { // the first is the longest
		in, out := host.Chunk(chunk, s.chunks, d.size, d.rank)
		bytes := uint64(max(in.Len, out.Len) * host.Type.Size())
		x.OwnBytes = max(x.OwnBytes, bytes)
		after.SendBytes += bytes
	}
	name := fmt.Sprintf("%v_ring", host.Collective)
	if p.kernel = (kernel{module: "copy", name: name}); host.Collective != schedule.AllGather {
		p.kernel = kernel{module: host.Type.String(), name: fmt.Sprintf("%s_%v", name, host.Type)}
	}
	return nil
}

// kernel is a function that is loaded when it is first launched.
type kernel struct {
	module, name string
	function     *cuda.Function
}

func kernelFor(c collective.DeviceChoice, typ dtype.Type, reduces bool) kernel {
	if c.Lanes > 0 {
		return engineKernel(typ, reduces)
	}
	if c.Sentinel {
		return kernel{module: fmt.Sprintf("sentinel_%v", typ), name: fmt.Sprintf("reduce_sentinel_%v", typ)}
	}
	if !reduces {
		return kernel{module: "copy", name: "copy_" + c.Protocol()}
	}
	return kernel{module: typ.String(), name: fmt.Sprintf("reduce_%s_%v", c.Protocol(), typ)}
}

// fastFor is the kernel of fast_line.cuh that does what reduce_line does for a
// call, if there is one: other ranks may run either.
func fastFor(c collective.DeviceChoice, typ dtype.Type, x *kernels.Exchange) kernel {
	var name string
	var most uint64 // rows that a warp has
	switch {
	case c.Line == 16 && x.Ranks == 2:
		name, most = "fast_pair", 1
	case c.Line == 16:
		name, most = "fast_line16", 1
	case c.Line == 128 && x.Ranks == 2:
		name, most = "fast_pair_wide", 2
	case c.Line == 128:
		name, most = "fast_line128", 2
	}
	bytes := most * uint64(c.Blocks*c.Threads/32) * payload(c.Line)
	if name == "" || c.Algorithm != collective.Oneshot || x.OwnBytes%8 != 0 || x.OwnBytes > bytes || x.Peers[0].Passes != 1 {
		return kernel{}
	}
	return kernel{module: "fast_" + typ.String(), name: fmt.Sprintf("%s_%v", name, typ)}
}

// payload is the bytes of a message in a row of lines.
func payload(line int) uint64 {
	if line == 0 {
		return 0
	}
	return uint64(kernels.RowBytes / line * (line - 8))
}

// kernelOf is the plan's kernel for the buffers of a call.
func (d *Comm) kernelOf(p *plan) (*cuda.Function, error) {
	k := &p.kernel
	if p.fast.name != "" && (p.exchange.In|p.exchange.Out)%8 == 0 {
		k = &p.fast
	}
	if k.function == nil {
		var err error
		if k.function, err = d.gpu.function(k.module, k.name); err != nil {
			return nil, err
		}
	}
	return k.function, nil
}

type scheduleKey struct {
	collective schedule.Collective
	algorithm  string
	root       int
}

// schedule makes each schedule once.
func (d *Comm) schedule(call *Call, algorithm string) (*scheduled, error) {
	key := scheduleKey{call.Collective, algorithm, 0}
	if call.Collective.Rooted() {
		key.root = call.Root
	}
	if s := d.schedules[key]; s != nil {
		return s, nil
	}
	a, err := d.devices.Schedule(call.Collective, algorithm)
	if err != nil {
		return nil, err
	}
	s := newScheduled(a, d.size, key.root)
	d.schedules[key] = s
	return s, nil
}

// Describe says how a call would be carried out.
func (d *Comm) Describe(call Call) collective.DeviceChoice {
	return d.devices.Choose(call.Collective, call.Type, bytesOf(call))
}

// bytesOf is what a call is chosen by.
func bytesOf(call Call) int {
	switch {
	case call.SendCounts != nil:
		return collective.Uneven
	case call.Collective == schedule.Barrier:
		return 0
	}
	return call.Count * call.Type.Size()
}

func (p *plan) prepare() (err error) {
	if p.params == nil {
		if p.params, err = cuda.NewParams(exchangeBytes); err != nil {
			return err
		}
		p.exchange = cuda.View[kernels.Exchange](p.params)
	}
	*p.exchange = kernels.Exchange{}
	return nil
}

// fill writes what kernels are told of a fusion.
func (d *Comm) fill(p *plan, f *fusion) {
	x := p.exchange
	d.address(x, p.choice)
	x.OwnIn, x.OwnOut, x.OwnBytes = f.ownIn.at, f.ownOut.at, max(f.ownIn.bytes, f.ownOut.bytes)
	if f.publishes {
		x.Publish = 1
	}
	for r := range d.size {
		if r == d.rank {
			continue
		}
		peer, flow := d.peer(x, r, p.choice), &f.peers[r]
		peer.SendAt, peer.SendBytes = flow.send.at, flow.send.bytes
		peer.RecvAt, peer.RecvBytes = flow.recv.at, flow.recv.bytes
		peer.GatherAt, peer.GatherBytes = flow.gather.at, flow.gather.bytes
		longest := max(flow.send.bytes, flow.recv.bytes)
		if f.reduces {
			longest = f.longest
		}
		peer.Passes = d.passes(p.choice, longest)
	}
}

// address writes what all calls of this rank have in common.
func (d *Comm) address(x *kernels.Exchange, c collective.DeviceChoice) {
	x.State, x.Control = uint64(d.memory.state), uint64(d.memory.control.Pointer())
	x.Deadline = uint64(d.comm.Timeout())
	x.Geometry = d.geometry
	x.Geometry.Rings = uint32(c.Blocks)
	switch {
	case c.Sentinel:
		x.Geometry.LineHalf = uint64(d.devices.Layout.Area)
	case c.Line == 0:
		x.Piece = uint32(bits.TrailingZeros(uint(c.Piece)))
	default:
		half := d.devices.HalfOf(c.Line)
		x.Geometry.LineHalf = uint64(half)
		x.Region = uint32(half/c.Blocks) / kernels.RowBytes * kernels.RowBytes
		if d.devices.Host {
			x.Ahead = 1 // two ranks on one H200 that met in host memory: 2 and 4 were slower
		}
	}
	x.Rank, x.Ranks = uint32(d.rank), uint32(d.size)
}

// peer adds a rank to those of a call, in the order of ranks.
func (d *Comm) peer(x *kernels.Exchange, rank int, c collective.DeviceChoice) *kernels.Peer {
	p := &x.Peers[x.Count]
	x.Count++
	if rank < d.rank {
		x.Position++
	}
	r := &d.memory.peers[rank]
	p.Outbox, p.Inbox, p.Rank = uint64(r.outbox), uint64(r.inbox), uint32(rank)
	behind := uint64(0)
	switch {
	case c.Sentinel:
		behind = d.areas()
	case d.devices.Apart(c.Line):
		behind = d.geometry.PartBytes()
	}
	p.Outbox += behind
	p.Inbox += behind
	return p
}

// passes is how many exchanges of lines a message of so many bytes takes.
func (d *Comm) passes(c collective.DeviceChoice, bytes uint64) uint32 {
	if c.Line == 0 {
		return 0
	}
	up := func(n, by uint64) uint64 { return (n + by - 1) / by }
	blocks := uint64(c.Blocks)
	share := up(up(bytes, payload(c.Line)), blocks)
	region := uint64(d.devices.HalfOf(c.Line)) / blocks / kernels.RowBytes
	return uint32(max(1, up(share, region)))
}

// inPlace says at which distance Out may overlap In: every chunk then has the
// same place in both.
func inPlace(call *Call, rank int) (may bool, apart uint64) {
	own := uint64(rank * call.Count * call.Type.Size())
	switch call.Collective {
	case schedule.AllReduce, schedule.Reduction, schedule.Broadcast:
		return true, 0
	case schedule.AllGather, schedule.Gather:
		return true, -own
	case schedule.ReduceScatter, schedule.Scatter:
		return true, own
	}
	return false, 0
}

// fits reports whether buffers overlap only as the call allows.
func (p *plan) fits(in, out cuda.Pointer) bool {
	if uint64(out) >= uint64(in)+p.in || uint64(in) >= uint64(out)+p.out {
		return true
	}
	return p.inPlace && uint64(out-in) == p.apart
}
