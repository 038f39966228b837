package cost

import (
	"fmt"
	"slices"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/schedule"
)

// Call is what is to be priced.
type Call struct {
	Collective schedule.Collective
	Ranks      int
	Bytes      int // as collective.Table counts them
	collective.Choice
	Window bool // buffers lie in a window: simple sends references to them
}

// LendFrom is the size from which on messages are references where the buffer
// lies in a window; below, both kinds of memory are the same.
const LendFrom = 4 << 10

// AnsweredFrom is the same for messages that are answered.
const AnsweredFrom = 1 << 10

// simulated is the number of rounds that a long call is simulated for; the rest
// goes on like the last of them.
const simulated = 2 * slots

// Time is the time of c from the first rank's begin to the last one's end, if
// all begin at once, in nanoseconds. It walks the steps of all ranks, as the
// engine does: a message is read when it is there, and a slot is written when it
// is free.
func (p Parameters) Time(c Call) float64 {
	return p.pricer().time(c)
}

// pricer keeps the programs of one collective among a number of ranks.
type pricer struct {
	Parameters
	programs map[string][]schedule.Program
}

func (p Parameters) pricer() pricer { return pricer{p, map[string][]schedule.Program{}} }

func (p pricer) time(c Call) float64 {
	a, err := collective.Find(c.Collective, c.Algorithm)
	if err != nil {
		panic(fmt.Sprintf("cost: %v", err))
	}
	programs := p.programs[a.Name]
	if programs == nil {
		programs = a.Programs(c.Ranks, 0)
		p.programs[a.Name] = programs
	}
	return p.walk(c, programs, a.Chunks(c.Ranks), simulated)
}

// walk simulates at most the given number of rounds.
func (p Parameters) walk(c Call, programs []schedule.Program, chunks, most int) float64 {
	w := &walk{Parameters: p, call: c, ranks: make([]rank, c.Ranks), channels: make([]channel, c.Ranks*(c.Ranks+1))}
	w.answered = c.Protocol == collective.Simple && collective.Answered(programs)
	w.cut(chunks)
	for i := range w.ranks {
		w.ranks[i] = rank{id: i, program: programs[i]}
	}
	w.cores = make([]core, max(1, min(p.Cores, c.Ranks)))
	for i := range w.cores {
		w.cores[i].last = -1
	}
	w.far = 1
	if w.buffers(chunks) > p.Cache {
		w.far = p.Far
	}
	if w.rounds <= most {
		return p.Call + w.finish(w.rounds)
	}
	half := w.finish(most / 2)
	whole := w.finish(most)
	return p.Call + whole + (whole-half)/float64(most-most/2)*float64(w.rounds-most)
}

type rank struct {
	id, step, round int
	program         schedule.Program
	now             float64
	lent            bool // it has sent a reference, and waits at the end until that is read
}

type channel struct {
	sent []message
	read []int // by reader
}

type message struct {
	ready float64 // when it can be read
	freed float64 // when the last of those who have read it had
	reads int
}

type core struct {
	last int // the rank that ran there
	free float64
}

type walk struct {
	Parameters
	call     Call
	ranks    []rank
	channels []channel
	cores    []core
	answered bool // results go back in the slots that brought the inputs
	rounds   int
	chunk    int  // bytes of a chunk but the last ones
	whole    bool // the message is what is cut into chunks
	far      float64
}

const line = 64

// cut says how the message is cut into chunks, and these into rounds.
func (w *walk) cut(chunks int) {
	w.chunk = w.call.Bytes
	switch w.call.Collective {
	case schedule.AllReduce, schedule.Broadcast, schedule.Reduction:
		w.whole = true
		w.chunk = (w.call.Bytes + chunks - 1) / chunks
		w.chunk = (w.chunk + line - 1) / line * line
	}
	most := Slot(w.call.Ranks)
	if w.call.Protocol == collective.LL {
		most = llSegment
	}
	if s := w.call.Segment; s > 0 {
		most = min(most, s)
	}
	most = most / line * line
	w.rounds = max((min(w.chunk, w.call.Bytes)+most-1)/most, 1)
}

// bytes is the length of the message about a chunk in a round; rounds cut all
// of them evenly.
func (w *walk) bytes(chunk int) int {
	n := w.chunk
	if w.whole {
		n = max(0, min(w.chunk, w.call.Bytes-chunk*w.chunk))
	}
	return (n + w.rounds - 1) / w.rounds
}

// buffers is the memory of a rank's input and output.
func (w *walk) buffers(chunks int) int {
	if w.whole {
		return 2 * w.call.Bytes
	}
	return w.call.Bytes * (w.call.Ranks + 1)
}

// finish takes every rank to the end of the given number of rounds and returns
// when the last one is there.
func (w *walk) finish(rounds int) float64 {
	for moved := true; moved; {
		moved = false
		for i := range w.ranks {
			moved = w.advance(&w.ranks[i], rounds) || moved
		}
	}
	end := 0.0
	for i := range w.ranks {
		r := &w.ranks[i]
		if r.round < rounds {
			panic(fmt.Sprintf("cost: %v of %v among %d stands still", w.call.Algorithm, w.call.Collective, w.call.Ranks))
		}
		end = max(end, r.now, w.drained(r))
	}
	return end
}

