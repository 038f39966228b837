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
	c.offered = 0
	for i := range o.parts {
		o.parts[i] = counter{step: o.route.starts[i]}
	}
	o.in, o.out = loan{}, loan{}
	if o.lends {
		o.in, o.out = c.loanOf(o.call.In), c.loanOf(o.call.Out)
	}
	if o.route.exposed && sys.Overlap(o.call.In, o.call.Out) {
		o.in.ok = false
	}
	c.control.describe(o.sequence, o.desc)
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
			copy(dst, src)
		}
		return true, nil

	case schedule.Send:
		next.waitsFor = s.Peer
		return o.send(next.step, at), nil

	case schedule.Recv:
		next.waitsFor = s.Peer
		r := o.reader(s.Peer, s.Shared)
		message, _, ok, err := o.receive(r, s.Peer, size, o.out.ok)
		if !ok {
			return false, err
		}
		if dst := o.call.Out[at.out : at.out+size]; o.claims(s.Shared) {
			take(dst, message)
		} else {
			copy(dst, message)
		}
		r.Release()
		return true, nil

	case schedule.Reduce:
		return o.reduce(next, at)
	}
	panic("communicator: a step of unknown kind")
}

// send puts a message into its channel, or a reference to it where its readers
// can see the memory that it lies in.
func (o *operation) send(step int, at place) bool {
	s, size := &o.route.program[step], at.elements*o.narrow
	var data []byte
	var lend loan
	switch s.Value {
	case schedule.Input:
		data, lend = o.call.In[at.in:at.in+size], o.in.from(at.in)
	case schedule.Output:
		data, lend = o.call.Out[at.out:at.out+size], o.out.from(at.out)
	case schedule.Partial:
		data = o.comm.partial[:at.elements*o.wide]
	}
	w := o.writer(s.Peer)
	if s.Value == schedule.Output && o.comm.offered == o.comm.size-1 {
		if _, ok := w.Reserve(0); !ok {
			return false
		}
		for _, there := range o.comm.offers {
			copy(there, data)
		}
		w.Commit(o.tag | lent)
		return true
	}
	if lend.ok && size >= lendFrom {
		room, ok := w.Reserve(referenceBytes)
		if !ok {
			return false
		}
		offer := loan{}
		if s.Value == schedule.Input && o.route.offers[step] {
			offer = o.out.from(at.out)
		}
		lend.write(room, size, offer)
		w.Commit(o.tag | lent)
		o.owe(w)
		return true
	}
	room, ok := w.Reserve(len(data))
	if !ok {
		return false
	}
	copy(room, data)
	w.Commit(o.tag)
	return true
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

// receive looks at the next message from peer, of size bytes, or of none if the
// peer may have been offered the place for them. With a reference may come the
// offer of a place for the result.
func (o *operation) receive(r channel.Reader, peer, size int, offered bool) (message, offer []byte, ok bool, err *Error) {
	message, tag, ok := r.Peek()
	if !ok {
		return nil, nil, false, nil
	}
	if o.borrowed = tag == o.tag|lent; o.borrowed {
		if len(message) == 0 && offered {
			return nil, nil, true, nil // the result has been put in its place
		}
		message, offer = o.comm.borrow(peer, message)
		tag = o.tag
	}
	if err := o.accept(peer, tag, len(message), size); err != nil {
		return nil, nil, false, err
	}
	return message, offer, true, nil
}

func (o *operation) reduce(next *counter, at place) (bool, *Error) {
	s := &o.route.program[next.step]
	terms := o.comm.terms[:0]
	claim := uint64(0) // terms to claim
	narrow, wide := at.elements*o.narrow, at.elements*o.wide
	clear(o.comm.offers)
	o.comm.offered = 0
	for _, from := range s.From {
		term := reduce.Source{Wide: from.Value == schedule.Partial}
		switch {
		case from.Rank != o.comm.rank:
			size := narrow
			if term.Wide {
				size = wide
			}
			next.waitsFor = from.Rank
			message, offer, ok, err := o.receive(o.reader(from.Rank, from.Shared), from.Rank, size, false)
			if !ok {
				return false, err
			}
			term.Data, o.comm.offers[from.Rank] = message, offer
			if o.claims(from.Shared) {
				claim |= 1 << len(terms)
			}
		case from.Value == schedule.Input:
			term.Data = o.call.In[at.in : at.in+narrow]
		case from.Value == schedule.Partial:
			term.Data = o.comm.partial[:wide]
		default:
			term.Data = o.call.Out[at.out : at.out+narrow]
		}
		terms = append(terms, term)
	}
	if s.Value == schedule.Partial {
		o.combine(o.comm.partial[:wide], true, terms, claim)
	} else {
		o.combine(o.call.Out[at.out:at.out+narrow], false, terms, claim)
	}
	for _, from := range s.From {
		if from.Rank != o.comm.rank {
			o.reader(from.Rank, from.Shared).Release()
		}
	}
	for _, there := range o.comm.offers {
		if there != nil {
			o.comm.offered++
		}
	}
	clear(terms)
	return true, nil
}

// claimed is how many bytes are claimed at a time: little enough to stay in the
// first level of cache until they are read.
const claimed = 8 << 10

// take copies what a peer wrote.
func take(dst, src []byte) {
	for len(src) > claimed {
		sys.Claim(src[:claimed])
		copy(dst, src[:claimed])
		dst, src = dst[claimed:], src[claimed:]
	}
	sys.Claim(src)
	copy(dst, src)
}

// claims reports whether the message received last is to be claimed: what this
// rank alone reads. If several do, or the owner reads too, as of an input that
// it lends to everyone, they would take the lines from each other.
func (o *operation) claims(shared bool) bool {
	return !shared || o.comm.size == 2 && !o.borrowed
}

// combine runs the kernel, a piece at a time, on terms of which those that claim
// has bits for are claimed first.
func (o *operation) combine(dst []byte, wide bool, terms []reduce.Source, claim uint64) {
	element := o.narrow
	if wide {
		element = o.wide
	}
	pieces := o.comm.pieces[:len(terms)]
	elements := claimed / o.wide
	for at, n := 0, len(dst)/element; at < n; at += elements {
		end := min(at+elements, n)
		for i, t := range terms {
			size := o.narrow
			if t.Wide {
				size = o.wide
			}
			pieces[i] = reduce.Source{Wide: t.Wide, Data: t.Data[at*size : end*size]}
			if claim&(1<<i) != 0 {
				sys.Claim(pieces[i].Data)
			}
		}
		o.kernel(dst[at*element:end*element], wide, pieces, o.comm.size)
	}
	clear(pieces)
}

func (o *operation) writer(peer int) channel.Writer {
	if peer == schedule.Everyone {
		return o.comm.ends.to[o.shared][o.comm.rank]
	}
	return o.comm.ends.to[o.private][peer]
}

func (o *operation) reader(peer int, shared bool) channel.Reader {
	if shared {
		return o.comm.ends.from[o.shared][peer]
	}
	return o.comm.ends.from[o.private][peer]
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
