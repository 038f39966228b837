package communicator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ringlane/internal/hardware/sys"
)

// How long a rank that waits keeps its core: first it polls, then it offers the
// core to others between polls, then it sleeps until a bell rings.
const (
	spinPolls       = 600 // some 20 us; where every rank has a core of its own
	spinPollsShared = 20  // where ranks outnumber cores, the peer may need this one
	messagePolls    = 20  // for a message that was only started
	yields          = 200
	shortNap        = 5 * time.Millisecond  // a sleeper looks around this often at first
	longNap         = 50 * time.Millisecond // and this often after a while
	shortNaps       = 10
)

// submit hands an operation to whoever drives.
func (c *Comm) submit(o *operation) {
	c.inboxMu.Lock()
	c.inbox = append(c.inbox, o)
	c.inboxFull.Store(true)
	c.inboxMu.Unlock()
}

// collect moves submitted work to the driver's own queues.
func (c *Comm) collect() {
	if !c.inboxFull.Load() {
		return
	}
	c.inboxMu.Lock()
	c.queue = append(c.queue, c.inbox...)
	clear(c.inbox) // what has been handed on must not keep its buffers alive
	c.inbox = c.inbox[:0]
	for _, m := range c.messages {
		c.lanes.post(m)
	}
	clear(c.messages)
	c.messages = c.messages[:0]
	c.inboxFull.Store(false)
	c.inboxMu.Unlock()
}

// poll does what can be done without waiting, for every operation under way.
// Only the holder of c.driver calls it.
func (c *Comm) poll() (moved bool) {
	c.collect()
	if c.failed.Load() != nil {
		c.drain()
		return true
	}
	for len(c.queue) > 0 {
		o := c.queue[0]
		if o.sequence == 0 {
			o.begin()
		}
		m, err := o.advance()
		if err != nil {
			c.fail(err)
			c.drain()
			return true
		}
		moved = moved || m
		if !o.finished {
			break
		}
		c.queue = slices.Delete(c.queue, 0, 1)
		c.complete(o, nil)
	}
	if c.lanes.active() {
		m, err := c.lanes.poll()
		if err != nil {
			c.fail(err)
			c.drain()
			return true
		}
		moved = moved || m
	}
	return moved
}

// dash carries o out alone, as far as that goes without anything else to do or
// a long wait. It reports whether o is over.
func (c *Comm) dash(o *operation) bool {
	if c.failed.Load() != nil {
		return false
	}
	o.begin()
	for range c.spins {
		if _, err := o.advance(); err != nil {
			return false // it comes again, and is dealt with, in poll
		}
		if o.finished {
			c.complete(o, nil)
			return true
		}
		sys.Pause()
	}
	return false
}

// complete tells the one who waits for o.
func (c *Comm) complete(o *operation, err *Error) {
	if err == nil {
		c.turn = c.clock()
		c.recorder.Record(o.call.Collective, max(len(o.call.In), len(o.call.Out)), c.turn-o.submitted)
	}
	if o.drives {
		o.err, o.finished = err, true
		return
	}
	c.settle(&o.pending, err)
}

// drain fails everything under way with the communicator's failure.
func (c *Comm) drain() {
	err := c.failed.Load()
	for _, o := range c.queue {
		if o.sequence != 0 && o.out.ok {
			// A peer that is late may put a result there when its owner has gone on.
			c.arena.Keep(o.out.at)
		}
		c.complete(o, err)
	}
	clear(c.queue)
	c.queue = c.queue[:0]
	c.lanes.drain(err)
}

func (c *Comm) idle() bool { return len(c.queue) == 0 && !c.lanes.active() }

// waiter is what drive works for.
type waiter interface{ over() bool }

