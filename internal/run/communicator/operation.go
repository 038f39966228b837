package communicator

import (
	"time"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/schedule"
)

// operation is one collective under way on this rank: the program counters of
// its schedule. It never blocks: advance does what can be done now.
type operation struct {
	pending
	comm *Comm
	call Call

	*plan
	sequence uint64 // number of the collective in this communicator, 0 until it starts
	tag      uint32
	parts    [parts]counter
	in, out  loan
	borrowed bool // the message received last is a reference
	passed   bool // the message received last was written past the caches, all but its first piece
	// owed are the channels with messages that refer to memory of the caller.
	owed []channel.Writer

	drives   bool          // nobody but the driver, inside Do, waits for it
	started  time.Duration // when it became the head of the queue
	warned   bool          // that it takes long
	finished bool
}

// counter is how far a part of the program is: the next segment and step.
type counter struct {
	round, step int
	waitsFor    int // the peer that the step waited for when it was last tried, -1 for all
}

func (o *operation) over() bool {
	if o.drives {
		return o.finished
	}
	return o.pending.over()
}

// begin makes the operation the current one.
func (o *operation) begin() {
	c := o.comm
	c.sequence++
	o.sequence = c.sequence
	o.started = max(o.submitted, c.turn)
	o.plan = c.planFor(&o.call, o.plan)
	o.tag = o.plan.tag(o.sequence)
	o.start()
	o.in, o.out = c.loans(&o.call, o.plan)
	c.control.describe(o.sequence, o.about, o.desc.count)
}

// start puts the program counters to where the parts begin, with nothing lent.
func (o *operation) start() {
	for i := range o.parts {
		o.parts[i] = counter{step: o.route.starts[i]}
	}
	o.in, o.out = loan{}, loan{}
}

// place is the segment of a step in a round.
func (o *operation) place(round, step int) place {
	if o.rounds == 1 {
		return o.places[step]
	}
	return o.plan.place(&o.call, o.route.program[step].Chunk, round, o.comm.size, o.comm.rank)
}

// advance carries out steps until all have to wait. It reports whether any was
// done. Each part goes as far as it can before the next: what a peer has just
// written is still in its core's cache, and costs more to read than what it
// wrote some segments ago, and reading while the peer writes costs both of them.
func (o *operation) advance() (moved bool, err *Error) {
	for {
		some := false
		limit := o.rounds
		for i := range o.parts {
			m, err := o.run(part(i), limit)
			// The messages of a part share one store before the bells, which also holds
			// back the first look at the answers, so that it does not take their lines
			// away.
			o.comm.waker.Ring()
			if err != nil {
				return moved, err
			}
			some = some || m
			limit = o.parts[i].round
		}
		if limit == o.rounds {
			break
		}
		if !some {
			return moved, nil
		}
		moved = true
	}
	for len(o.owed) > 0 {
		last := len(o.owed) - 1
		if !o.owed[last].Drained() {
			return moved, nil
		}
		o.owed = o.owed[:last]
	}
	sys.Publish(o.comm.control.completed, o.sequence)
	o.finished = true
	return true, nil
}

// run carries out the steps of a part for the segments before limit, as far as
// that goes.
func (o *operation) run(part part, limit int) (moved bool, err *Error) {
	at, end := &o.parts[part], o.route.starts[part+1]
	for ; at.round < limit; at.round++ {
		for ; at.step < end; at.step++ {
			if ok, err := o.try(at); !ok || err != nil {
				return moved, err
			}
			moved = true
			if o.long {
				o.comm.waker.Ring()
			}
		}
		at.step = o.route.starts[part]
	}
	return moved, nil
}

// blocked is the step that nothing can be done for now, or nil after the last.
// What body waits for comes first: who is behind there keeps results back too.
func (o *operation) blocked() *counter {
	limits := [parts]int{o.rounds, o.parts[sends].round, o.parts[body].round}
	for _, p := range [...]part{body, receives, sends} {
		if at := &o.parts[p]; at.round < limits[p] {
			return at
		}
	}
	return nil
}

