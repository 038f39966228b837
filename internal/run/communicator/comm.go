package communicator

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/hardware/window/shm"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/telemetry"
)

// Member is what ranks know of each other.
type Member struct {
	PID  int    `json:"pid"`
	Host string `json:"host"`
}

type peer struct {
	Member
	control control
	process sys.Process
	window  *shm.Window
}

// Comm is this rank's part of a communicator: an ordered set of ranks that
// perform collectives together. Collectives are carried out one after the other
// in the order of their calls, which must be the same on all ranks;
// point-to-point messages run beside them.
type Comm struct {
	rank, size int
	cfg        Config
	secret     string // shared by the members alone; names their sub-groups
	peers      []peer
	control    control
	layout     layout
	ends       *ends
	spins      int
	crowded    bool // ranks outnumber cores
	table      collective.Table
	recorder   *telemetry.Recorder

	busy   atomic.Bool // a blocking collective is inside its call
	failed atomic.Pointer[Error]
	inline operation // the blocking collective, made once

	inboxMu   sync.Mutex
	inbox     []*operation
	messages  []*message
	inboxFull atomic.Bool
	closed    bool // the windows are unmapped; guarded by inboxMu

	driver  sync.Mutex // its holder alone touches what follows
	queue   []*operation
	lanes   *lanes
	routes  map[routeKey]*route
	kernels map[kernelKey]reduce.Kernel
	// turn is when the head of the queue last changed.
	turn     time.Time
	sequence uint64
	partial  []byte
	terms    []reduce.Source

	barrierIn, barrierOut []byte

	backgroundOnce sync.Once
	wake           chan struct{}
	quit           chan struct{}

	groupsMu sync.Mutex
	groups   map[string]int
}

// pending is what somebody can wait for.
type pending struct {
	submitted time.Time
	settled   atomic.Bool
	err       *Error
	done      chan struct{} // holds a token once settled
}

func (p *pending) over() bool { return p.settled.Load() }

func (p *pending) result() error {
	if p.err != nil {
		return p.err
	}
	return nil
}

func (c *Comm) settle(p *pending, err *Error) {
	p.err = err
	p.settled.Store(true)
	select {
	case p.done <- struct{}{}:
	default:
	}
}

func newComm(cfg Config, l layout, secret string, peers []peer) *Comm {
	c := &Comm{
		rank: cfg.Rank, size: cfg.Size, cfg: cfg, secret: secret,
		peers: peers, layout: l,
		control:    peers[cfg.Rank].control,
		table:      collective.Defaults(),
		recorder:   telemetry.NewRecorder(),
		routes:     map[routeKey]*route{},
		kernels:    map[kernelKey]reduce.Kernel{},
		partial:    make([]byte, max(l.segment, llPayload)),
		terms:      make([]reduce.Source, 0, cfg.Size),
		barrierIn:  make([]byte, 1),
		barrierOut: make([]byte, cfg.Size),
		wake:       make(chan struct{}, 1),
		quit:       make(chan struct{}),
		groups:     map[string]int{},
	}
	windows := make([][]byte, cfg.Size)
	bells := make([]channel.Bell, cfg.Size)
	for p := range peers {
		windows[p] = peers[p].window.Bytes
		bells[p] = peers[p].control.bell
	}
	c.ends = l.connect(cfg.Rank, windows, bells)
	c.lanes = newLanes(c)
	c.crowded = cfg.Size > sys.Grants{}.Cores()
	c.spins = spinPolls
	if c.crowded {
		c.spins = spinPollsShared
	}
	c.inline.comm = c
	c.inline.done = make(chan struct{}, 1)
	return c
}

// Rank is this rank's number, from 0.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.size }

// Timeout is the deadline of a collective.
func (c *Comm) Timeout() time.Duration { return c.cfg.Timeout }

// Members lists process and host of every rank.
func (c *Comm) Members() []Member {
	members := make([]Member, c.size)
	for p := range c.peers {
		members[p] = c.peers[p].Member
	}
	return members
}

// Staging is the shared memory that this rank contributes, in bytes, and
// whether it lies on huge pages.
func (c *Comm) Staging() (bytes int, huge bool) {
	return c.layout.bytes, c.peers[c.rank].window.Huge
}

// Segment is the number of bytes that a slot of a bulk channel holds.
func (c *Comm) Segment() int { return c.layout.segment }

