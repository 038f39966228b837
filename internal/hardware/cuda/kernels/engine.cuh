// Bulk between two ranks by copy engines, through slots in host memory. Engines move
// both directions at once faster than loads and stores of kernels do, but they neither
// wait nor count: kernels of a few threads do that.
//
// A call goes through turns, the same on both ranks, whichever of them has something to
// send, and each turn through the next slot. Streams share it out:
//
//	out	copy the turn's piece to the slot in the peer's memory, say so, and wait for
//		room for the next
//	in	say that the slot of the lane's last turn is empty, wait for this one's piece, and
//		copy it to the GPU
//	sums	reduce it
//
// There are two of out and of in, the lanes, which take turns: what one does between its
// copies is done while the other's is on its way. Kernels are few and small, because other
// work has the rest of the GPU: a thread that waits keeps a multiprocessor from a kernel
// that needs all of one. Between calls all slots are empty.
#pragma once
#include "element.cuh"
#include "user.cuh"
#include "watch.cuh"

// A slot has flag_bytes of host memory in each rank, which the peer writes and the
// rank clears: a piece is in the slot here, and the slot at the peer is empty again.
// Each has a cache line of its own.
enum : u32 { flag_bytes = 128, flag_emptied = 64 };

// What a flag says. given_up: the peer has failed, and what it copies since may be
// anything.
static constexpr u64 flag_set = 1, given_up = ~0ull;

// Flags are those of slots that follow each other, the first behind the last: what a slot
// has at flag at.
struct Flags {
	u32 first, count, at;
};

// Turn is what a kernel does in a turn.
struct Turn {
	u64 state, control, deadline, sequence; // as in Exchange
	u64 outbox, inbox;			// the slots' flags at the peer, and here
	u64 own, come, out;			// to be reduced: the own term, the peer's, and the result
	u64 bytes;
	u64 turn, piece; // of the call, and of the message; behind the last turn turns go on
	u32 rank, ranks, peer, op;
	u32 slots;
	Flags says;  // at the peer: what this rank has filled or emptied
	Flags waits; // here: what the peer is to have filled or emptied
};

RL_DEVICE bool faulted(const Turn &p) { return load_relaxed(&((State *)p.state)->faulted) != 0; }

// give_up tells the peer, again behind each copy: a result that has not been made must not
// be taken for one.
RL_DEVICE void give_up(const Turn &p)
{
	for (u32 i = 0; i < p.slots; i++) {
		store_release((u64 *)(p.outbox + i * flag_bytes), given_up);
		store_release((u64 *)(p.outbox + i * flag_bytes + flag_emptied), given_up);
	}
}

RL_DEVICE u64 flag(const Turn &p, const Flags &f, u32 i) { return (u64)((f.first + i) % p.slots) * flag_bytes + f.at; }

// told waits until the peer has set a flag, and clears it.
RL_DEVICE bool told(const Turn &p, u64 *here)
{
	Watch w = {0, 0};
	u64 says;
	while ((says = load_acquire(here)) == 0)
		if (look(w) && lost(p, w, p.peer, p.waits.at == flag_emptied ? at_room : at_piece, p.turn, p.piece))
			return false;
	if (says == flag_set) {
		store_relaxed(here, 0);
		return true;
	}
	swap_if(&((State *)p.state)->faulted, 0, 1);
	return false;
}

// wait_turn goes behind a copy to a slot, before one from a slot, and behind all of a call:
// a thread for each flag.
RL_DEVICE void wait_turn(const Turn &p)
{
	const u32 i = thread();
	if (i >= p.says.count && i >= p.waits.count)
		return;
	bool well = !faulted(p);
	if (well && i < p.says.count)
		store_release((u64 *)(p.outbox + flag(p, p.says, i)), flag_set);
	if (well && i < p.waits.count)
		well = told(p, (u64 *)(p.inbox + flag(p, p.waits, i)));
	if (!well)
		give_up(p);
}

// reduce_by combines the two terms, which gives the same bits in either order,
// with n vectors of 16 bytes in flight in each thread.
template <class T, bool whole, u32 n> RL_DEVICE void reduce_by(const Turn &p)
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

template <class T> RL_DEVICE void reduce_turn(const Turn &p)
{
	if (faulted(p)) {
		if (block() == 0 && thread() == 0)
			give_up(p);
	} else if (((p.own | p.out | p.bytes) & 15) == 0) {
		reduce_by<T, true, 4>(p);
	} else {
		reduce_by<T, false, 1>(p);
	}
}
