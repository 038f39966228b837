package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// value is the content of one segment: a set of terms and the order in which
// they were combined. The order of a single term is its rank, that of a sum the
// number that simulation.sums gives the pair of its operands.
type value struct {
	terms uint64
	order int
}

type message struct {
	value
	chunk, round int
	kind         Value
	depth        int // Cost.Steps up to and including this message
	turn         int // the step of Cost.OnePort in which it is written
}

// channel keeps every message ever sent; a slot is in use from the Send until
// the last reader's cursor has passed it.
type channel struct {
	sent []message
	read []int // by reader where shared, else of length 1
}

type rank struct {
	id, round, step int
	program         Program
	partialOf       int // chunk of partial, -1 for none
	partial         value
	output          []value // terms 0: not written in this round

	depth, ready, in, out int // for Cost: longest chain received; last steps of anything read, and of each port

	waitsFor int    // where blocked: the rank that has to act,
	waitsTo  string // and what it has to do
}

func (r *rank) String() string {
	return fmt.Sprintf("rank %d, round %d, step %d (%v)", r.id, r.round, r.step, r.program[r.step])
}

type simulation struct {
	Claim
	ranks    []*rank
	channels []channel      // writer*(ranks+1) + reader, or + ranks for the shared one
	sums     map[[2]int]int // order of left + right
	first    []value        // by chunk: the first Output that a round ended with
	cost     Cost
}

func (s *simulation) done(r *rank) bool { return r.round == s.Rounds }

func (s *simulation) run() error {
	for moved := true; moved; {
		moved = false
		for _, r := range s.ranks {
			for !s.done(r) {
				if r.step == len(r.program) {
					if err := s.endRound(r); err != nil {
						return err
					}
					continue
				}
				ok, err := s.do(r, r.program[r.step])
				if err != nil {
					return fmt.Errorf("%v: %w", r, err)
				}
				if !ok {
					break
				}
				r.step++
				moved = true
			}
		}
	}
	if slices.ContainsFunc(s.ranks, func(r *rank) bool { return !s.done(r) }) {
		return s.deadlock()
	}
	return s.unread()
}

// do performs one step, or reports false and leaves everything as it was if the
// step has to wait.
func (s *simulation) do(r *rank, step Step) (bool, error) {
	if step.Chunk < 0 || step.Chunk >= s.Chunks {
		return false, fmt.Errorf("no such chunk (there are %d)", s.Chunks)
	}
	switch step.Kind {
	case Send:
		return s.send(r, step)
	case Recv:
		got, err := s.take(r, []Source{{Rank: step.Peer, Shared: step.Shared}})
		if got == nil || err != nil {
			return false, err
		}
		m := got[0]
		if m.kind == Partial {
			return false, fmt.Errorf("got a %v of chunk %d, which only a reduce can finish", m.kind, m.chunk)
		}
		if err := r.expect(m, step.Chunk, m.kind); err != nil {
			return false, err
		}
		return true, s.store(r, step.Chunk, m.value)
	case Reduce:
		return s.reduce(r, step)
	case Copy:
		v, err := s.local(r, Input, step.Chunk)
		if err != nil {
			return false, err
		}
		return true, s.store(r, step.Chunk, v)
	}
	return false, fmt.Errorf("no such kind of step")
}

func (s *simulation) send(r *rank, step Step) (bool, error) {
	if step.Peer != Everyone {
		if err := s.peer(r, step.Peer); err != nil {
			return false, err
		}
	}
	v, err := s.local(r, step.Value, step.Chunk)
	if err != nil {
		return false, err
	}
	ch := s.channel(r.id, step.Peer)
	for reader := range ch.read {
		if step.Peer == Everyone && reader == r.id {
			continue
		}
		if len(ch.sent)-ch.read[reader] == s.Slots {
			r.waitsFor, r.waitsTo = step.Peer, "to free a slot of their channel"
			if step.Peer == Everyone {
				r.waitsFor, r.waitsTo = reader, "to free a slot of the shared channel"
			}
			return false, nil
		}
	}
	r.out = max(r.out, r.ready) + 1
	s.cost.Steps = max(s.cost.Steps, r.depth+1)
	ch.sent = append(ch.sent, message{value: v, chunk: step.Chunk, round: r.round, kind: step.Value, depth: r.depth + 1, turn: r.out})
	if r.round == 0 {
		s.cost.Ranks[r.id].Written++
		if step.Value == Partial {
			s.cost.Ranks[r.id].Partial++
		}
	}
	return true, nil
}

