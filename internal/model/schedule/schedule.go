// Package schedule says who sends, receives and reduces which chunk in which
// order, as data. The executor of a communicator, the prover in this package,
// and whatever prices or simulates a collective all read the same programs.
//
// A collective cuts its message into chunks and every chunk into segments that
// fit one slot of a channel. A program moves one segment of each chunk; it is
// run once a round, until every chunk has been moved. Rounds follow each other
// without a barrier: channels are first in, first out, with a bounded number of
// slots.
package schedule

// Value says which of a rank's three copies of a chunk a step touches.
type Value uint8

const (
	// Input is the rank's own contribution, in the caller's input buffer, in
	// the element type. It may share memory with Output of the same chunk.
	Input Value = iota
	// Partial is a reduction of some ranks' terms, in scratch memory, in the
	// accumulator type. A rank holds at most one Partial at a time.
	Partial
	// Output is a finished value, in the caller's output buffer, in the
	// element type.
	Output
)

func (v Value) String() string {
	switch v {
	case Input:
		return "input"
	case Partial:
		return "partial"
	case Output:
		return "output"
	}
	return "value(?)"
}

// Kind is what a step does.
type Kind uint8

const (
	// Send puts Value of Chunk into the channel to Peer, or with Peer ==
	// Everyone into the rank's shared channel, which each other rank reads.
	Send Kind = iota
	// Recv takes the next segment from Peer's channel (its shared one where
	// Shared is set) and stores it as Output of Chunk.
	Recv
	// Reduce combines the terms of From, in that order, into Value (Partial or
	// Output) of Chunk, in one pass. A term from the rank itself is a local
	// value; one from a peer is the next segment of that peer's channel.
	Reduce
	// Copy makes Output of Chunk from the rank's own Input. It moves nothing
	// where the two share memory.
	Copy
)

func (k Kind) String() string {
	switch k {
	case Send:
		return "send"
	case Recv:
		return "recv"
	case Reduce:
		return "reduce"
	case Copy:
		return "copy"
	}
	return "kind(?)"
}

// Everyone as Peer of a Send names the rank's shared channel.
const Everyone = -1

// Source is one term of a Reduce.
type Source struct {
	Rank   int   // the rank that the term comes from; the executing rank for its own
	Value  Value // what that rank sent (or holds, for the executing rank)
	Shared bool  // read from Rank's shared channel
}

// Step is one instruction of one rank's program.
type Step struct {
	Kind   Kind
	Chunk  int
	Value  Value    // Send: what leaves. Reduce: what is made.
	Peer   int      // Send: reader or Everyone. Recv: writer.
	Shared bool     // Recv: from Peer's shared channel
	From   []Source // Reduce: the terms in the order of combination
}

// Program is what one rank does in one round.
type Program []Step

// Algorithm makes the programs of one way to perform one collective.
type Algorithm struct {
	Name string
	// Chunks is the number of chunks that the collective numbers over all ranks.
	Chunks func(ranks int) int
	// Program is the program of rank among ranks. root is the root of a rooted
	// collective and ignored by the others.
	Program func(ranks, rank, root int) Program
}
