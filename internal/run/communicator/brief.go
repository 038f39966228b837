package communicator

import (
	"time"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/schedule"
)

// An AllReduce is brief if each rank shows everyone its whole input in one message of
// one piece. To find the way through a program, its parts and the places of its steps
// takes longer than such a message, so Do makes the call in a straight line. It is the
// same message in the same channel: other ranks may be on the other way.

// brief is the bytes of the message if the calls of p are brief, else 0. Also where it
// could be lent it is copied, which is as quick and needs no wait for readers.
func (c *Comm) brief(p *plan, algorithm string) int {
	n := p.desc.count * p.narrow
	if algorithm != collective.Oneshot || c.size == 1 || p.rounds > 1 || n > claimed {
		return 0
	}
	return n
}

// A rank that looks for a message takes its line away from the writer, which may be just
// about to fill it or to fetch it for that. So it waits before the first look about as long
// as a line takes to come. On Zen 4, where a pause is 25 ns, AllReduce of 8 bytes takes
// 0.22 µs without any, 0.17 with one, 0.24 with four; between cores with an L3 each 0.62, 0.54
// and 0.46, or 0.43 with two between looks.
const (
	farPauses   = 4 // before the first look at ranks that are far
	farInterval = 2 // between looks at them, or at more than one

	// Two ranks that take longer for a brief call are far from each other, or one of them
	// is late; then it costs little to look less often.
	nearCall = 260 * time.Nanosecond
	nearKiB  = 100 * time.Nanosecond // and so much more for each KiB
)

func pause(n int) {
	for range n {
		sys.Pause()
	}
}

// briefly returns the plan of a brief call that can be made at once, and the room for
// its message, or nil.
func (c *Comm) briefly(call *Call) (*plan, []byte) {
	p := c.direct.plan
	if p == nil || !p.desc.is(call) {
		if p = &c.plans[call.slot()]; !p.desc.is(call) {
			return nil, nil
		}
	}
	n := p.brief
	if n == 0 || len(call.In) < n || len(call.Out) < n || c.failed.Load() != nil || c.inboxFull.Load() || !c.idle() {
		return nil, nil
	}
	if sys.Overlap(call.In[:n], call.Out[:n]) && !sys.Same(call.In, call.Out) {
		return nil, nil
	}
	room, ok := c.ends.to[p.shared][c.rank].Reserve(n)
	if !ok {
		return nil, nil
	}
	return p, room
}

// dart makes a brief call and reports whether it is over. If not, since a peer is late or
// has sent something else, c.direct is the operation that has sent its message.
func (c *Comm) dart(call *Call, p *plan, room []byte) bool {
	n := p.brief
	in, out := call.In[:n], call.Out[:n]
	began := c.clock()
	c.sequence++
	tag := p.tag(c.sequence)
	copy(room, in)
	c.control.describe(c.sequence, p.about, p.desc.count)
	c.ends.to[p.shared][c.rank].Commit(tag)
	c.waker.Ring()

	before, interval := 1, 1
	if c.pace.far() {
		before, interval = farPauses, farInterval
	} else if c.size > 2 {
		interval = farInterval
	}
	pause(before)
	readers, terms := c.ends.from[p.shared], c.terms[:c.size]
	for from, polls := 0, 0; from < len(terms); {
		term := in
		if from != c.rank {
			message, got, ok := readers[from].Peek()
			if !ok && polls < c.spins {
				polls += interval
				pause(interval)
				continue
			}
			if !ok || got != tag || len(message) != n {
				forget(terms)
				c.resume(call, p, began)
				return false
			}
			term = message
			if c.size == 2 {
				sys.Claim(message)
			}
		}
		terms[from] = reduce.Source{Data: term}
		from++
	}
	p.kernel(out, nil, false, terms, c.size)
	forget(terms)
	for from, r := range readers {
		if from != c.rank {
			r.Release()
		}
	}
	// Nobody waits for this now, unless for long: then it need not wait either until the
	// lines of all have come. The next call rings.
	c.waker.Glance()
	sys.Publish(c.control.completed, c.sequence)
	c.turn = c.clock()
	took := c.turn - began
	c.recorder.Record(schedule.AllReduce, n, took)
	if c.size == 2 && sys.ClaimsTell() { // elsewhere it is not known what is far
		c.pace.judge(took, nearCall+time.Duration(n)*nearKiB/1024)
	}
	return true
}

// resume makes c.direct the operation of a brief call that began then and has sent its
// message.
func (c *Comm) resume(call *Call, p *plan, began time.Duration) {
	o := &c.direct
	o.call = *call
	o.call.In, o.call.Out = call.In[:p.brief], call.Out[:p.brief]
	c.prepare(o)
	o.submitted, o.started = began, began
	o.plan, o.sequence, o.tag = p, c.sequence, p.tag(c.sequence)
	o.start()
	o.parts[sends].round = 1
}
