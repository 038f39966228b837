package kernels

// The Go twins of engine.cuh.

// FlagBytes is what the flags of a slot take in the memory of a rank, which begin as
// zeros: at 0 that a piece is in the slot here, at FlagEmptied that the slot at the peer
// is empty again. FlagSet is what they are set to.
const (
	FlagBytes   = 128
	FlagEmptied = 64
	FlagSet     = 1
)

// Turn is the parameter of the kernels engine_*: what one does in a turn. Slots are
// counted from 1; 0 is none.
type Turn struct {
	State, Control, Deadline, Sequence uint64 // as in Exchange
	Outbox, Inbox                      uint64 // the slots' flags at the peer, and here
	Word                               uint64 // in the GPU's memory: what is copied into a flag
	Own, Come, Out                     uint64 // to be reduced: the own term, the peer's, and the result
	Bytes                              uint64
	Turn, Piece                        uint64 // of the call, and of the message
	Rank, Ranks, Peer, Op              uint32
	Slots                              uint32
	Emptied                            uint32 // that this rank has copied the piece away from
	Full                               uint32 // that the peer is to fill
	Empty                              uint32 // that the peer is to copy the piece away from
}