// Stats are the latencies of the collectives since the join.
func (c *Comm) Stats() []telemetry.Latency { return c.recorder.Latencies() }

type kernelKey struct {
	typ dtype.Type
	op  dtype.Op
}

// kernel looks each kernel up once.
func (c *Comm) kernel(typ dtype.Type, op dtype.Op) reduce.Kernel {
	key := kernelKey{typ, op}
	k := c.kernels[key]
	if k == nil {
		k = reduce.For(typ, op)
		c.kernels[key] = k
	}
	return k
}

type routeKey struct {
	collective schedule.Collective
	algorithm  string
	root       int
}

// Route says which algorithm and protocol a call takes. It depends on nothing
// that may differ between ranks.
func (c *Comm) Route(call Call) (algorithm, protocol string) {
	bytes := call.Count * call.Type.Size()
	if call.SendCounts != nil {
		bytes = collective.NoLimit
	}
	algorithm, protocol = c.table.Choose(call.Collective, c.size, bytes)
	if a := c.cfg.Algorithm; a != "" && a != auto {
		if _, err := collective.Find(call.Collective, a); err == nil {
			algorithm = a
		}
	}
	if p := c.cfg.Protocol; p != "" && p != auto {
		protocol = p
	}
	return algorithm, protocol
}

const auto = "auto"

// overrides checks the names in Config.Algorithm and Config.Protocol.
func overrides(cfg *Config) error {
	if p := cfg.Protocol; p != "" && p != auto && p != collective.LL && p != collective.Simple {
		return failf(Argument, "join: there is no protocol %q (RINGLANE_PROTOCOL is one of auto, %s, %s)", p, collective.LL, collective.Simple)
	}
	if cfg.Algorithm == "" || cfg.Algorithm == auto {
		return nil
	}
	names := []string{auto}
	for _, c := range schedule.Collectives {
		for _, a := range collective.Algorithms(c) {
			if a.Name == cfg.Algorithm {
				return nil
			}
			if !slices.Contains(names, a.Name) {
				names = append(names, a.Name)
			}
		}
	}
	return failf(Argument, "join: there is no algorithm %q (RINGLANE_ALGO is one of %s)", cfg.Algorithm, strings.Join(names, ", "))
}

// prepare makes o, whose call has been checked, ready to be submitted.
func (c *Comm) prepare(o *operation) {
	o.comm = c
	o.sequence, o.finished, o.blockedOn = 0, false, 0
	o.err = nil
	o.settled.Store(false)
	select {
	case <-o.done:
	default:
	}
	o.submitted = time.Now()
}

// dispatch chooses the program of o. The holder of driver calls it.
func (c *Comm) dispatch(o *operation) {
	algorithm, protocol := c.Route(o.call)
	o.shared, o.private = sharedSimple, privateSimple
	if protocol == collective.LL {
		o.shared, o.private = sharedLL, privateLL
	}
	key := routeKey{o.call.Collective, algorithm, o.call.Root}
	r := c.routes[key]
	if r == nil {
		r = newRoute(key, c.size, c.rank)
		c.routes[key] = r
	}
	o.route = r
}

func newRoute(key routeKey, size, rank int) *route {
	a, err := collective.Find(key.collective, key.algorithm)
	if err != nil {
		panic(err) // Route names only algorithms that exist
	}
	r := &route{chunks: a.Chunks(size)}
	for i, b := range collective.Algorithms(key.collective) {
		if b.Name == a.Name {
			r.number = i
		}
	}
	// Whether partial results travel must be the same on all ranks, since it
	// decides how large a segment is.
	for other := range size {
		for _, s := range a.Program(size, other, key.root) {
			r.partial = r.partial || s.Kind == schedule.Send && s.Value == schedule.Partial
		}
	}
	r.program = a.Program(size, rank, key.root)
	return r
}

// ready validates a call, or says why no call is possible.
func (c *Comm) ready(call *Call) error {
	if err := c.usable(); err != nil {
		return err
	}
	if call.Collective == schedule.Barrier {
		call.Type, call.Count, call.In, call.Out = dtype.U8, 1, c.barrierIn, c.barrierOut
	}
	if call.Collective == schedule.SendRecv || !call.Collective.Valid() {
		return failf(Argument, "%v is not a collective call (use Send and Recv)", call.Collective)
	}
	return call.check(c.size, c.rank)
}

