// Bulk between two ranks by copy engines, through rings of slots in host memory.
// Engines move both directions at once faster than loads and stores of kernels
// do, but they neither wait nor count: kernels between the copies do that.
//
// Slots take turns: each has a stream of its own, in which every turn is
//
//	copy    a piece of in to the slot in the peer's memory
//	meet    say that it is there, and wait until the peer's is
//	copy    that from this rank's slot to the GPU
//	part    say that the slot is empty, reduce, and wait until the peer's slot
//		is: there is room then for the next turn
//
// Both ranks go through the same turns, whichever of them has something to send.
// Between calls all slots are empty.
#pragma once
#include "element.cuh"
#include "user.cuh"
#include "watch.cuh"

// A slot has turn_bytes of counters in each rank's host memory, which the peer
// writes: turns that it has copied a piece for, and turns whose piece it has
// copied away. Each has a cache line of its own.
enum : u32 { turn_bytes = 128, turn_emptied = 64 };

// given_up in a counter: the peer has failed, and what it has copied since may lie
// where this rank was still reading.
static constexpr u64 given_up = ~0ull;

// Turn is one turn of a slot.
struct Turn {
	u64 state, control, deadline, sequence; // as in Exchange
	u64 outbox, inbox;			// the slot's counters at the peer, and here
	u64 turns;				// that the slot has had, counted in the GPU's memory
	u64 own, come, out;			// to be reduced: the own term, the peer's, and the result
	u64 bytes;
	u64 piece; // its number in the message
	u32 rank, ranks, peer, op;
};

RL_DEVICE bool faulted(const Turn &p) { return load_relaxed(&((State *)p.state)->faulted) != 0; }

// give_up tells the peer before anything is copied over what it may be reading.
RL_DEVICE void give_up(const Turn &p)
{
	store_release((u64 *)p.outbox, given_up);
	store_release((u64 *)(p.outbox + turn_emptied), given_up);
}

// tell counts turn number turn for the peer.
RL_DEVICE void tell(const Turn &p, u32 counter, u64 turn)
{
	fence_system();
	store_relaxed((u64 *)(p.outbox + counter), turn + 1);
}

// told waits until the peer has counted the same.
RL_DEVICE bool told(const Turn &p, u32 counter, u64 turn, u32 place)
{
	const u64 *here = (const u64 *)(p.inbox + counter);
	Watch w = {0, 0};
	u64 count;
	while ((count = load_acquire(here)) <= turn)
		if (look(w) && lost(p, w, p.peer, place, turn, p.piece)) {
			give_up(p);
			return false;
		}
	if (count != given_up)
		return true;
	swap_if(&((State *)p.state)->faulted, 0, 1);
	give_up(p);
	return false;
}

RL_DEVICE void meet(const Turn &p)
{
	if (thread() != 0)
		return;
	if (faulted(p)) {
		give_up(p);
		return;
	}
	u64 turn = *(const u64 *)p.turns;
	tell(p, 0, turn);
	told(p, 0, turn, at_piece);
}

// part has the first thread of the launch end the turn; others do work meanwhile.
template <class Work> RL_DEVICE void part(const Turn &p, Work work)
{
	const bool first = block() == 0 && thread() == 0;
	if (faulted(p)) {
		if (first)
			give_up(p);
		return;
	}
	u64 turn = 0;
	if (first) {
		// The slot is free at once, not when the work is done.
		turn = *(const u64 *)p.turns;
		tell(p, turn_emptied, turn);
	}
	work();
	if (first && told(p, turn_emptied, turn, at_room))
		*(u64 *)p.turns = turn + 1;
}

// reduce_turn combines the two terms, which gives the same bits in either order,
// with n vectors of 16 bytes in flight in each thread.
template <class T, bool whole, u32 n> RL_DEVICE void reduce_turn(const Turn &p)
{
	const Span own = span(p.own, 0, p.bytes), out = span(p.out, 0, p.bytes);
	const Pair *come = (const Pair *)p.come; // aligned, with room for whole vectors
	const u32 size = (u32)((p.bytes + 15) / 16), step = blocks() * threads();
	const u32 divisor = p.op == op_avg ? p.ranks : 1;
	for (u32 i = block() * threads() + thread(); i < size; i += n * step) {
		Pair a[n], b[n];
#pragma unroll
		for (u32 j = 0; j < n; j++) {
			u32 at = i + j * step;
			if (at >= size)
				continue;
			b[j] = come[at];
			if (whole)
				a[j] = ((const Pair *)own.base)[at];
			else
				a[j] = Pair{load_word(own, 2 * at), load_word(own, 2 * at + 1)};
		}
#pragma unroll
		for (u32 j = 0; j < n; j++) {
			u32 at = i + j * step;
			if (at >= size)
				continue;
			u64 first[2] = {a[j].lo, a[j].hi}, second[2] = {b[j].lo, b[j].hi};
			typename T::Acc sum[2][T::per_word];
			add_terms<T>(p.op, true, sum, first);
			add_terms<T>(p.op, false, sum, second);
			Pair v = {result<T>(sum[0], divisor), result<T>(sum[1], divisor)};
			if (whole) {
				((Pair *)out.base)[at] = v;
			} else {
				store_word(out, 2 * at, v.lo);
				store_word(out, 2 * at + 1, v.hi);
			}
		}
	}
}

template <class T> RL_DEVICE void reduce_part(const Turn &p)
{
	part(p, [&] {
		if (((p.own | p.out | p.bytes) & 15) == 0)
			reduce_turn<T, true, 4>(p);
		else
			reduce_turn<T, false, 1>(p);
	});
}
