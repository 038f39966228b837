package communicator

import (
	"fmt"
	"slices"
	"time"
)

// parcel is a message that arrived before a receive with its tag was posted.
type parcel struct {
	header
	data []byte
}

// arrival is the state of one incoming lane.
type arrival struct {
	busy    bool     // a message is coming in
	into    *message // its receive, or nil: it is kept in keep
	keep    parcel
	waiting []parcel // complete, in order of arrival
}

// lanes carry point-to-point messages beside the collectives. A message waits
// in the channel until a receive from its sender is posted; only if that one
// has another tag it is moved to the heap, to let later ones pass.
type lanes struct {
	comm     *Comm
	sends    [][]*message // by peer
	receives []*message   // not matched yet, in order of posting
	arrivals []arrival    // by peer
	open     int          // messages under way
	// unasked lets messages be taken over that nobody has asked for yet.
	unasked bool
}

func newLanes(c *Comm) *lanes {
	return &lanes{comm: c, sends: make([][]*message, c.size), arrivals: make([]arrival, c.size)}
}

func (l *lanes) active() bool { return l.open > 0 }

// post takes a message over. A receive is first offered what has arrived.
func (l *lanes) post(m *message) {
	l.open++
	if m.send {
		l.sends[m.peer] = append(l.sends[m.peer], m)
		return
	}
	l.receives = append(l.receives, m)
}

func (l *lanes) poll() (moved bool, err *Error) {
	for p := range l.sends {
		for len(l.sends[p]) > 0 {
			m := l.sends[p][0]
			if !m.sent {
				if !l.push(m) {
					break
				}
				moved = true
				m.sent = m.at == len(m.buf)
			}
			if m.lent && !l.comm.ends.to[lane][p].Drained() {
				break
			}
			if m.sent {
				l.unasked = false
				l.sends[p] = slices.Delete(l.sends[p], 0, 1)
				l.finish(m, nil)
			}
		}
	}
	ok, err := l.redeem()
	moved = moved || ok
	for p := range l.arrivals {
		for err == nil && (l.arrivals[p].busy || l.wanted(p) || l.unasked && p != l.comm.rank) {
			ok, e := l.pull(p)
			moved, err = moved || ok, e
			if !ok {
				break
			}
		}
	}
	return moved, err
}

// relax is for a wait that has become long. If it is for a message that is lent,
// its receiver may wait likewise for this rank to take one of its own, before it
// asks for ours; with messages by value both would have gone on. It reports
// whether that changed anything.
func (l *lanes) relax() bool {
	if l.unasked {
		return false
	}
	for p := range l.sends {
		if len(l.sends[p]) > 0 && l.sends[p][0].lent {
			l.unasked = true
		}
	}
	return l.unasked
}

// push sends the next segment of m if there is room.
func (l *lanes) push(m *message) bool {
	w := l.comm.ends.to[lane][m.peer]
	if loan, none := l.comm.loanFor(m), (loan{}); loan.ok {
		room, ok := w.Reserve(headerBytes + referenceBytes)
		if ok {
			m.header().write(room)
			loan.write(room[headerBytes:], len(m.buf), none)
			m.at, m.lent = len(m.buf), true
			w.Commit(laneTagLent)
			l.comm.waker.Ring()
		}
		return ok
	}
	head := 0
	if m.at == 0 {
		head = headerBytes
	}
	n := min(len(m.buf)-m.at, l.comm.layout.segment-head, max(messageSegment, len(m.buf)/messagePieces))
	room, ok := w.Reserve(head + n)
	if !ok {
		return false
	}
	if head > 0 {
		m.header().write(room)
	}
	copy(room[head:], m.buf[m.at:m.at+n])
	m.at += n
	w.Commit(laneTag)
	l.comm.waker.Ring()
	return true
}

// wanted reports whether a receive that could take a message from p is posted.
func (l *lanes) wanted(p int) bool {
	for _, m := range l.receives {
		if m.peer == p || m.peer == AnySource && p != l.comm.rank {
			return true
		}
	}
	return false
}

// match takes the first posted receive for a message from p off the list.
func (l *lanes) match(p int, h header) (*message, *Error) {
	for i, m := range l.receives {
		if m.tag != h.tag || m.peer != p && m.peer != AnySource {
			continue
		}
		if h != m.header() {
			return nil, failf(Mismatch, "%v: the message from rank %d has %d bytes of %v, the receive %d bytes of %v (both sides must agree)",
				m, p, h.size, h.typ, len(m.buf), m.typ)
		}
		l.receives = slices.Delete(l.receives, i, i+1)
		m.from = p
		return m, nil
	}
	return nil, nil
}

