package communicator

import (
	"time"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/schedule"
)

// A call is brief if all it takes is one message of one piece from some ranks to others, and
// perhaps the answers: AllReduce, and most collectives where they are direct. To find the way
// through a program, its parts and the places of its steps takes longer than such a message,
// so Do makes the call in a straight line. Messages and channels are the same: other ranks may
// be on the other way.

// brief is what such a call does, without the way to find it. Where there are no answers,
// also what could be lent is copied, which is as quick and needs no wait for readers.
type brief struct {
	yes    bool // calls are brief
	asks   bool // messages are answered
	sends  []sending
	ahead  bool // lines for the next call's messages are fetched while this one waits
	takes  []taking
	copies bool
	copy   place // from the caller's input to its output
	terms  int   // that are combined; one of them is the own
	own    int
	result place
}

type sending struct {
	writer channel.Writer
	at     place
	room   []byte // in its channel
	asker  channel.Asker
	answer place // of what answers, in the caller's output
}

type taking struct {
	reader   channel.Reader
	at       place
	term     int // to be combined, or -1
	alone    bool
	message  []byte // once it is there
	peer     int
	answerer channel.Answerer
	borrowed bool // the message is a reference
}

// aheadMost is how many bytes a rank's messages in a call may have for the lines of the next
// call's to be fetched: seven of 8 KiB would not stay in the first level of cache.
const aheadMost = 16 << 10

// prepare writes down what the calls of p do, if they are brief.
func (b *brief) prepare(c *Comm, p *plan) {
	*b = brief{sends: b.sends[:0], takes: b.takes[:0], own: -1}
	if c.size == 1 || p.rounds != 1 {
		return
	}
	if p.answers {
		b.ask(c, p)
		return
	}
	sent := 0
	for i, s := range p.route.program {
		at := p.places[i]
		if at.elements == 0 || at.elements*p.narrow > claimed {
			return
		}
		switch s.Kind {
		case schedule.Send:
			if i >= p.route.starts[body] {
				return
			}
			sent += at.elements * p.narrow
			b.sends = append(b.sends, sending{writer: c.writer(p, s.Peer), at: at})
		case schedule.Copy:
			b.copies, b.copy = true, at
		case schedule.Recv:
			b.takes = append(b.takes, taking{reader: c.reader(p, s.Peer, s.Shared), at: at, term: -1, alone: !s.Shared || c.size == 2})
		case schedule.Reduce:
			if b.terms > 0 || s.Value != schedule.Output {
				return
			}
			b.terms, b.result = len(s.From), at
			for term, from := range s.From {
				switch {
				case from.Value != schedule.Input:
					return
				case from.Rank == c.rank:
					b.own = term
				default:
					b.takes = append(b.takes, taking{reader: c.reader(p, from.Rank, from.Shared), at: at, term: term, alone: !from.Shared || c.size == 2})
				}
			}
		}
	}
	b.yes = b.once() && (b.terms > 0) == (b.own >= 0)
	b.ahead = sent <= aheadMost
}

// ask is prepare where messages are answered: each rank reduces a chunk.
func (b *brief) ask(c *Comm, p *plan) {
	b.asks = true
	answers := 0
	for i, s := range p.route.program {
		at := p.places[i]
		if at.elements == 0 || at.elements*p.narrow > claimed {
			return
		}
		switch {
		case s.Kind == schedule.Send && s.Value == schedule.Input:
			b.sends = append(b.sends, sending{writer: c.writer(p, s.Peer), at: at, asker: c.ends.ask[s.Peer]})
		case s.Kind == schedule.Recv:
			for k := range b.sends {
				if b.sends[k].asker == c.ends.ask[s.Peer] {
					b.sends[k].answer = at
					answers++
				}
			}
		case s.Kind == schedule.Reduce:
			if b.terms > 0 {
				return
			}
			b.terms, b.result = len(s.From), at
			for term, from := range s.From {
				if from.Rank == c.rank {
					b.own = term
					continue
				}
				b.takes = append(b.takes, taking{reader: c.reader(p, from.Rank, false), at: at, term: term, peer: from.Rank, answerer: c.ends.answer[from.Rank]})
			}
		}
	}
	b.yes = b.once() && b.own >= 0 && len(b.takes) == c.size-1 && answers == len(b.sends) && answers == c.size-1
}

