package kernels

// The Go twins of engine.cuh.

// TurnBytes is what the counters of a slot take in the memory of a rank. They
// begin as zeros.
const TurnBytes = 128

// Turn is the parameter of the kernels engine_*: one turn of a slot.
type Turn struct {
	State, Control, Deadline, Sequence uint64 // as in Exchange
	Outbox, Inbox                      uint64 // the slot's counters at the peer, and here
	Turns                              uint64 // that the slot has had, counted in the GPU's memory
	Own, Come, Out                     uint64 // to be reduced: the own term, the peer's, and the result
	Bytes                              uint64
	Piece                              uint64 // its number in the message
	Rank, Ranks, Peer, Op              uint32
}
