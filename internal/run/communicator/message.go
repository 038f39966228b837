package communicator

import (
	"encoding/binary"
	"fmt"

	"ringlane/internal/model/dtype"
)

// AnySource as the peer of a receive takes a message from whichever rank sends
// one with that tag first.
const AnySource = -1

// message is one point-to-point send or receive under way.
type message struct {
	pending
	send bool
	buf  []byte
	typ  dtype.Type
	peer int  // AnySource only for a receive
	tag  int  // of 32 bits
	at   int  // bytes done
	from int  // receive: the sender, once matched
	sent bool // send: all of it is in the channel
	lent bool // send: the channel holds a reference to buf
}

func (m *message) String() string {
	verb, to := "recv", "from"
	if m.send {
		verb, to = "send", "to"
	}
	whom := fmt.Sprintf("rank %d", m.peer)
	if m.peer == AnySource {
		whom = "any rank"
	}
	return fmt.Sprintf("%s of %d × %v %s %s with tag %d", verb, len(m.buf)/m.typ.Size(), m.typ, to, whom, m.tag)
}

// address makes m a message of which nothing has been done.
func (m *message) address(send bool, buf []byte, typ dtype.Type, peer, tag int) {
	m.send, m.buf, m.typ, m.peer, m.tag = send, buf, typ, peer, tag
	m.at, m.from, m.sent, m.lent = 0, peer, false, false
}

// A header precedes the data of a message's first segment.
type header struct {
	size int // of the message, in bytes
	tag  int
	typ  dtype.Type
}

const headerBytes = 16

func (m *message) header() header { return header{len(m.buf), m.tag, m.typ} }

func (h header) write(room []byte) {
	binary.LittleEndian.PutUint64(room, uint64(h.size))
	binary.LittleEndian.PutUint32(room[8:], uint32(h.tag))
	binary.LittleEndian.PutUint32(room[12:], uint32(h.typ))
}

func readHeader(data []byte) header {
	return header{
		size: int(binary.LittleEndian.Uint64(data)),
		tag:  int(int32(binary.LittleEndian.Uint32(data[8:]))),
		typ:  dtype.Type(binary.LittleEndian.Uint32(data[12:])),
	}
}

// laneTag marks segments of messages; they need no agreement beyond their header. The
// one segment of a message that is lent has the reference after its header.
const (
	laneTag     = 0x6c616e64
	laneTagLent = laneTag | lent
)

// A segment is so short that a receiver reads one while the next is written: 64 KiB there
// and back take 5.3 µs, as one segment 7.5, and 1 MiB by 16 KiB 85, by eighths 70 (2-core EPYC).
const (
	messageSegment = 16 << 10
	messagePieces  = 8
)

// loanFor is where a message lies that is worth a wait for its receiver. A shorter one is
// copied sooner, as in brief calls.
func (c *Comm) loanFor(m *message) loan {
	if len(m.buf) <= claimed {
		return loan{}
	}
	return c.loanOf(m.buf)
}

// atOnce sends or receives a message of one segment in a straight line, if nothing else
// is under way and it need not wait for long, and reports whether it did.
func (l *lanes) atOnce(m *message) bool {
	whole := headerBytes + len(m.buf)
	if whole > min(l.comm.layout.segment, messageSegment) || l.comm.loanFor(m).ok {
		return false
	}
	if m.send {
		w := l.comm.ends.to[lane][m.peer]
		room, ok := w.Reserve(whole)
		if !ok {
			return false
		}
		m.header().write(room)
		copy(room[headerBytes:], m.buf)
		w.Commit(laneTag)
		l.comm.waker.Ring()
		w.Ahead()
		return true
	}
	if m.peer == AnySource || l.arrivals[m.peer].busy || len(l.arrivals[m.peer].waiting) > 0 {
		return false
	}
	r, interval := l.comm.ends.from[lane][m.peer], 1
	if l.comm.peers[m.peer].distance.far() {
		interval = farInterval
	}
	for polls := 0; polls < l.comm.spins && !l.comm.inboxFull.Load(); polls += interval {
		data, tag, ok := r.Peek()
		if !ok {
			pause(interval)
			continue
		}
		if tag != laneTag || len(data) != whole || readHeader(data) != m.header() {
			return false
		}
		take(m.buf, data[headerBytes:])
		r.Release()
		l.comm.waker.Ring()
		return true
	}
	return false
}
