package kernels

// The Go twins of params.cuh: what a kernel is told, and what lies in the memory
// that kernels share. A test compares sizes and offsets.
const (
	MaxRanks  = 32  // of a communicator
	MaxBlocks = 128 // of a launch
	MaxPeers  = MaxRanks - 1

	// RowBytes is what a warp stores in one instruction: halves and slots are
	// multiples of it.
	RowBytes = 512

	// Absent is each byte of an area before data comes (sentinel.cuh).
	Absent = 0xff

	streams       = 2
	countersBytes = streams * MaxBlocks * 8
)

// Geometry says how a part is divided.
type Geometry struct {
	LineHalf   uint64 // bytes of each half for lines, a multiple of RowBytes; of an area, without flags
	Slots      uint32 // in a ring, a power of two
	SlotBytes  uint32 // a multiple of RowBytes
	BulkBlocks uint32 // that have rings
	Rings      uint32 // that a call's pieces go through
}

// ControlBytes is how many bytes at the start of a part must begin as zeros.
func (g Geometry) ControlBytes() uint64 { return 2*g.LineHalf + 2*countersBytes }

// PartBytes is how many bytes a part has.
func (g Geometry) PartBytes() uint64 {
	return g.ControlBytes() + streams*uint64(g.BulkBlocks)*uint64(g.Slots)*uint64(g.SlotBytes)
}

// Peer is one other rank of a call. Ranges are in bytes.
type Peer struct {
	Outbox                uint64 // the peer's part for this rank, as this GPU sees it
	Inbox                 uint64 // this rank's part for the peer
	SendAt, SendBytes     uint64 // of In, what the peer gets
	RecvAt, RecvBytes     uint64 // of Out, where what it sends is copied to
	GatherAt, GatherBytes uint64 // of Out, where what it has reduced goes
	Rank                  uint32
	Passes                uint32 // exchanges of lines; both sides say the same
}

// Exchange is a call: the parameter of every kernel of a collective.
type Exchange struct {
	In, Out                 uint64
	OwnIn, OwnOut, OwnBytes uint64 // of In and Out: the own term, and the result
	State                   uint64 // of this rank, in its GPU's memory
	Control                 uint64 // in host memory
	Deadline                uint64 // in nanoseconds, for each wait
	Sequence                uint64 // of the call
	Geometry                Geometry
	Piece                   uint32 // a slot takes 2^Piece bytes of a message
	Rank, Ranks             uint32
	Count                   uint32 // of peers, in the order of their ranks
	Position                uint32 // how many of them come before this rank
	Op                      uint32 // a dtype.Op
	Publish                 uint32
	Region                  uint32 // bytes that a block has in a half: LineHalf / blocks, down to whole rows
	Ahead                   uint32 // by so many groups of rows of lines a warp sends before it reduces; 0: all
	Island, Islands         uint32 // which one this rank leads, and how many there are
	Peers                   [MaxPeers]Peer
}

// State outlives a call. It begins as zeros, in memory of the GPU.
type State struct {
	Faulted  uint32 // a wait of this rank was given up: all others give up too
	_        [63]uint32
	Epoch    [MaxBlocks][MaxRanks]uint64          // exchanges of lines with a rank
	Sent     [streams][MaxBlocks][MaxRanks]uint64 // slots
	Received [streams][MaxBlocks][MaxRanks]uint64
	Calls    [MaxBlocks]uint64 // without flags
}

// Place says what is waited for.
type Place uint32

const (
	AtLine   Place = 1 + iota // a row of lines
	AtHead                    // a slot to be filled
	AtCredit                  // a slot to be emptied
	AtPiece                   // a piece to be copied, see Turn
	AtRoom                    // a piece to be copied away
	AtRow                     // a row without flags
)

// Fault says what was waited for when the deadline passed.
type Fault struct {
	Written    uint64 // 1 when the rest is there
	Sequence   uint64
	Waited     uint64 // nanoseconds
	Rank, Peer uint32
	Place      Place
	Block      uint32
	Step       uint64 // the exchange, or the slot, counted from the first of the communicator
	Chunk      uint64 // the row of lines
}

// Control is a page of host memory, which begins as zeros.
type Control struct {
	Abort uint64 // set by the host: give up all waits
	_     [15]uint64
	Fault Fault
}
