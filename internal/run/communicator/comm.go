package communicator

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/hardware/window/shm"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/cpu"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/telemetry"
)

// Member is what ranks know of each other.
type Member struct {
	PID  int    `json:"pid"`
	Host string `json:"host"`
	CPUs string `json:"cpus,omitempty"` // that it may run on, as the kernel writes lists
}

type peer struct {
	Member
	control control
	process sys.Process
	window  *shm.Window
	arena   *shm.Window // the memory that it lends, nil for this rank itself
	distance
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
	waker      *channel.Waker // of the peers, for what goes through ends
	spins      int            // polls before a waiting rank offers its core
	patience   time.Duration
	farFrom    time.Duration     // what a claim takes if a peer is far
	outgrown   int               // bytes of buffers that caches do not keep
	flooded    int               // and of those whose results go past them
	warn       func(text string) // told once of an operation that has waited for patience
	table      collective.Table
	recorder   *telemetry.Recorder
	time       sys.Clock
	arena      *shm.Arena // what this rank lends to its peers, or nil

	inside atomic.Uint64 // 1 while a blocking collective drives itself
	busy   atomic.Bool   // a blocking collective waits for another driver
	failed atomic.Pointer[Error]
	behind operation // the collective of the latter kind, made once

	inboxMu   sync.Mutex
	inbox     []*operation
	messages  []*message
	inboxFull atomic.Bool
	closed    bool // the windows are unmapped; guarded by inboxMu

	driver   sync.Mutex // its holder alone touches what follows
	direct   operation  // the blocking collective that drives itself, made once
	letter   message    // the blocking message that drives itself, made once
	queue    []*operation
	lanes    *lanes
	lookup   reduce.Lookup
	kernels  map[kernelKey]reduce.Kernel
	routes   map[routeKey]*route
	plans    [plans]plan
	uneven   plan
	turn     time.Duration // when the head of the queue last changed
	sequence uint64
	partial  []byte
	terms    []reduce.Source
	pieces   []reduce.Source // of terms
	places   [][]byte        // by rank, where the chunk last reduced is wanted
	room     [1][]byte       // of the message that is being written
	pace     distance        // how long brief calls take

	barrierIn, barrierOut []byte

	backgroundOnce sync.Once
	wake           chan struct{}
	quit           chan struct{}

	groupsMu sync.Mutex
	groups   map[string]int

	endingsMu sync.Mutex
	endings   []*Ending
}