func (c *Comm) usable() error {
	if err := c.failed.Load(); err != nil {
		return err
	}
	return nil
}

// Do performs a collective and returns when this rank's part of it is complete.
// While one goroutine is inside Do, a collective from another fails as Busy:
// their order would differ from rank to rank.
func (c *Comm) Do(call Call) error {
	if !c.busy.CompareAndSwap(false, true) {
		return c.overlap(call)
	}
	defer c.busy.Store(false)
	o := &c.inline
	o.call = call
	if err := c.ready(&o.call); err != nil {
		return err
	}
	c.prepare(o)
	c.submit(o)
	c.await(&o.pending, time.Time{})
	return o.result()
}

func (c *Comm) overlap(call Call) error {
	return failf(Busy, "%v: another thread is inside a collective of this communicator (give each thread a communicator of its own: Group makes one)", &call)
}

// await drives until p has settled or the time has come; a zero until is never.
func (c *Comm) await(p *pending, until time.Time) bool {
	if c.driver.TryLock() {
		c.drive(p, until)
		c.leave()
		return p.settled.Load()
	}
	c.ringSelf()
	if until.IsZero() {
		<-p.done
	} else {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		select {
		case <-p.done:
		case <-t.C:
			return p.settled.Load()
		}
	}
	// Others may wait for the same request.
	select {
	case p.done <- struct{}{}:
	default:
	}
	return true
}

// ringSelf wakes the driver of this rank, which may sleep.
func (c *Comm) ringSelf() {
	c.inboxMu.Lock()
	defer c.inboxMu.Unlock()
	if !c.closed {
		c.control.bell.Ring()
	}
}

// Request is an operation under way.
type Request struct {
	comm    *Comm
	pending *pending
	message *message
}

// Done reports whether the operation has completed or failed.
func (r *Request) Done() bool { return r.pending.settled.Load() }

// From is the sender of a completed receive.
func (r *Request) From() int { return r.message.from }

// Wait returns when the operation has completed or failed. A limit of 0 leaves
// the communicator's deadline alone; beyond another limit it returns a Timeout
// and the operation goes on.
func (r *Request) Wait(limit time.Duration) error {
	var until time.Time
	if limit > 0 {
		until = time.Now().Add(limit)
	}
	if r.Done() || r.comm.await(r.pending, until) {
		return r.pending.result()
	}
	return failf(Timeout, "wait: the operation is still under way after %v (wait again)", limit)
}

// Start begins a collective and makes what progress a few microseconds allow;
// the buffers must stay as they are until the request is done.
func (c *Comm) Start(call Call) (*Request, error) {
	if c.busy.Load() {
		return nil, c.overlap(call)
	}
	o := &operation{call: call}
	if err := c.ready(&o.call); err != nil {
		return nil, err
	}
	if call.Collective == schedule.Barrier {
		o.call.In, o.call.Out = make([]byte, 1), make([]byte, c.size)
	}
	o.done = make(chan struct{}, 1)
	c.prepare(o)
	c.submit(o)
	c.nudge(&o.pending)
	return &Request{comm: c, pending: &o.pending}, nil
}

// nudge gives p a short push and leaves the rest to the background.
func (c *Comm) nudge(p *pending) {
	if !c.driver.TryLock() {
		c.ringSelf()
		return
	}
	for range c.spins {
		if c.poll(); p.over() {
			break
		}
		sys.Pause()
	}
	c.leave()
}

// Send sends buf to rank dst and returns when buf may be used again.
func (c *Comm) Send(buf []byte, typ dtype.Type, dst, tag int) error {
	m, err := c.post(true, buf, typ, dst, tag)
	if err != nil {
		return err
	}
	c.await(&m.pending, time.Time{})
	return m.result()
}

// Recv receives the next message with tag from rank src, or from AnySource, and
// returns its sender. The message must have exactly the length of buf.
func (c *Comm) Recv(buf []byte, typ dtype.Type, src, tag int) (from int, err error) {
	m, err := c.post(false, buf, typ, src, tag)
	if err != nil {
		return 0, err
	}
	c.await(&m.pending, time.Time{})
	return m.from, m.result()
}