// redeem gives kept messages to receives posted since.
func (l *lanes) redeem() (moved bool, err *Error) {
	if len(l.receives) == 0 {
		return false, nil
	}
	for p := range l.arrivals {
		a := &l.arrivals[p]
		kept := a.waiting[:0]
		for _, parcel := range a.waiting {
			m, e := l.match(p, parcel.header)
			if e != nil {
				err = e
			}
			if m == nil {
				kept = append(kept, parcel)
				continue
			}
			copy(m.buf, parcel.data)
			l.finish(m, nil)
			moved = true
		}
		clear(a.waiting[len(kept):])
		a.waiting = kept
	}
	return moved, err
}

// pull takes the next segment from p if there is one.
func (l *lanes) pull(p int) (bool, *Error) {
	a := &l.arrivals[p]
	r := l.comm.ends.from[lane][p]
	data, tag, ok := r.Peek()
	if !ok {
		return false, nil
	}
	if tag&^lent != laneTag || !a.busy && len(data) < headerBytes {
		return false, failf(Mismatch, "recv from %s: its channel holds something that is no message (does every rank run the same version?)", l.comm.who(p))
	}
	if !a.busy {
		a.busy = true
		a.keep.header = readHeader(data)
		data = data[headerBytes:]
		if tag == laneTagLent {
			if data, _ = l.comm.borrow(p, data); len(data) != a.keep.size {
				return false, failf(Mismatch, "recv from %s: the message refers to memory that it does not have (does every rank run the same version?)", l.comm.who(p))
			}
		}
		var err *Error
		if a.into, err = l.match(p, a.keep.header); err != nil {
			return false, err
		}
	}
	whole := false
	if a.into != nil {
		n := min(len(data), len(a.into.buf)-a.into.at)
		into := a.into.buf[a.into.at : a.into.at+n]
		if tag == laneTagLent && l.comm.outgrows(n) {
			copy(into, data) // claimed lines that come from memory would be written back
		} else {
			take(into, data[:n])
		}
		a.into.at += n
		whole = a.into.at == len(a.into.buf)
	} else {
		a.keep.data = append(a.keep.data, data...)
		whole = len(a.keep.data) >= a.keep.size
	}
	r.Release()
	l.comm.waker.Ring()
	if !whole {
		return true, nil
	}
	if a.into != nil {
		l.finish(a.into, nil)
	} else {
		a.waiting = append(a.waiting, a.keep)
	}
	a.busy, a.into, a.keep = false, nil, parcel{}
	_, err := l.redeem()
	return true, err
}

func (l *lanes) finish(m *message, err *Error) {
	l.open--
	l.comm.settle(&m.pending, err)
}

func (l *lanes) each(do func(*message)) {
	for p := range l.sends {
		for _, m := range l.sends[p] {
			do(m)
		}
	}
	for _, m := range l.receives {
		do(m)
	}
	for p := range l.arrivals {
		if m := l.arrivals[p].into; m != nil {
			do(m)
		}
	}
}

func (l *lanes) drain(err *Error) {
	l.each(func(m *message) { l.finish(m, err) })
	for p := range l.sends {
		l.sends[p] = nil
		l.arrivals[p].into = nil
	}
	l.receives = nil
}

// suspect says why a message cannot finish, or nil.
func (l *lanes) suspect(now time.Duration) (err *Error) {
	c := l.comm
	l.each(func(m *message) {
		if err != nil {
			return
		}
		closed := 0
		for p := range c.peers {
			if p == c.rank {
				continue
			}
			peer := &c.peers[p]
			state := peer.control.state.Load()
			if state == stateFailed {
				err = c.echo(p)
				return
			}
			if m.peer != p && m.peer != AnySource {
				continue
			}
			switch {
			case state == stateClosed:
				closed++
				if m.peer == p || closed == c.size-1 {
					err = failf(Closed, "%v: %s has closed the communicator", m, c.who(p))
					return
				}
			case peer.process.Ended():
				err = failf(Dead, "%v: %s is gone: its process ended without closing the communicator (look at that rank's own output, and at the kernel log for the OOM killer)", m, c.who(p))
				return
			}
		}
		if now-m.submitted >= c.cfg.Timeout {
			whom := "no rank sent one"
			if m.peer != AnySource {
				whom = fmt.Sprintf("%s does not answer, over shared memory", c.whoNow(m.peer))
			}
			err = failf(Timeout, "%v: no progress within %v: %s (raise RINGLANE_TIMEOUT if that rank is only slow)", m, c.cfg.Timeout, whom)
		}
	})
	return err
}
