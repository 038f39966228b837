package communicator

import (
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// plan is how calls of one description are carried out: everything that does
// not depend on the buffers, or on the calls before.
type plan struct {
	desc     description
	about    uint64 // what it says, but for the count
	route    *route
	lends    bool // messages may be references
	lendFrom int  // and are from so many bytes on
	answers  bool // results are answers to the messages that brought the inputs
	shared   flow
	private  flow
	kernel   reduce.Kernel
	narrow   int // bytes of an element
	wide     int // bytes of an element of the accumulator type
	most     int // elements of a segment at the most
	rounds   int
	long     bool // a step may take so long that peers sleep meanwhile
	in, out  int  // bytes of the buffers of this rank
	brief    brief
	identity uint64  // condenses what all ranks must agree on
	places   []place // of each step, where one round does
}

// place is the current segment of a step's chunk: where it begins in In and in
// Out, in bytes, and its number of elements.
type place struct{ in, out, elements int }

// plans is the number of descriptions that a communicator remembers; a model
// has some tens of buckets.
const plans = 64

// planFor returns the plan of a call, which is often the last one's. It stays as
// it is until the next call.
func (c *Comm) planFor(call *Call, last *plan) *plan {
	if last != nil && last.desc.is(call) {
		return last
	}
	if call.SendCounts != nil {
		c.draw(&c.uneven, call)
		return &c.uneven
	}
	p := &c.plans[call.slot()]
	if p.route == nil || !p.desc.is(call) {
		c.draw(p, call)
	}
	return p
}

// is compares field by field: to make a description first and compare that takes
// longer than all else here, since the processor cannot read at once what it has
// just written piece by piece.
func (d *description) is(call *Call) bool {
	return d.count == call.Count && d.collective == call.Collective && d.typ == call.Type && d.op == call.Op && d.root == call.Root &&
		call.SendCounts == nil
}

// slot is where among a communicator's plans that for a call is kept.
func (c *Call) slot() uint64 {
	h := uint64(c.Count)<<16 ^ uint64(c.Collective)<<12 ^ uint64(c.Type)<<8 ^ uint64(c.Op)<<4 ^ uint64(c.Root)
	return h * 0x9e3779b97f4a7c15 >> 58 // Fibonacci hashing to 6 bits
}

func (c *Comm) draw(p *plan, call *Call) {
	d := call.description()
	p.desc, p.about, p.rounds, p.long = d, d.about(), 0, false
	choice := c.Route(*call)
	p.shared, p.private = sharedSimple, privateSimple
	if choice.Protocol == collective.LL {
		p.shared, p.private = sharedLL, privateLL
	}
	key := routeKey{d.collective, choice.Algorithm, d.root}
	if p.route = c.routes[key]; p.route == nil {
		p.route = newRoute(key, c.size, c.rank)
		c.routes[key] = p.route
	}
	// What orders the data before a reference, and answers, is the flag of simple.
	p.lends = choice.Protocol == collective.Simple
	p.answers = p.lends && p.route.answered
	p.lendFrom = lendFrom
	if p.answers {
		p.lendFrom = answeredFrom
	}
	p.kernel = c.kernel(d.typ, d.op)
	p.narrow = d.typ.Size()
	p.wide = dtype.Accumulator(d.typ, d.op).Size()
	element := p.narrow
	if p.route.partial {
		element = p.wide
	}
	align := call.align()
	segment := min(c.layout.payload(p.private), c.layout.payload(p.shared))
	if choice.Segment > 0 {
		segment = min(segment, choice.Segment)
	} else if d.collective == schedule.Broadcast {
		segment = min(segment, rootSegment)
	}
	p.most = segment / element / align * align
	for i := range p.route.program {
		in, out := call.chunk(p.route.program[i].Chunk, p.route.chunks, c.size, c.rank)
		n := max(in.len, out.len)
		p.rounds = max(p.rounds, (n+p.most-1)/p.most)
		p.long = p.long || n*element > claimed
	}
	if p.rounds == 1 {
		p.places = p.places[:0]
		for _, step := range p.route.program {
			p.places = append(p.places, p.place(call, step.Chunk, 0, c.size, c.rank))
		}
	}
	p.identity = d.identity(p.route.number, int(p.private))
	in, out := call.lengths(c.size, c.rank)
	p.in, p.out = in*p.narrow, out*p.narrow
	p.brief.prepare(c, p)
}

type kernelKey struct {
	typ dtype.Type
	op  dtype.Op
}

// kernel looks each kernel up once.
func (c *Comm) kernel(typ dtype.Type, op dtype.Op) reduce.Kernel {
	key := kernelKey{typ, op}
	k := c.kernels[key]
	if k == nil {
		k = c.lookup(typ, op)
		c.kernels[key] = k
	}
	return k
}

// place computes where segment round of a chunk lies.
func (p *plan) place(call *Call, chunk, round, ranks, rank int) place {
	i, u := call.chunk(chunk, p.route.chunks, ranks, rank)
	s := segment(max(i.len, u.len), p.most, call.align(), round)
	return place{(i.at + s.at) * p.narrow, (u.at + s.at) * p.narrow, s.len}
}

// identity condenses what all ranks must agree on.
func (d description) identity(algorithm, protocol int) uint64 {
	h := uint64(14695981039346656037) // FNV-1a over words
	for _, v := range [...]uint64{
		uint64(d.collective), uint64(d.typ), uint64(d.op), uint64(d.root), uint64(d.count), uint64(algorithm), uint64(protocol),
	} {
		h = (h ^ v) * 1099511628211
		h ^= h >> 29
	}
	return h
}

// tag marks the messages of call number sequence, so that data of one call is
// never taken for that of another. Its last two bits are free (see lent and past).
func (p *plan) tag(sequence uint64) uint32 {
	h := (p.identity ^ sequence) * 0x9e3779b97f4a7c15
	return uint32(h>>32) &^ (lent | past)
}

// route is what a collective's way through the ranks does not owe to the size
// of the message.
type route struct {
	number  int // position in the registry, part of the identity
	chunks  int
	program schedule.Program
	partial bool           // messages may carry partial results
	starts  [parts + 1]int // the step at which each part begins, and the end
	joined  []bool         // steps that are done with the one before; one more than there are
	// answered says that each rank reduces chunks of which all others send it their
	// inputs, and that everyone gets the results: so those can go back as answers.
	answered bool
	// exposed says that an input is shown to everyone while its owner writes
	// the result to the same place, if that is the same memory: who has read it
	// is not implied by the result.
	exposed bool
}

type routeKey struct {
	collective schedule.Collective
	algorithm  string
	root       int
}

func newRoute(key routeKey, size, rank int) *route {
	a, err := collective.Find(key.collective, key.algorithm)
	if err != nil {
		panic(err) // Route names only algorithms that exist
	}
	r := &route{chunks: a.Chunks(size)}
	for i, b := range collective.Algorithms(key.collective) {
		if b.Name == a.Name {
			r.number = i
		}
	}
	programs := a.Programs(size, key.root)
	r.answered = collective.Answered(programs)
	// Whether partial results travel must be the same on all ranks, since it
	// decides how large a segment is.
	for _, p := range programs {
		for _, s := range p {
			r.partial = r.partial || s.Kind == schedule.Send && s.Value == schedule.Partial
		}
	}
	r.program = programs[rank]
	r.starts = cut(r.program)
	r.joined = following(r.program)
	shown := map[int]bool{}
	for _, s := range r.program {
		switch {
		case s.Kind == schedule.Send && s.Value == schedule.Input && s.Peer == schedule.Everyone:
			shown[s.Chunk] = true
		case s.Kind == schedule.Recv, s.Kind == schedule.Reduce && s.Value == schedule.Output:
			r.exposed = r.exposed || shown[s.Chunk]
		}
	}
	return r
}

// part is a piece of a program that may be some segments ahead of the pieces
// after it, because each uses channels of its own.
type part int

const (
	sends    part = iota // sends inputs
	body                 // all else
	receives             // takes what is complete
	parts
)

// cut says where the parts of a program begin, and where it ends.
func cut(p schedule.Program) [parts + 1]int {
	first, last := 0, len(p)
	sent := map[int]bool{}
	for first < len(p) && p[first].Kind == schedule.Send && p[first].Value == schedule.Input {
		sent[p[first].Peer] = true
		first++
	}
	for _, s := range p[first:] {
		if s.Kind == schedule.Send && sent[s.Peer] {
			first = 0
		}
	}
	type channel struct {
		peer   int
		shared bool
	}
	received := map[channel]bool{}
	for last > first && p[last-1].Kind == schedule.Recv {
		last--
		received[channel{p[last].Peer, p[last].Shared}] = true
	}
	for _, s := range p[first:last] {
		if s.Kind == schedule.Recv && received[channel{s.Peer, s.Shared}] {
			last = len(p)
			break
		}
		for _, from := range s.From {
			if received[channel{from.Rank, from.Shared}] {
				last = len(p)
			}
		}
	}
	return [...]int{0, first, last, len(p)}
}

// following finds sends of what the step before has reduced.
func following(p schedule.Program) []bool {
	joined := make([]bool, len(p)+1)
	for i := 1; i < len(p); i++ {
		before := &p[i-1]
		joined[i] = p[i].Kind == schedule.Send && before.Kind == schedule.Reduce && p[i].Chunk == before.Chunk && p[i].Value == before.Value
	}
	return joined
}