func (s *simulation) reduce(r *rank, step Step) (bool, error) {
	if len(step.From) == 0 || step.Value == Input {
		return false, fmt.Errorf("%d terms into %v (at least one, into partial or output)", len(step.From), step.Value)
	}
	got, err := s.take(r, step.From)
	if got == nil || err != nil {
		return false, err
	}
	var sum value
	for i, from := range step.From {
		// An Output is finished: rounded to the element type, and divided
		// where the operator is an average.
		if from.Value == Output {
			return false, fmt.Errorf("output of rank %d as a term", from.Rank)
		}
		term := got[i].value
		if from.Rank == r.id {
			term, err = s.local(r, from.Value, step.Chunk)
		} else {
			err = r.expect(got[i], step.Chunk, from.Value)
		}
		if err != nil {
			return false, err
		}
		if twice := sum.terms & term.terms; twice != 0 {
			return false, fmt.Errorf("term of rank %s counted twice", ranksOf(twice))
		}
		if i > 0 {
			term = value{sum.terms | term.terms, s.sum(sum.order, term.order)}
		}
		sum = term
	}
	if step.Value == Partial {
		r.partial, r.partialOf = sum, step.Chunk
		return true, nil
	}
	return true, s.store(r, step.Chunk, sum)
}

// sum numbers the combination of two orders. Numbers below MaxRanks are ranks.
func (s *simulation) sum(left, right int) int {
	pair := [2]int{left, right}
	if _, ok := s.sums[pair]; !ok {
		s.sums[pair] = MaxRanks + len(s.sums)
	}
	return s.sums[pair]
}

// take reads the next segment of each source that is another rank, or nothing
// and returns nil if one of them is not there yet: a step is one pass over all
// of its terms.
func (s *simulation) take(r *rank, from []Source) ([]message, error) {
	got := make([]message, len(from))
	cursor := func(src Source) (*channel, *int) {
		if src.Shared {
			ch := s.channel(src.Rank, Everyone)
			return ch, &ch.read[r.id]
		}
		ch := s.channel(src.Rank, r.id)
		return ch, &ch.read[0]
	}
	// The only source of a Recv has to be a peer; one of a Reduce may be the
	// rank itself.
	local := func(src Source) bool { return src.Rank == r.id && r.program[r.step].Kind == Reduce && !src.Shared }
	var turns []int
	for i, src := range from {
		if local(src) {
			continue
		}
		if err := s.peer(r, src.Rank); err != nil {
			return nil, err
		}
		ch, next := cursor(src)
		if *next == len(ch.sent) {
			for _, undo := range from[:i] {
				if !local(undo) {
					_, next := cursor(undo)
					*next--
				}
			}
			r.waitsFor, r.waitsTo = src.Rank, "to send"
			if src.Shared {
				r.waitsTo = "to send to everyone"
			}
			return nil, nil
		}
		got[i] = ch.sent[*next]
		*next++
		turns = append(turns, got[i].turn)
		r.depth = max(r.depth, got[i].depth)
	}
	slices.Sort(turns)
	for _, turn := range turns {
		r.in = max(r.in+1, turn)
	}
	if len(turns) > 0 {
		r.ready = max(r.ready, r.in)
		s.cost.OnePort = max(s.cost.OnePort, r.in)
	}
	if r.round == 0 {
		s.cost.Ranks[r.id].Read += len(turns)
	}
	return got, nil
}

// expect checks that a message is the one that the step of r is about.
func (r *rank) expect(m message, chunk int, kind Value) error {
	if m.chunk == chunk && m.kind == kind && m.round == r.round {
		return nil
	}
	return fmt.Errorf("got %v of chunk %d of round %d where %v of chunk %d of round %d is expected",
		m.kind, m.chunk, m.round, kind, chunk, r.round)
}

// local is a value that r holds itself.
func (s *simulation) local(r *rank, kind Value, chunk int) (value, error) {
	switch kind {
	case Input:
		if !s.Goal.Input(r.id, chunk) {
			return value{}, fmt.Errorf("input of chunk %d is not on this rank", chunk)
		}
		if r.output[chunk].terms != 0 {
			return value{}, fmt.Errorf("input of chunk %d used after its output was written (they may share memory)", chunk)
		}
		return value{1 << r.id, r.id}, nil
	case Partial:
		if r.partialOf != chunk {
			return value{}, fmt.Errorf("partial of chunk %d is not held", chunk)
		}
		return r.partial, nil
	case Output:
		if r.output[chunk].terms == 0 {
			return value{}, fmt.Errorf("output of chunk %d is not written yet", chunk)
		}
		return r.output[chunk], nil
	}
	return value{}, fmt.Errorf("no such value")
}