// advance takes r as far as it gets. It has a core to itself, or waits for it.
func (w *walk) advance(r *rank, rounds int) (moved bool) {
	c := &w.cores[r.id%len(w.cores)]
	for ; r.round < rounds; r.round, r.step = r.round+1, 0 {
		for ; r.step < len(r.program); r.step++ {
			if !w.can(r, &r.program[r.step]) {
				return moved
			}
			if !moved && c.last != r.id {
				r.now = max(r.now, c.free)
				if c.last >= 0 {
					r.now += w.Switch
				}
			}
			moved = true
			w.do(r, &r.program[r.step])
			c.last, c.free = r.id, r.now
		}
	}
	return moved
}

func (w *walk) channel(writer, reader int) *channel {
	if reader == schedule.Everyone {
		reader = len(w.ranks)
	}
	ch := &w.channels[writer*(len(w.ranks)+1)+reader]
	if ch.read == nil {
		ch.sent = make([]message, 0, simulated)
		ch.read = make([]int, len(w.ranks))
	}
	return ch
}

// source is the channel that r reads a term from.
func (w *walk) source(r *rank, from schedule.Source) *channel {
	if from.Shared {
		return w.channel(from.Rank, schedule.Everyone)
	}
	return w.channel(from.Rank, r.id)
}

// can reports whether the step waits for nothing that has still to be priced.
func (w *walk) can(r *rank, s *schedule.Step) bool {
	if w.bytes(s.Chunk) == 0 {
		return true
	}
	there := func(ch *channel) bool { return ch.read[r.id] < len(ch.sent) }
	switch s.Kind {
	case schedule.Send:
		if w.answers(s) {
			return true
		}
		ch := w.channel(r.id, s.Peer)
		n := len(ch.sent)
		return n < slots || ch.sent[n-slots].reads == w.readers(s)
	case schedule.Recv:
		return there(w.source(r, schedule.Source{Rank: s.Peer, Shared: s.Shared}))
	case schedule.Reduce:
		for _, from := range s.From {
			if from.Rank != r.id && !there(w.source(r, from)) {
				return false
			}
		}
	}
	return true
}

// answers reports whether the step sends results as answers. They are priced like one
// message to everyone, which is what they come to, but for putting it into a slot.
func (w *walk) answers(s *schedule.Step) bool { return w.answered && s.Peer == schedule.Everyone }

func (w *walk) readers(s *schedule.Step) int {
	if s.Peer == schedule.Everyone {
		return len(w.ranks) - 1
	}
	return 1
}

func (w *walk) do(r *rank, s *schedule.Step) {
	n := w.bytes(s.Chunk)
	if n == 0 {
		return
	}
	bytes := float64(n) * w.far
	moved := bytes
	if w.call.Protocol == collective.LL {
		moved *= w.Words
	}
	switch s.Kind {
	case schedule.Send:
		ch := w.channel(r.id, s.Peer)
		answers := w.answers(s)
		if i := len(ch.sent) - slots; i >= 0 && !answers {
			r.now = max(r.now, ch.sent[i].freed+w.Flight)
		}
		if !answers {
			r.now += w.Send
		}
		if w.lends(r, s, n) {
			r.lent = r.lent || !w.answered
		} else {
			r.now += moved * w.Write
		}
		ch.sent = append(ch.sent, message{ready: r.now + w.Flight})
	case schedule.Recv:
		w.take(r, schedule.Source{Rank: s.Peer, Shared: s.Shared}, moved*w.Read)
	case schedule.Reduce:
		for _, from := range s.From {
			if from.Rank != r.id {
				w.take(r, from, moved*w.Read)
			}
		}
		r.now += bytes * w.Reduce * float64(len(s.From))
	case schedule.Copy:
		r.now += bytes * w.Copy
	}
}

// lends reports whether a message of n bytes is a reference. An input that its
// owner reduces while everyone reads it is copied.
func (w *walk) lends(r *rank, s *schedule.Step, n int) bool {
	exposed := s.Value == schedule.Input && s.Peer == schedule.Everyone &&
		slices.ContainsFunc(r.program, func(t schedule.Step) bool { return t.Kind == schedule.Reduce && t.Chunk == s.Chunk })
	from := LendFrom
	if w.answered {
		from = AnsweredFrom
	}
	return w.call.Window && w.call.Protocol == collective.Simple && n >= from && s.Value != schedule.Partial && !exposed
}

// take reads the next message.
func (w *walk) take(r *rank, from schedule.Source, bytes float64) {
	ch := w.source(r, from)
	m := &ch.sent[ch.read[r.id]]
	ch.read[r.id]++
	r.now = max(r.now, m.ready) + w.Receive + bytes
	m.reads++
	m.freed = max(m.freed, r.now)
}

// drained is when r knows that its references have been read.
func (w *walk) drained(r *rank) float64 {
	if !r.lent {
		return 0
	}
	end := 0.0
	for reader := range len(w.ranks) + 1 {
		ch := &w.channels[r.id*(len(w.ranks)+1)+reader]
		if n := len(ch.sent); n > 0 {
			end = max(end, ch.sent[n-1].freed+w.Flight)
		}
	}
	return end
}
