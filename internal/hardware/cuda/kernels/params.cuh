// What a kernel is told, and what lies in the memory that kernels share. The Go
// twins are in params.go; a test compares sizes and offsets.
#pragma once
#include "machine.cuh"

enum : u32 {
	max_ranks = 32,	  // of a communicator
	max_blocks = 128, // of a launch
	max_peers = max_ranks - 1,
	lanes_a_warp = 32,
	row_bytes = 512, // that a warp stores at once: a pair a lane
};

enum Op : u32 { op_sum, op_avg, op_min, op_max, op_prod };

// A Part is one rank's share of a window, kept for one peer, which writes there:
//
//	lines    2 halves of line_half bytes; exchanges alternate between them
//	heads    streams x max_blocks counters: slots that the peer has filled
//	credits  streams x max_blocks counters: slots of the peer's part, for this
//	         rank, that the peer has emptied
//	slots    streams x bulk_blocks rings of slots, slot_bytes each
//
// For lines of 16 bytes among longer ones a part has two more halves, and for calls
// without flags three areas: kernels are told of these as if the part began there.
//
// The memory begins as zeros.
enum : u32 {
	streams = 2, // what is to be reduced or copied; what has been reduced
	counters_bytes = streams * max_blocks * sizeof(u64),
};

struct Geometry {
	u64 line_half;	// bytes, a multiple of 512; of an area, where there are no flags
	u32 slots;	// in a ring, a power of two
	u32 slot_bytes; // a multiple of 512
	u32 bulk_blocks; // that have rings
	u32 rings;	 // that a call's pieces go through
};

// Peer is one other rank of a call. Ranges are in bytes.
struct Peer {
	u64 outbox;		      // the peer's part for this rank, as this GPU sees it
	u64 inbox;		      // this rank's part for the peer
	u64 send_at, send_bytes;      // of in, what the peer gets
	u64 recv_at, recv_bytes;      // of out, where what it sends is copied to
	u64 gather_at, gather_bytes;  // of out, where what it has reduced goes
	u32 rank;
	u32 passes;		      // exchanges of lines; both sides say the same
};

// Exchange is a call: everything that goes to a peer goes there straight, and
// what has been reduced is then shown to all, if publish says so.
struct Exchange {
	u64 in, out;
	u64 own_in, own_out, own_bytes; // of in and out: the own term, and the result
	u64 state;			// of this rank, in its GPU's memory
	u64 control;			// in host memory
	u64 deadline;			// in nanoseconds, for each wait
	u64 sequence;			// of the call
	Geometry geometry;
	u32 piece;			// a slot takes 2^piece bytes of a message
	u32 rank, ranks;
	u32 count;			// of peers, in the order of their ranks
	u32 position;			// how many of them come before this rank
	u32 op;
	u32 publish;
	u32 region; // bytes that a block has in a half: line_half / blocks, down to whole rows
	u32 ahead; // by so many groups of rows of lines a warp sends before it reduces; 0: all
	u32 island, islands; // which one this rank leads, and how many there are
	Peer peers[max_peers];
};
static_assert(sizeof(Exchange) <= 4096, "CUDA passes 4096 bytes of parameters");

// State outlives a call. A block counts for itself, so that no block waits for
// another; the counters of blocks that a launch does not have are kept up by
// those that it has.
struct State {
	u32 faulted; // a wait of this rank was given up: all others give up too
	u32 unused[63];
	u64 epoch[max_blocks][max_ranks]; // exchanges of lines with a rank
	u64 sent[streams][max_blocks][max_ranks], received[streams][max_blocks][max_ranks]; // slots
	u64 calls[max_blocks]; // without flags
};

enum Place : u32 { at_line = 1, at_head = 2, at_credit = 3, at_piece = 4, at_room = 5, at_row = 6 };

// Fault says what was waited for when the deadline passed.
struct Fault {
	u64 written; // 1 when the rest is there
	u64 sequence, waited; // nanoseconds
	u32 rank, peer, place, block;
	u64 step; // the exchange, or the slot, counted from the first of the communicator
	u64 chunk; // the row of lines
};

// Control is a page of host memory.
struct Control {
	u64 abort; // set by the host: give up all waits
	u64 unused[15];
	Fault fault;
};