func (s *simulation) store(r *rank, chunk int, v value) error {
	if s.Goal.Output(r.id, chunk) == 0 {
		return fmt.Errorf("output of chunk %d is not asked for on this rank", chunk)
	}
	if old := r.output[chunk]; old.terms != 0 && old != v {
		return fmt.Errorf("output of chunk %d written twice, first with the terms of rank %s, then with those of rank %s",
			chunk, ranksOf(old.terms), ranksOf(v.terms))
	}
	r.output[chunk] = v
	return nil
}

// endRound checks what r ends a round with and takes it to the next one.
func (s *simulation) endRound(r *rank) error {
	fail := func(chunk int, format string, args ...any) error {
		return fmt.Errorf("rank %d, round %d, end, output of chunk %d: %s", r.id, r.round, chunk, fmt.Sprintf(format, args...))
	}
	for chunk, have := range r.output {
		want := s.Goal.Output(r.id, chunk)
		switch {
		case want != 0 && have.terms == 0:
			return fail(chunk, "missing")
		case want&^have.terms != 0:
			return fail(chunk, "term of rank %s missing", ranksOf(want&^have.terms))
		case want != have.terms:
			return fail(chunk, "term of rank %s does not belong there", ranksOf(have.terms&^want))
		case want == 0:
			continue
		}
		if s.first[chunk].terms == 0 {
			s.first[chunk] = have
		}
		if first := s.first[chunk]; first.terms == have.terms && first.order != have.order {
			return fail(chunk, "terms combined in another order than on the first rank that has it (the bits may differ)")
		}
	}
	clear(r.output)
	r.partialOf = -1 // a Partial does not outlive its round
	r.depth, r.ready, r.in, r.out = 0, 0, 0, 0
	r.step = 0
	r.round++
	return nil
}

// deadlock follows who waits for whom from the first blocked rank until a rank
// is met again or has finished.
func (s *simulation) deadlock() error {
	var chain []string
	met := make([]bool, len(s.ranks))
	r := s.ranks[slices.IndexFunc(s.ranks, func(r *rank) bool { return !s.done(r) })]
	for !s.done(r) && !met[r.id] {
		met[r.id] = true
		chain = append(chain, fmt.Sprintf("%v waits for rank %d %s", r, r.waitsFor, r.waitsTo))
		r = s.ranks[r.waitsFor]
	}
	if s.done(r) {
		chain = append(chain, fmt.Sprintf("rank %d has finished", r.id))
	}
	return fmt.Errorf("deadlock: %s", strings.Join(chain, "; "))
}

// unread reports a message that is left in a channel at the end.
func (s *simulation) unread() error {
	n := len(s.ranks)
	for i, ch := range s.channels {
		writer, shared := i/(n+1), i%(n+1) == n
		for reader, next := range ch.read {
			if shared && reader == writer || next == len(ch.sent) {
				continue
			}
			if !shared {
				reader = i % (n + 1)
			}
			m := ch.sent[next]
			return fmt.Errorf("rank %d never reads %v of chunk %d of round %d from %s",
				reader, m.kind, m.chunk, m.round, channelName(writer, shared))
		}
	}
	return nil
}

func (s *simulation) peer(r *rank, peer int) error {
	if peer < 0 || peer >= len(s.ranks) {
		return fmt.Errorf("no rank %d (there are %d)", peer, len(s.ranks))
	}
	if peer == r.id {
		return fmt.Errorf("rank %d is the rank itself", peer)
	}
	return nil
}

// channel is the private channel from writer to reader, or with Everyone the
// shared one of writer.
func (s *simulation) channel(writer, reader int) *channel {
	n := len(s.ranks)
	if reader == Everyone {
		reader = n
	}
	return &s.channels[writer*(n+1)+reader]
}

// ranksOf lists a set of ranks.
func ranksOf(set uint64) string {
	var list []string
	for ; set != 0; set &= set - 1 {
		list = append(list, fmt.Sprint(bits.TrailingZeros64(set)))
	}
	return strings.Join(list, ", ")
}
