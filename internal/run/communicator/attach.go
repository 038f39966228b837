package communicator

import (
	"errors"
	"slices"
	"time"
)

// What other memory than this package's own needs of a communicator that its
// ranks meet on: who they are, what they lend, and one common fate.

// Member is what is known of a rank.
func (c *Comm) Member(rank int) Member { return c.peers[rank].Member }

// Who names a rank with what one needs to find its process, and what that is
// doing now.
func (c *Comm) Who(rank int) string { return c.whoNow(rank) }

// Timeout is the deadline of every collective.
func (c *Comm) Timeout() time.Duration { return c.cfg.Timeout }

// Lends reports whether memory of Alloc can be seen by all ranks.
func (c *Comm) Lends() bool { return c.arena != nil }

// Offset says where memory of Alloc lies, as PeerMemory takes it on other ranks.
func (c *Comm) Offset(b []byte) (at int, ok bool) {
	if c.arena == nil {
		return 0, false
	}
	return c.arena.Offset(b)
}

// PeerMemory is size bytes of what another rank has from Alloc, as this process
// sees it; nil where there is none. It stays mapped until the communicator is
// closed.
func (c *Comm) PeerMemory(rank, at, size int) []byte {
	a := c.peers[rank].arena
	if a == nil || at < 0 || size < 0 || at > len(a.Bytes)-size {
		return nil
	}
	return a.Bytes[at : at+size : at+size]
}

// Fail makes an error the fate of this communicator on all ranks, unless it has
// failed before.
func (c *Comm) Fail(code Code, text string) {
	c.inboxMu.Lock()
	defer c.inboxMu.Unlock()
	if !c.closed {
		c.fail(&Error{code, text})
		c.control.bell.Ring()
	}
}

// Check looks at the peers, as a collective does that has waited long: it fails
// the communicator if one of them has failed, or is gone without having closed
// it. It returns the failure, if there is one. Any goroutine may call it.
func (c *Comm) Check() error {
	c.inboxMu.Lock()
	defer c.inboxMu.Unlock()
	if c.closed || c.failed.Load() != nil {
		return c.usable()
	}
	for p := range c.peers {
		if p == c.rank {
			continue
		}
		switch peer := &c.peers[p]; {
		case peer.control.state.Load() == stateFailed:
			c.fail(c.echo(p))
		case peer.process.Ended() && peer.control.state.Load() == stateUp:
			c.fail(failf(Dead, "%s is gone: its process ended without closing the communicator (look at that rank's own output, and at the kernel log for the OOM killer)", c.who(p)))
		}
	}
	if c.failed.Load() != nil {
		c.control.bell.Ring()
	}
	return c.usable()
}

// Left reports whether a rank can do no more: it has closed the communicator,
// or its process has ended.
func (c *Comm) Left(rank int) bool {
	c.inboxMu.Lock()
	defer c.inboxMu.Unlock()
	return c.closed || rank != c.rank &&
		(c.peers[rank].control.state.Load() == stateClosed || c.peers[rank].process.Ended())
}

// Ending is something that has to end before the communicator does.
type Ending struct{ end func() error }

// BeforeClose has Close first call end, unless it is withdrawn.
func (c *Comm) BeforeClose(end func() error) *Ending {
	e := &Ending{end}
	c.endingsMu.Lock()
	c.endings = append(c.endings, e)
	c.endingsMu.Unlock()
	return e
}

// Withdraw takes back what BeforeClose arranged.
func (c *Comm) Withdraw(e *Ending) {
	c.endingsMu.Lock()
	c.endings = slices.DeleteFunc(c.endings, func(other *Ending) bool { return other == e })
	c.endingsMu.Unlock()
}

func (c *Comm) endFirst() error {
	c.endingsMu.Lock()
	endings := c.endings
	c.endings = nil
	c.endingsMu.Unlock()
	var all error
	for _, e := range slices.Backward(endings) {
		all = errors.Join(all, e.end())
	}
	return all
}

// Span is a run of elements of a buffer.
type Span struct{ At, Len int }

// Chunk says where a chunk of the schedule of c lies in In and in Out of this
// rank. A span is meaningful only where the schedule uses it.
func (c *Call) Chunk(chunk, chunks, ranks, rank int) (in, out Span) {
	i, o := c.chunk(chunk, chunks, ranks, rank)
	return Span{i.at, i.len}, Span{o.at, o.len}
}