// drive polls until w is over. The caller holds c.driver.
func (c *Comm) drive(w waiter, until time.Duration) {
	polls, naps := 0, 0
	for {
		moved := c.poll()
		if w.over() {
			return
		}
		if moved {
			polls, naps = 0, 0
			continue
		}
		polls++
		if polls < c.spins {
			sys.Pause()
			continue
		}
		if polls < c.spins+yields {
			sys.Yield()
			continue
		}
		now := c.clock()
		if until != never && now > until {
			return
		}
		if c.lanes.relax() {
			continue
		}
		ticket := c.control.bell.Doze()
		if c.poll() {
			c.control.bell.Awake()
			if w.over() {
				return
			}
			polls, naps = 0, 0
			continue
		}
		if c.inspect(now) {
			c.control.bell.Awake()
			continue // poll hands the failure out
		}
		nap := shortNap
		if naps++; naps > shortNaps {
			nap = longNap
		}
		if until != never {
			nap = min(nap, until-now)
		}
		c.control.bell.Sleep(ticket, min(nap, c.untilDeadline(now)))
		c.control.bell.Awake()
		polls = c.spins // after a nap: poll, offer the core, nap again
	}
}

// leave gives the driver's seat up and sees to it that work left over has a
// driver: whoever submitted while the seat was taken relies on that.
func (c *Comm) leave() {
	rest := !c.idle()
	c.driver.Unlock()
	if rest || c.inboxFull.Load() {
		c.wakeBackground()
	}
}