// StartSend begins a Send.
func (c *Comm) StartSend(buf []byte, typ dtype.Type, dst, tag int) (*Request, error) {
	return c.startMessage(true, buf, typ, dst, tag)
}

// StartRecv begins a Recv.
func (c *Comm) StartRecv(buf []byte, typ dtype.Type, src, tag int) (*Request, error) {
	return c.startMessage(false, buf, typ, src, tag)
}

func (c *Comm) startMessage(send bool, buf []byte, typ dtype.Type, peer, tag int) (*Request, error) {
	m, err := c.post(send, buf, typ, peer, tag)
	if err != nil {
		return nil, err
	}
	c.nudge(&m.pending)
	return &Request{comm: c, pending: &m.pending, message: m}, nil
}

func (c *Comm) post(send bool, buf []byte, typ dtype.Type, peer, tag int) (*message, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	m := &message{send: send, buf: buf, typ: typ, peer: peer, tag: int32(tag), from: peer}
	if !typ.Valid() {
		return nil, failf(Argument, "send or recv: %v is not an element type", typ)
	}
	switch {
	case int(m.tag) != tag:
		return nil, failf(Argument, "%v: tag %d does not fit 32 bits", m, tag)
	case peer == c.rank:
		return nil, failf(Argument, "%v: a rank cannot exchange messages with itself", m)
	case peer == AnySource && !send && c.size > 1:
	case peer < 0 || peer >= c.size:
		return nil, failf(Argument, "%v: ranks go from 0 to %d", m, c.size-1)
	}
	m.done = make(chan struct{}, 1)
	m.submitted = time.Now()
	c.inboxMu.Lock()
	c.messages = append(c.messages, m)
	c.inboxFull.Store(true)
	c.inboxMu.Unlock()
	return m, nil
}

// Group makes a communicator of the listed ranks of this one, numbered in the
// order of the list. Every listed rank must call it with the same list; no
// other rank needs to.
func (c *Comm) Group(ranks []int) (*Comm, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	list := strings.Trim(fmt.Sprint(ranks), "[]")
	known := make([]acquaintance, len(ranks))
	seen := map[int]bool{}
	own := -1
	for i, r := range ranks {
		if r < 0 || r >= c.size || seen[r] {
			return nil, failf(Argument, "group of ranks %s: %d is not a rank of this communicator, or is listed twice", list, r)
		}
		seen[r] = true
		if r == c.rank {
			own = i
		}
		known[i] = acquaintance{c.peers[r].Member, c.peers[r].process.Ended}
	}
	if own < 0 {
		return nil, failf(Argument, "group of ranks %s: this is rank %d, which is not in it (only listed ranks call Group)", list, c.rank)
	}
	c.groupsMu.Lock()
	n := c.groups[list]
	c.groups[list]++
	c.groupsMu.Unlock()
	cfg := c.cfg
	cfg.Rank, cfg.Size = own, len(ranks)
	cfg.Job = fmt.Sprintf("%s group %s #%d", c.secret, list, n)
	return join(cfg, known)
}

// Abort fails every pending and later call of every rank with the given reason.
func (c *Comm) Abort(why string) {
	c.inboxMu.Lock()
	if !c.closed {
		c.fail(failf(Closed, "rank %d aborted the communicator: %s", c.rank, why))
		c.control.bell.Ring()
	}
	c.inboxMu.Unlock()
}

// Close leaves the communicator. Calls that this rank has not completed fail;
// those that peers still have to complete do not need this rank any more.
func (c *Comm) Close() error {
	c.inboxMu.Lock()
	if c.closed {
		c.inboxMu.Unlock()
		return nil
	}
	c.failed.CompareAndSwap(nil, failf(Closed, "the communicator is closed on this rank (join again)"))
	c.control.bell.Ring()
	c.inboxMu.Unlock()

	c.driver.Lock()
	defer c.driver.Unlock()
	c.collect()
	c.drain()
	c.inboxMu.Lock()
	defer c.inboxMu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	close(c.quit)
	c.control.state.CompareAndSwap(stateUp, stateClosed)
	var first error
	for p := range c.peers {
		if p != c.rank {
			c.peers[p].control.bell.Ring()
		}
	}
	for p := range c.peers {
		if err := c.peers[p].process.Close(); first == nil {
			first = err
		}
		if err := c.peers[p].window.Close(); first == nil {
			first = err
		}
	}
	return first
}