func (o *operation) try(next *counter) (bool, *Error) {
	s, at := &o.route.program[next.step], o.place(next.round, next.step)
	if at.elements == 0 {
		return true, nil // every rank cuts the chunk alike, so its peer skips it too
	}
	size := at.elements * o.narrow
	switch s.Kind {
	case schedule.Copy:
		if src, dst := o.call.In[at.in:at.in+size], o.call.Out[at.out:at.out+size]; !sys.Same(src, dst) {
			o.keep(dst, src)
		}
		return true, nil

	case schedule.Send:
		if o.route.joined[next.step] {
			return true, nil // the step before has done it
		}
		next.waitsFor = s.Peer
		w, room, tag, ok := o.open(next.step, at)
		if !ok {
			return false, nil
		}
		if tag&lent == 0 {
			put(room, 0, o.value(s.Value, at), tag&past != 0)
		}
		if o.answers {
			o.comm.ends.ask[s.Peer].Ask(tag)
		} else {
			commit(w, tag)
		}
		return true, nil

	case schedule.Recv:
		next.waitsFor = s.Peer
		dst := o.call.Out[at.out : at.out+size]
		if o.answers {
			if next.step == o.route.starts[receives] && o.comm.size > 2 && o.rounds == 1 && !o.long && !o.answered(next) {
				return false, nil
			}
			w := o.comm.ends.ask[s.Peer]
			answer, ok := w.Answer(size)
			if !ok {
				return false, nil
			}
			if !o.offers(size) {
				o.keep(dst, answer)
			}
			w.Taken()
			return true, nil
		}
		r := o.comm.reader(o.plan, s.Peer, s.Shared)
		message, _, ok, err := o.receive(r, s.Peer, size)
		if !ok {
			return false, err
		}
		if o.claims(s.Shared) {
			o.take(s.Peer, next.round, dst, message)
		} else {
			o.keep(dst, message)
		}
		r.Release()
		return true, nil

	case schedule.Reduce:
		return o.reduce(next, at)
	}
	panic("communicator: a step of unknown kind")
}

// open begins the message of a step, or returns false while its channel is full.
// The data is to be put into room, past the caches if the tag says so, unless it
// says that the message is a reference: its readers can see the memory that the
// data lies in.
func (o *operation) open(step int, at place) (w channel.Writer, room []byte, tag uint32, ok bool) {
	s := &o.route.program[step]
	w = o.comm.writer(o.plan, s.Peer)
	size := at.elements * o.size(s.Value == schedule.Partial)
	if o.lends && size >= o.lendFrom {
		lend, offer := loan{}, loan{}
		switch s.Value {
		case schedule.Input:
			lend = o.in.from(at.in)
		case schedule.Output:
			lend = o.out.from(at.out)
		}
		if lend.ok {
			if room, ok = w.Reserve(referenceBytes); !ok {
				return w, nil, 0, false
			}
			if o.answers {
				offer = o.out.from(at.out) // who answers has read all
			} else {
				o.owe(w)
			}
			lend.write(room, size, offer)
			return w, nil, o.tag | lent, true
		}
	}
	if o.answers && s.Value == schedule.Input {
		room, ok = o.comm.ends.ask[s.Peer].Invite(size)
		return w, room, o.tag, ok
	}
	if room, ok = w.Reserve(size); ok && o.passes(s.Peer, size) {
		return w, room, o.tag | past, true
	}
	return w, room, o.tag, ok
}

// offers reports whether messages of size bytes are references that offer a place for
// the answer.
func (o *operation) offers(size int) bool {
	return o.lends && size >= o.lendFrom && o.in.ok && o.out.ok
}

// value is the memory that a value of a chunk has on this rank.
func (o *operation) value(v schedule.Value, at place) []byte {
	size := at.elements * o.narrow
	switch v {
	case schedule.Input:
		return o.call.In[at.in : at.in+size]
	case schedule.Output:
		return o.call.Out[at.out : at.out+size]
	default:
		return o.comm.partial[:at.elements*o.wide]
	}
}

// size is the bytes of an element.
func (o *operation) size(wide bool) int {
	if wide {
		return o.wide
	}
	return o.narrow
}

// owe keeps the operation from ending before w is drained.
func (o *operation) owe(w channel.Writer) {
	for _, known := range o.owed {
		if known == w {
			return
		}
	}
	o.owed = append(o.owed, w)
}

// receive looks at the next message from peer, of size bytes. With a reference may
// come the offer of a place for the answer.
func (o *operation) receive(r channel.Reader, peer, size int) (message, offer []byte, ok bool, err *Error) {
	message, tag, ok := r.Peek()
	if !ok {
		return nil, nil, false, nil
	}
	if o.borrowed = tag == o.tag|lent; o.borrowed {
		message, offer = o.comm.borrow(peer, message)
		tag = o.tag
	}
	if o.passed = tag == o.tag|past; o.passed {
		tag = o.tag
	}
	if err := o.accept(peer, tag, len(message), size); err != nil {
		return nil, nil, false, err
	}
	return message, offer, true, nil
}

