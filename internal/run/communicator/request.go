package communicator

import (
	"sync/atomic"
	"time"

	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// pending is what somebody can wait for.
type pending struct {
	submitted time.Duration // since the communicator was made
	settled   atomic.Bool
	awaited   atomic.Bool // somebody waits for done
	err       *Error
	done      chan struct{} // holds a token once settled and awaited
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
	if !p.awaited.Load() {
		return
	}
	select {
	case p.done <- struct{}{}:
	default:
	}
}

// never as a time limit is none.
const never time.Duration = 0

// await drives until p has settled or the time has come.
func (c *Comm) await(p *pending, until time.Duration) bool {
	if c.driver.TryLock() {
		c.drive(p, until)
		c.leave()
		return p.settled.Load()
	}
	p.awaited.Store(true)
	if p.settled.Load() {
		return true
	}
	c.ringSelf()
	if until == never {
		<-p.done
	} else {
		t := time.NewTimer(until - c.clock())
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
	until := never
	if limit > 0 {
		until = r.comm.clock() + limit
	}
	if r.Done() || r.comm.await(r.pending, until) {
		return r.pending.result()
	}
	return failf(Timeout, "wait: the operation is still under way after %v (wait again)", limit)
}

// Start begins a collective and makes what progress a few microseconds allow;
// the buffers must stay as they are until the request is done.
func (c *Comm) Start(call Call) (*Request, error) {
	if c.inside.Load() != 0 || c.busy.Load() {
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
	c.nudge(&o.pending, c.spins)
	return &Request{comm: c, pending: &o.pending}, nil
}

// nudge gives p a push of so many polls and leaves the rest to the background.
func (c *Comm) nudge(p *pending, polls int) {
	if !c.driver.TryLock() {
		c.ringSelf()
		return
	}
	for range polls {
		if c.poll(); p.over() {
			break
		}
		sys.Pause()
	}
	c.leave()
}

// Send sends buf to rank dst and returns when buf may be used again.
func (c *Comm) Send(buf []byte, typ dtype.Type, dst, tag int) error {
	_, err := c.exchange(true, buf, typ, dst, tag)
	return err
}

// Recv receives the next message with tag from rank src, or from AnySource, and
// returns its sender. The message must have exactly the length of buf.
func (c *Comm) Recv(buf []byte, typ dtype.Type, src, tag int) (from int, err error) {
	return c.exchange(false, buf, typ, src, tag)
}

// exchange sends or receives a message, and returns the other rank.
func (c *Comm) exchange(send bool, buf []byte, typ dtype.Type, peer, tag int) (int, error) {
	if !c.driver.TryLock() {
		m, err := c.post(send, buf, typ, peer, tag)
		if err != nil {
			return 0, err
		}
		c.await(&m.pending, never)
		return m.from, m.result()
	}
	m := &c.letter
	m.address(send, buf, typ, peer, tag)
	defer func() {
		m.buf = nil // it must not keep the buffer alive
		c.leave()
	}()
	if err := c.deliverable(m); err != nil {
		return 0, err
	}
	c.collect() // what was submitted before comes first
	if c.idle() && c.lanes.atOnce(m) {
		return m.from, nil
	}
	m.err = nil
	m.settled.Store(false)
	m.submitted = c.clock()
	c.lanes.post(m)
	c.drive(&m.pending, never)
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
	// A peer that is about to send as well comes to receive only after that.
	c.nudge(&m.pending, min(c.spins, messagePolls))
	return &Request{comm: c, pending: &m.pending, message: m}, nil
}

func (c *Comm) post(send bool, buf []byte, typ dtype.Type, peer, tag int) (*message, error) {
	m := &message{}
	m.address(send, buf, typ, peer, tag)
	if err := c.deliverable(m); err != nil {
		return nil, err
	}
	m.done = make(chan struct{}, 1)
	m.submitted = c.clock()
	c.inboxMu.Lock()
	c.messages = append(c.messages, m)
	c.inboxFull.Store(true)
	c.inboxMu.Unlock()
	return m, nil
}

// deliverable says why m cannot be sent or received.
func (c *Comm) deliverable(m *message) error {
	if err := c.usable(); err != nil {
		return err
	}
	switch {
	case !m.typ.Valid():
		return failf(Argument, "send or recv: %v is not an element type", m.typ)
	case int(int32(m.tag)) != m.tag:
		return failf(Argument, "%v: tag %d does not fit 32 bits", m, m.tag)
	case m.peer == c.rank:
		return failf(Argument, "%v: a rank cannot exchange messages with itself", m)
	case m.peer == AnySource && !m.send && c.size > 1:
	case m.peer < 0 || m.peer >= c.size:
		return failf(Argument, "%v: ranks go from 0 to %d", m, c.size-1)
	}
	return nil
}
