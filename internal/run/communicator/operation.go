package communicator

import (
	"time"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// operation is one collective under way on this rank: the program counter of
// its schedule. It never blocks: advance does what can be done now.
type operation struct {
	pending
	comm *Comm
	call Call
	desc description

	route     *route
	shared    flow
	private   flow
	most      int // elements of a segment at the most
	narrow    int // bytes of an element
	wide      int // bytes of an element of the accumulator type
	kernel    reduce.Kernel
	sequence  uint64 // number of the collective in this communicator, 0 until it starts
	tag       uint32
	rounds    int
	round     int
	step      int
	blockedOn int // the peer that the current step waits for

	started  time.Time // when it became the head of the queue
	warned   bool      // that it takes long
	finished bool
}

// begin makes the operation the current one.
func (o *operation) begin() {
	c := o.comm
	c.sequence++
	o.sequence = c.sequence
	if o.started = o.submitted; c.turn.After(o.started) {
		o.started = c.turn
	}
	o.desc = o.call.description()
	o.tag = o.desc.tag(o.sequence, o.route.number, int(o.private))
	c.control.describe(o.sequence, o.desc)

	o.narrow = o.call.Type.Size()
	o.wide = dtype.Accumulator(o.call.Type, o.call.Op).Size()
	o.kernel = c.kernel(o.call.Type, o.call.Op)
	element := o.narrow
	if o.route.partial {
		element = o.wide
	}
	align := o.call.align()
	o.most = min(c.layout.payload(o.private), c.layout.payload(o.shared)) / element / align * align
	o.round, o.step, o.rounds = 0, 0, 0
	for i := range o.route.program {
		n := o.chunkLen(o.route.program[i].Chunk)
		o.rounds = max(o.rounds, (n+o.most-1)/o.most)
	}
}

func (o *operation) chunkLen(chunk int) int {
	in, out := o.call.chunk(chunk, o.route.chunks, o.comm.size, o.comm.rank)
	return max(in.len, out.len)
}

// place is the current segment of a chunk in bytes of In and of Out, and its
// number of elements.
func (o *operation) place(chunk int) (in, out, elements int) {
	i, u := o.call.chunk(chunk, o.route.chunks, o.comm.size, o.comm.rank)
	s := segment(max(i.len, u.len), o.most, o.call.align(), o.round)
	return (i.at + s.at) * o.narrow, (u.at + s.at) * o.narrow, s.len
}

// advance carries out steps until one has to wait. It reports whether any was
// done.
func (o *operation) advance() (moved bool, err *Error) {
	for ; o.round < o.rounds; o.round++ {
		for o.step < len(o.route.program) {
			ok, err := o.try(&o.route.program[o.step])
			if err != nil {
				return moved, err
			}
			if !ok {
				return moved, nil
			}
			o.step++
			moved = true
		}
		o.step = 0
	}
	o.comm.control.completed.Store(o.sequence)
	o.finished = true
	return true, nil
}

func (o *operation) try(s *schedule.Step) (bool, *Error) {
	in, out, n := o.place(s.Chunk)
	if n == 0 {
		return true, nil // every rank cuts the chunk alike, so its peer skips it too
	}
	size := n * o.narrow
	switch s.Kind {
	case schedule.Copy:
		if src, dst := o.call.In[in:in+size], o.call.Out[out:out+size]; !sys.Same(src, dst) {
			copy(dst, src)
		}
		return true, nil

	case schedule.Send:
		if s.Value == schedule.Partial {
			size = n * o.wide
		}
		w := o.writer(s.Peer)
		room, ok := w.Reserve(size)
		if !ok {
			o.blockedOn = s.Peer
			return false, nil
		}
		switch s.Value {
		case schedule.Input:
			copy(room, o.call.In[in:in+size])
		case schedule.Partial:
			copy(room, o.comm.partial[:size])
		case schedule.Output:
			copy(room, o.call.Out[out:out+size])
		}
		w.Commit(o.tag)
		return true, nil

	case schedule.Recv:
		r := o.reader(s.Peer, s.Shared)
		message, tag, ok := r.Peek()
		if !ok {
			o.blockedOn = s.Peer
			return false, nil
		}
		if err := o.accept(s.Peer, tag, len(message), size); err != nil {
			return false, err
		}
		copy(o.call.Out[out:out+size], message)
		r.Release()
		return true, nil

	case schedule.Reduce:
		return o.reduce(s, in, out, n)
	}
	panic("communicator: a step of unknown kind")
}

func (o *operation) reduce(s *schedule.Step, in, out, n int) (bool, *Error) {
	terms := o.comm.terms[:0]
	for _, from := range s.From {
		term := reduce.Source{Wide: from.Value == schedule.Partial}
		size := n * o.narrow
		if term.Wide {
			size = n * o.wide
		}
		switch {
		case from.Rank != o.comm.rank:
			message, tag, ok := o.reader(from.Rank, from.Shared).Peek()
			if !ok {
				o.blockedOn = from.Rank
				return false, nil
			}
			if err := o.accept(from.Rank, tag, len(message), size); err != nil {
				return false, err
			}
			term.Data = message
		case from.Value == schedule.Input:
			term.Data = o.call.In[in : in+size]
		case from.Value == schedule.Partial:
			term.Data = o.comm.partial[:size]
		default:
			term.Data = o.call.Out[out : out+size]
		}
		terms = append(terms, term)
	}
	if s.Value == schedule.Partial {
		o.kernel(o.comm.partial[:n*o.wide], true, terms, o.comm.size)
	} else {
		o.kernel(o.call.Out[out:out+n*o.narrow], false, terms, o.comm.size)
	}
	for _, from := range s.From {
		if from.Rank != o.comm.rank {
			o.reader(from.Rank, from.Shared).Release()
		}
	}
	clear(terms)
	return true, nil
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
