package kernels

// The Go twins of engine.cuh.

// FlagBytes is what the flags of a slot take in the memory of a rank, which begin as
// zeros: at 0 that a piece is in the slot here, at FlagEmptied that the slot at the peer
// is empty again. FlagGivenUp is what a rank sets them to that has failed.
const (
	FlagBytes   = 128
	FlagEmptied = 64
	FlagGivenUp = ^uint64(0)
)

// Flags are those of slots that follow each other, the first behind the last: what a slot
// has at At.
type Flags struct{ First, Count, At uint32 }

// Turn is the parameter of the kernels engine_*: what one does in a turn.
type Turn struct {
	State, Control, Deadline, Sequence uint64 // as in Exchange
	Outbox, Inbox                      uint64 // the slots' flags at the peer, and here
	Own, Come, Out                     uint64 // to be reduced: the own term, the peer's, and the result
	Bytes                              uint64
	Turn, Piece                        uint64 // of the call, and of the message
	Rank, Ranks, Peer, Op              uint32
	Slots                              uint32
	Says                               Flags // at the peer: what this rank has filled or emptied
	Waits                              Flags // here: what the peer is to have filled or emptied
}
