package schedule

import "fmt"

// MaxRanks is the largest number of ranks that the prover takes: a set of terms
// is a uint64 with one bit for each rank.
const MaxRanks = 64

// Goal says what a collective starts from and what it must leave behind.
type Goal struct {
	// Input reports whether rank's input buffer holds chunk.
	Input func(rank, chunk int) bool
	// Output is the set of terms (bit r is rank r's Input of that chunk) that
	// rank must end with as Output of chunk. 0: rank has no such Output, and
	// must not write it.
	Output func(rank, chunk int) uint64
}

// Claim is what Prove proves: that Programs, one for each rank, reach Goal.
type Claim struct {
	Programs []Program
	Chunks   int
	Goal     Goal
	// Slots is the number of segments that a channel holds. A Send waits for a
	// free slot; one of a shared channel is free when every other rank has read
	// it.
	Slots int
	// Rounds is how often the programs run, back to back. At least 3 are
	// simulated: one to fill the channels, one to meet the leftovers of the
	// first, one to show that it goes on like this.
	Rounds int
}

// Traffic is what one rank moves through channels in one round, in chunks.
type Traffic struct {
	Written int // Sends; one into a shared channel counts once
	Partial int // of these in the accumulator type
	Read    int
}

// Cost is the cost of one round.
type Cost struct {
	// Steps is the length of the longest chain of messages, each of which its
	// sender sends after it has received the one before: the latency where a
	// rank sends and receives any number of messages at once.
	Steps int
	// OnePort is the number of steps where a rank writes at most one message and
	// reads at most one in a step. A message may be read in the step in which it
	// is written.
	OnePort int
	// Ranks is the traffic of each rank.
	Ranks []Traffic
}

// Programs returns the program of every rank.
func (a Algorithm) Programs(ranks, root int) []Program {
	programs := make([]Program, ranks)
	for rank := range programs {
		programs[rank] = a.Program(ranks, rank, root)
	}
	return programs
}

func (s Step) String() string {
	switch s.Kind {
	case Send:
		if s.Peer == Everyone {
			return fmt.Sprintf("send %v of chunk %d to everyone", s.Value, s.Chunk)
		}
		return fmt.Sprintf("send %v of chunk %d to rank %d", s.Value, s.Chunk, s.Peer)
	case Recv:
		return fmt.Sprintf("recv chunk %d from %s", s.Chunk, channelName(s.Peer, s.Shared))
	case Reduce:
		return fmt.Sprintf("reduce chunk %d into %v", s.Chunk, s.Value)
	}
	return fmt.Sprintf("%v chunk %d", s.Kind, s.Chunk)
}

func channelName(writer int, shared bool) string {
	if shared {
		return fmt.Sprintf("the shared channel of rank %d", writer)
	}
	return fmt.Sprintf("rank %d", writer)
}

// Prove runs the programs on bounded channels and returns their cost, or an
// error that names the rank, round, step and chunk at which they fail: a
// deadlock, a message that is not the one that its reader expects, a term
// counted twice or missing, a value used that is not there, an Input used after
// Output of the same chunk (they may share memory), an Output missing, not
// asked for or written again with other content, a message that nobody reads,
// a peer or chunk that does not exist. It also fails if two ranks end with the
// same terms combined in different orders, since their bits could differ.
//
// One run proves all interleavings: a rank's steps are done in order, each
// waits only for a segment or a free slot of named channels, and nothing that
// another rank does can take either away again. So which steps are reached, and
// what every message holds, does not depend on timing.
func (c Claim) Prove() (Cost, error) {
	n := len(c.Programs)
	if n < 1 || n > MaxRanks {
		return Cost{}, fmt.Errorf("prove schedule: %d ranks (1 to %d can be proved)", n, MaxRanks)
	}
	if c.Slots < 1 {
		return Cost{}, fmt.Errorf("prove schedule: a channel of %d slots moves nothing (at least 1)", c.Slots)
	}
	s := &simulation{
		Claim:    c,
		ranks:    make([]*rank, n),
		channels: make([]channel, n*(n+1)),
		sums:     map[[2]int]int{},
		first:    make([]value, c.Chunks),
		cost:     Cost{Ranks: make([]Traffic, n)},
	}
	s.Rounds = max(c.Rounds, 3)
	for id := range s.ranks {
		s.ranks[id] = &rank{id: id, program: c.Programs[id], partialOf: -1, output: make([]value, c.Chunks)}
	}
	for i := range s.channels {
		readers := 1
		if i%(n+1) == n {
			readers = n
		}
		s.channels[i].read = make([]int, readers)
	}
	if err := s.run(); err != nil {
		return Cost{}, fmt.Errorf("prove schedule: %w", err)
	}
	return s.cost, nil
}