// once reports whether each channel is used once each way.
func (b *brief) once() bool {
	for i := range b.sends {
		for j := range i {
			if b.sends[i].writer == b.sends[j].writer {
				return false
			}
		}
	}
	for i := range b.takes {
		for j := range i {
			if b.takes[i].reader == b.takes[j].reader {
				return false
			}
		}
	}
	return true
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

// briefly returns the plan of a brief call that can be made at once, or nil.
func (c *Comm) briefly(call *Call) *plan {
	p := c.direct.plan
	if p == nil || !p.desc.is(call) {
		if p = &c.plans[call.slot()]; !p.desc.is(call) {
			return nil
		}
	}
	if !p.brief.yes || len(call.In) < p.in || len(call.Out) < p.out || c.failed.Load() != nil || c.inboxFull.Load() || !c.idle() {
		return nil
	}
	if sys.Overlap(call.In[:p.in], call.Out[:p.out]) && !call.inPlace(c.size, c.rank) {
		return nil
	}
	for i := range p.brief.sends {
		s := &p.brief.sends[i]
		size := s.at.elements * p.narrow
		var ok bool
		if p.brief.asks {
			s.room, ok = s.asker.Invite(size)
		} else {
			s.room, ok = s.writer.Reserve(size)
		}
		if !ok {
			return nil
		}
	}
	return p
}

// input and output are the caller's memory at a place.
func (p *plan) input(call *Call, at *place) []byte {
	return call.In[at.in : at.in+at.elements*p.narrow]
}

func (p *plan) output(call *Call, at *place) []byte {
	return call.Out[at.out : at.out+at.elements*p.narrow]
}

// dart makes a brief call and reports whether it is over. If not, since a peer is late or
// has sent something else, c.direct is the operation that has sent its messages.
func (c *Comm) dart(call *Call, p *plan) bool {
	b := &p.brief
	began := c.clock()
	c.sequence++
	tag := p.tag(c.sequence)
	c.control.describe(c.sequence, p.about, p.desc.count)
	if b.asks {
		return c.inquire(call, p, tag, began)
	}
	for i := range b.sends {
		s := &b.sends[i]
		copy(s.room, call.In[s.at.in:])
		s.writer.Commit(tag)
	}
	c.waker.Ring()
	if b.ahead {
		for i := range b.sends {
			b.sends[i].writer.Ahead()
		}
	}
	if len(b.takes) > 0 && !c.arrive(p, tag, c.rest()) {
		c.resume(call, p, began)
		return false
	}
	if b.terms > 0 {
		c.reduceBriefly(call, p, nil)
	}
	if b.copies {
		if in, out := p.input(call, &b.copy), p.output(call, &b.copy); !sys.Same(in, out) {
			copy(out, in)
		}
	}
	for i := range b.takes {
		t := &b.takes[i]
		if t.term < 0 {
			copy(p.output(call, &t.at), t.message)
		}
		t.reader.Release()
	}
	// Nobody waits for this now, unless for long: then it need not wait either until the
	// lines of all have come. The next call rings.
	c.waker.Glance()
	took := c.conclude(p, began)
	if c.size == 2 && len(b.sends) > 0 && len(b.takes) > 0 && sys.ClaimsTell() { // elsewhere it is not known what is far
		n := b.sends[0].at.elements * p.narrow
		c.pace.judge(took, nearCall+time.Duration(n)*nearKiB/1024)
	}
	return true
}

// conclude says that a brief call is over, and returns what it took.
func (c *Comm) conclude(p *plan, began time.Duration) time.Duration {
	sys.Publish(c.control.completed, c.sequence)
	c.turn = c.clock()
	took := c.turn - began
	c.recorder.Record(p.desc.collective, max(p.in, p.out), took)
	return took
}

// reduceBriefly combines the messages that have come with the own term. The result is
// written twice where it is wanted in one more place.
func (c *Comm) reduceBriefly(call *Call, p *plan, also []byte) {
	b := &p.brief
	terms := c.terms[:b.terms]
	terms[b.own] = reduce.Source{Data: p.input(call, &b.result)}
	for i := range b.takes {
		if t := &b.takes[i]; t.term >= 0 {
			terms[t.term] = reduce.Source{Data: t.message}
		}
	}
	p.kernel(p.output(call, &b.result), also, false, terms, c.size)
	forget(terms)
}

// inquire is dart where messages are answered.
func (c *Comm) inquire(call *Call, p *plan, tag uint32, began time.Duration) bool {
	b := &p.brief
	in, out := c.loans(call, p)
	for i := range b.sends {
		s := &b.sends[i]
		size := s.at.elements * p.narrow
		if in.ok && size >= p.lendFrom {
			s.room, _ = s.writer.Reserve(referenceBytes) // which is less than it has
			in.from(s.at.in).write(s.room, size, out.from(s.at.out))
			s.asker.Ask(tag | lent)
		} else {
			copy(s.room, call.In[s.at.in:])
			s.asker.Ask(tag)
		}
	}
	c.waker.Ring()
	interval := 1
	if !in.ok {
		interval = c.rest()
	}
	if !c.arrive(p, tag, interval) {
		c.resume(call, p, began)
		return false
	}
	var also []byte
	if len(b.takes) == 1 && (!b.takes[0].borrowed || sys.Fetches()) {
		also = c.places[b.takes[0].peer]
	}
	for i := range b.takes {
		if t := &b.takes[i]; t.borrowed { // its owner has read what is there
			sys.Fetch(c.places[t.peer])
		}
	}
	c.reduceBriefly(call, p, also)
	for i := range b.takes {
		t := &b.takes[i]
		if also == nil {
			copy(c.places[t.peer], p.output(call, &b.result))
		}
		t.reader.Release()
	}
	c.waker.Ring()
	if !in.ok {
		interval = c.rest()
	}
	if !c.answered(p, interval) {
		c.resume(call, p, began)
		c.direct.parts[body].round = 1
		return false
	}
	for i := range b.sends {
		s := &b.sends[i]
		size := s.answer.elements * p.narrow
		answer, _ := s.asker.Answer(size)
		if !in.ok || !out.ok || size < p.lendFrom {
			copy(p.output(call, &s.answer), answer)
		}
		s.asker.Taken()
	}
	c.conclude(p, began)
	return true
}

// answered waits for the answers of a brief call, and reports whether all have come. Between
// looks there are so many pauses.
func (c *Comm) answered(p *plan, interval int) bool {
	sends := p.brief.sends
	for i, polls := 0, 0; i < len(sends); {
		switch {
		case sends[i].asker.Answered():
			i++
		case polls >= c.spins:
			return false
		default:
			polls += interval
			pause(interval)
		}
	}
	return true
}

// rest waits before the first look, and returns how many pauses there are to be between looks.
func (c *Comm) rest() int {
	switch {
	case c.pace.far():
		pause(farPauses)
		return farInterval
	case c.size > 2:
		pause(1)
		return farInterval
	}
	pause(1)
	return 1
}

// arrive waits for the messages of a brief call, and reports whether all have come and are
// what they should be. Between looks there are so many pauses.
func (c *Comm) arrive(p *plan, tag uint32, interval int) bool {
	takes := p.brief.takes
	for i, polls := 0, 0; i < len(takes); {
		t := &takes[i]
		message, got, ok := t.reader.Peek()
		if !ok && polls < c.spins {
			polls += interval
			pause(interval)
			continue
		}
		if p.brief.asks {
			var offer []byte
			if t.borrowed = got == tag|lent; ok && t.borrowed {
				message, offer = c.borrow(t.peer, message)
				got = tag
			}
			if offer == nil {
				offer = t.answerer.Room(t.at.elements * p.narrow)
			}
			c.places[t.peer] = offer
		}
		if !ok || got != tag || len(message) != t.at.elements*p.narrow {
			return false
		}
		if t.alone { // others would take the lines from each other
			sys.Claim(message)
		}
		t.message = message
		i++
	}
	return true
}

// resume makes c.direct the operation of a brief call that began then and has sent its
// messages.
func (c *Comm) resume(call *Call, p *plan, began time.Duration) {
	o := &c.direct
	o.call = *call
	o.call.In, o.call.Out = call.In[:p.in], call.Out[:p.out]
	c.prepare(o)
	o.submitted, o.started = began, began
	o.plan, o.sequence, o.tag = p, c.sequence, p.tag(c.sequence)
	o.start()
	o.in, o.out = c.loans(&o.call, p)
	o.parts[sends].round = 1
}