func (c *Comm) wakeBackground() {
	c.backgroundOnce.Do(func() {
		go c.background()
	})
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// everything is over when nothing is under way.
type everything struct{ c *Comm }

func (e everything) over() bool { return e.c.idle() && !e.c.inboxFull.Load() }

// background drives while nobody waits inside a call.
func (c *Comm) background() {
	for {
		select {
		case <-c.quit:
			return
		case <-c.wake:
		}
		c.driver.Lock()
		c.drive(everything{c}, never)
		c.leave()
	}
}

// fail makes err the fate of this communicator, here and for its peers. The
// first failure stays.
func (c *Comm) fail(err *Error) {
	if c.failed.CompareAndSwap(nil, err) {
		c.control.fail(err)
		for p := range c.peers {
			if p != c.rank {
				c.peers[p].control.bell.Ring()
			}
		}
	}
}

// inspect looks, after a wait that was long enough to sleep, for a reason why
// nothing moves. It reports whether it failed the communicator.
func (c *Comm) inspect(now time.Duration) bool {
	if len(c.queue) > 0 {
		if err := c.suspect(c.queue[0], now); err != nil {
			return c.condemn(err)
		}
	}
	if err := c.lanes.suspect(now); err != nil {
		return c.condemn(err)
	}
	return false
}

// condemn fails the communicator unless a last look moves something after all:
// what a peer stored before it ended counts.
func (c *Comm) condemn(err *Error) bool {
	if c.poll() {
		return c.failed.Load() != nil
	}
	c.fail(err)
	return true
}

// suspect says why o cannot finish, or nil.
func (c *Comm) suspect(o *operation, now time.Duration) *Error {
	for p := range c.peers {
		if p == c.rank {
			continue
		}
		peer := &c.peers[p]
		state := peer.control.state.Load()
		if state == stateFailed {
			return c.echo(p)
		}
		// Also a peer that has completed its part may have made another call:
		// the root of a broadcast needs nobody.
		if err := c.disagreement(o, p); err != nil {
			return err
		}
		switch {
		case peer.control.completed.Load() >= o.sequence:
			continue
		case state == stateClosed:
			return failf(Closed, "%s: %s has closed the communicator after %d collectives, without this one (all ranks must make the same calls)",
				o.name(), c.who(p), peer.control.completed.Load())
		case peer.process.Ended():
			return failf(Dead, "%s: %s is gone: its process ended without closing the communicator (look at that rank's own output, and at the kernel log for the OOM killer)",
				o.name(), c.who(p))
		}
	}
	waited := now - o.started
	if waited < c.cfg.Timeout {
		// A long deadline, such as torch's half hour, must not keep the name back.
		if waited >= c.patience && !o.warned {
			o.warned = true
			c.warn(fmt.Sprintf("%s: still waiting after %v: %s (the deadline is %v)", o.name(), c.patience, c.culprits(o), c.cfg.Timeout))
		}
		return nil
	}
	return failf(Timeout, "%s: no progress within %v: %s (raise RINGLANE_TIMEOUT if that rank is only slow)", o.name(), c.cfg.Timeout, c.culprits(o))
}

// culprits names the ranks that o waits for: those that have not entered it, or
// else the one that owes the current step.
func (c *Comm) culprits(o *operation) string {
	var late []string
	for p := range c.peers {
		if p == c.rank || c.peers[p].control.entered.Load() >= o.sequence {
			continue
		}
		if n := c.peers[p].control.entered.Load(); n > 0 {
			late = append(late, fmt.Sprintf("%s has not entered it (its last is #%d)", c.whoNow(p), n))
		} else {
			late = append(late, fmt.Sprintf("%s has not entered any", c.whoNow(p)))
		}
	}
	if len(late) > 0 {
		return strings.Join(late, "; ")
	}
	at := o.blocked()
	if at == nil {
		for p := range c.peers {
			if p != c.rank && c.peers[p].control.completed.Load() < o.sequence {
				late = append(late, fmt.Sprintf("%s has not read all that rank %d lends it, over shared memory", c.whoNow(p), c.rank))
			}
		}
		return strings.Join(late, "; ")
	}
	step := o.route.program[at.step]
	where := fmt.Sprintf("step %d of %d (%v), chunk %d, segment %d of %d", at.step+1, len(o.route.program), step.Kind, step.Chunk, at.round+1, o.rounds)
	if at.waitsFor < 0 {
		return fmt.Sprintf("a peer has not taken over earlier data in %s, over shared memory", where)
	}
	return fmt.Sprintf("%s owes rank %d %s, over shared memory", c.whoNow(at.waitsFor), c.rank, where)
}

// disagreement compares what peer says about its last collectives with what
// this rank asked for. A rank that needed nothing from the others may have gone
// past the first call in which they differ.
func (c *Comm) disagreement(o *operation, peer int) *Error {
	for n := uint64(callRing - 1); ; n-- {
		if o.sequence > n {
			sequence := o.sequence - n
			ours, known := c.control.described(sequence)
			theirs, ok := c.peers[peer].control.described(sequence)
			if known && ok && ours != theirs {
				return failf(Mismatch, "collective #%d: ranks disagree: rank %d calls %v, rank %d calls %v (all ranks must make the same calls in the same order)",
					sequence, c.rank, ours, peer, theirs)
			}
		}
		if n == 0 {
			return nil
		}
	}
}

// echo takes over the failure that peer reports.
func (c *Comm) echo(peer int) *Error {
	e := c.peers[peer].control.failure()
	if strings.HasPrefix(e.Text, reported) {
		return e
	}
	return &Error{e.Code, fmt.Sprintf("%s %d: %s", reported, peer, e.Text)}
}

const reported = "reported by rank"

// untilDeadline is the time left to the operation that is due first.
func (c *Comm) untilDeadline(now time.Duration) time.Duration {
	left := longNap
	if len(c.queue) > 0 {
		left = min(left, c.queue[0].started+c.cfg.Timeout-now)
	}
	return max(left, time.Millisecond)
}

func (o *operation) name() string {
	return fmt.Sprintf("%v (collective #%d)", o.desc, o.sequence)
}

// who names a rank with what one needs to find its process.
func (c *Comm) who(rank int) string {
	p := &c.peers[rank]
	return fmt.Sprintf("rank %d (pid %d on %s)", rank, p.PID, p.Host)
}

// whoNow adds what the kernel says of the process.
func (c *Comm) whoNow(rank int) string {
	p := &c.peers[rank]
	if p.Host != c.peers[c.rank].Host {
		return c.who(rank)
	}
	if state := sys.ProcessState(p.PID); state != "" {
		return fmt.Sprintf("rank %d (pid %d on %s, %s)", rank, p.PID, p.Host, state)
	}
	return c.who(rank)
}