// reduce combines the terms of a chunk and, where the next step sends the result,
// does that too: piece by piece, while it is in the first level of cache.
func (o *operation) reduce(next *counter, at place) (bool, *Error) {
	s, c := &o.route.program[next.step], o.comm
	if o.answers && c.size > 2 && !o.asked(next) {
		return false, nil
	}
	terms := c.terms[:0]
	claim, passed := uint64(0), uint64(0) // bits for terms
	for _, from := range s.From {
		term := reduce.Source{Wide: from.Value == schedule.Partial}
		if from.Rank == c.rank {
			term.Data = o.value(from.Value, at)
		} else {
			next.waitsFor = from.Rank
			size := at.elements * o.size(term.Wide)
			message, offer, ok, err := o.receive(o.comm.reader(o.plan, from.Rank, from.Shared), from.Rank, size)
			if !ok {
				return false, err
			}
			term.Data = message
			if o.answers {
				if offer == nil {
					offer = c.ends.answer[from.Rank].Room(size)
				}
				c.places[from.Rank] = offer
			}
			if o.claims(from.Shared) {
				claim |= 1 << len(terms)
			}
			if o.passed {
				passed |= 1 << len(terms)
			}
		}
		terms = append(terms, term)
	}
	dst := o.value(s.Value, at)
	switch {
	case o.answers:
		past := o.borrowed && o.outgrows()
		o.combine(next, dst, terms, claim, passed, c.places, past)
		if past {
			sys.Fence()
		}
	case o.route.joined[next.step+1]:
		next.waitsFor = o.route.program[next.step+1].Peer
		w, room, tag, ok := o.open(next.step+1, at)
		if !ok {
			return false, nil
		}
		c.room[0] = room
		o.combine(next, dst, terms, claim, passed, c.room[:], tag&past != 0)
		commit(w, tag)
	default:
		o.combine(next, dst, terms, claim, passed, nil, false)
	}
	for _, from := range s.From {
		if from.Rank != c.rank {
			o.comm.reader(o.plan, from.Rank, from.Shared).Release()
		}
	}
	forget(terms)
	return true, nil
}

// asked reports whether all messages that the step at next combines have come. It looks at
// all, whichever is missing, so that the lines of several are on their way at once.
func (o *operation) asked(next *counter) bool {
	c, late := o.comm, -1
	for _, from := range o.route.program[next.step].From {
		if from.Rank != c.rank && !c.ends.answer[from.Rank].Arrived() {
			late = from.Rank
		}
	}
	if late >= 0 {
		next.waitsFor = late
	}
	return late < 0
}

// answered is the same for the answers that the part at next takes.
func (o *operation) answered(next *counter) bool {
	late := -1
	for i := o.route.starts[receives]; i < o.route.starts[parts]; i++ {
		if peer := o.route.program[i].Peer; o.places[i].elements > 0 && !o.comm.ends.ask[peer].Answered() {
			late = peer
		}
	}
	if late >= 0 {
		next.waitsFor = late
	}
	return late < 0
}

// forget lets go of buffers. For a few, clear takes longer.
func forget(terms []reduce.Source) {
	for i := range terms {
		terms[i].Data = nil
	}
}

func (c *Comm) writer(p *plan, peer int) channel.Writer {
	if peer == schedule.Everyone {
		return c.ends.to[p.shared][c.rank]
	}
	return c.ends.to[p.private][peer]
}

func (c *Comm) reader(p *plan, peer int, shared bool) channel.Reader {
	if shared {
		return c.ends.from[p.shared][peer]
	}
	return c.ends.from[p.private][peer]
}

// accept compares a message with what this rank expects from peer.
func (o *operation) accept(peer int, tag uint32, got, want int) *Error {
	if tag == o.tag && got == want {
		return nil
	}
	if err := o.comm.disagreement(o, peer); err != nil {
		return err
	}
	if tag == o.tag {
		return failf(Mismatch, "%s: rank %d sends %d bytes where rank %d expects %d (the counts of the two do not match)",
			o.name(), peer, got, o.comm.rank, want)
	}
	return failf(Mismatch, "%s: the message from %s belongs to another call (all ranks must make the same calls in the same order)",
		o.name(), o.comm.who(peer))
}