func newComm(cfg Config, l layout, secret string, peers []peer, arena *shm.Arena, lookup reduce.Lookup) *Comm {
	c := &Comm{
		rank: cfg.Rank, size: cfg.Size, cfg: cfg, secret: secret,
		peers: peers, layout: l, arena: arena, lookup: lookup,
		kernels:    map[kernelKey]reduce.Kernel{},
		control:    peers[cfg.Rank].control,
		table:      collective.Defaults(),
		recorder:   telemetry.NewRecorder(),
		routes:     map[routeKey]*route{},
		time:       sys.NewClock(),
		farFrom:    farFrom,
		outgrown:   outgrown,
		flooded:    flooded,
		partial:    make([]byte, max(l.segment, llPayload)),
		terms:      make([]reduce.Source, 0, cfg.Size),
		pieces:     make([]reduce.Source, cfg.Size),
		places:     make([][]byte, cfg.Size),
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
	c.waker = channel.NewWaker(bells)
	c.ends = l.connect(cfg.Rank, windows, c.waker)
	c.lanes = newLanes(c)
	c.patience = DefaultTimeout
	c.warn = func(text string) { fmt.Fprintf(os.Stderr, "ringlane: rank %d: %s\n", c.rank, text) }
	c.spins = spinPolls
	if cfg.Size > cores(peers) {
		c.spins = spinPollsShared
	}
	c.direct.drives = true
	c.behind.done = make(chan struct{}, 1)
	return c
}

// cores is how many cores the ranks have between them: each may be bound to
// some of its own, and a CPU quota, if there is one, holds for all.
func cores(peers []peer) int {
	all := map[int]bool{}
	for p := range peers {
		set, err := cpu.Parse(peers[p].CPUs)
		if err != nil {
			continue
		}
		for _, id := range set {
			all[id] = true
		}
	}
	n := len(all)
	if quota, limited := (sys.Grants{}).Quota(); limited {
		n = min(n, quota)
	}
	return n
}

// clock is the time since the communicator was made.
func (c *Comm) clock() time.Duration { return c.time.Now() }

// Rank is this rank's number, from 0.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.size }

// Staging is the shared memory that this rank contributes, in bytes, and
// whether it lies on huge pages.
func (c *Comm) Staging() (bytes int, huge bool) {
	return c.layout.bytes, c.peers[c.rank].window.Huge
}

// Segment is the number of bytes that a slot of a bulk channel holds.
func (c *Comm) Segment() int { return c.layout.segment }

// Stats are the latencies of the collectives since the join.
func (c *Comm) Stats() []telemetry.Latency { return c.recorder.Latencies() }

// prepare makes o, whose call has been checked, ready for the queue.
func (c *Comm) prepare(o *operation) {
	o.comm = c
	o.sequence, o.finished, o.warned = 0, false, false
	o.err = nil
	o.owed = o.owed[:0]
	o.submitted = c.clock()
	if o.drives {
		return
	}
	o.settled.Store(false)
	if o.awaited.Swap(false) {
		select {
		case <-o.done:
		default:
		}
	}
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

// Do performs a collective and returns when this rank's part of it is complete; it
// keeps nothing of call. While one goroutine is inside Do, a collective from another
// fails as Busy: their order would differ from rank to rank.
func (c *Comm) Do(call *Call) error {
	if !c.driver.TryLock() {
		return c.doBehind(*call)
	}
	if c.busy.Load() {
		c.leave()
		return c.overlap(*call)
	}
	sys.Publish(&c.inside, 1)
	var err error
	if p := c.briefly(call); p == nil {
		err = c.carry(call)
	} else if !c.dart(call, p) {
		err = c.finish(&c.direct)
	}
	sys.Publish(&c.inside, 0)
	c.leave()
	return err
}

// carry carries out a call of any kind.
func (c *Comm) carry(call *Call) error {
	o := &c.direct
	o.call = *call
	if err := c.ready(&o.call); err != nil {
		return err
	}
	c.prepare(o)
	c.collect() // what was submitted before comes first
	if c.idle() && c.dash(o) {
		return c.ended(o)
	}
	return c.finish(o)
}

// finish drives o to its end.
func (c *Comm) finish(o *operation) error {
	c.queue = append(c.queue, o)
	c.drive(o, never)
	return c.ended(o)
}

// ended is the result of o, which must not keep the buffers alive.
func (c *Comm) ended(o *operation) error {
	o.call.In, o.call.Out = nil, nil
	return o.result()
}

// doBehind is Do while another goroutine drives: one that waits for a request,
// or the background. If it is one inside Do, that is an error.
func (c *Comm) doBehind(call Call) error {
	if c.inside.Load() != 0 || !c.busy.CompareAndSwap(false, true) {
		return c.overlap(call)
	}
	defer c.busy.Store(false)
	o := &c.behind
	o.call = call
	if err := c.ready(&o.call); err != nil {
		return err
	}
	c.prepare(o)
	c.submit(o)
	c.await(&o.pending, never)
	o.call = Call{}
	return o.result()
}

func (c *Comm) overlap(call Call) error {
	return failf(Busy, "%v: another thread is inside a collective of this communicator (give each thread a communicator of its own: Group makes one)", &call)
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
	first := c.endFirst()
	c.inboxMu.Lock()
	if c.closed {
		c.inboxMu.Unlock()
		return first
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
		return first
	}
	c.closed = true
	close(c.quit)
	c.control.state.CompareAndSwap(stateUp, stateClosed)
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
		if a := c.peers[p].arena; a != nil {
			if err := a.Close(); first == nil {
				first = err
			}
		}
	}
	return first
}
