// The schedules "ring" in bulk: each rank sends to the next one only and receives
// from the one before it, so that no link carries more than one stream each way.
// AllReduce is a reduce-scatter and then an all-gather; each alone is a
// collective too.
//
// Ranks stand on the ring in any order; a chunk is that of the rank of its number.
//
// A message is n chunks; piece k of every chunk goes round together. What has
// been summed up on the way travels in the accumulator type, so that f16 and
// bf16 are rounded once, at the end: a piece is at most half a slot then.
#pragma once
#include "slot.cuh"

// Wide says whether a partial result takes twice the bytes of its elements.
template <class T> struct Wide {
	static constexpr bool yes = false;
};
template <> struct Wide<F16> {
	static constexpr bool yes = true;
};
template <> struct Wide<BF16> {
	static constexpr bool yes = true;
};

// load_partial fills the accumulators of vector i of a slot.
template <class T> RL_DEVICE void load_partial(const Pair *slot, u32 i, typename T::Acc (&a)[2][T::per_word])
{
	if constexpr (Wide<T>::yes) {
#pragma unroll
		for (u32 half = 0; half < 2; half++) {
			Pair v = load_pair(slot + 2 * i + half);
			F32::unpack(v.lo, a[half]);
			F32::unpack(v.hi, a[half] + 2);
		}
	} else {
		Pair v = load_pair(slot + i);
		T::unpack(v.lo, a[0]);
		T::unpack(v.hi, a[1]);
	}
}

template <class T> RL_DEVICE void store_partial(Pair *slot, u32 i, const typename T::Acc (&a)[2][T::per_word])
{
	if constexpr (Wide<T>::yes) {
#pragma unroll
		for (u32 half = 0; half < 2; half++)
			slot[2 * i + half] = Pair{F32::pack(a[half]), F32::pack(a[half] + 2)};
	} else {
		slot[i] = Pair{T::pack(a[0]), T::pack(a[1])};
	}
}

// Hop is one step of a rank: what it does with a piece of a chunk.
struct Hop {
	bool receives, sends, reduces, finishes; // finishes: what it has reduced is the result
	bool partial;				 // what it receives has been summed up before
	bool keeps;				 // what passes through belongs to its result
	u32 chunk, piece;
};

// Lap is how a block goes through its pieces: a few of them at a time, so that
// one travels while another is worked on.
enum : u32 { lap_pieces = 2 };

// hops is how many steps a piece takes of a rank.
template <bool reduces, bool gathers> RL_DEVICE u32 hops(u32 ranks)
{
	return (reduces ? ranks - 1 : 0) + (gathers ? ranks - 1 : 0) + 1;
}

// hop_of is step s of a block that has mine pieces of each chunk.
template <bool reduces, bool gathers> RL_DEVICE Hop hop_of(const Exchange &p, u32 mine, u32 s)
{
	const u32 n = p.ranks, each = hops<reduces, gathers>(n), full = lap_pieces * each;
	u32 lap = s / full, left = mine - lap * lap_pieces, wide = left < lap_pieces ? left : lap_pieces;
	u32 in_lap = s - lap * full, k = in_lap / wide;
	Hop h;
	h.piece = lap * lap_pieces + in_lap % wide;
	h.receives = k > 0;
	h.sends = k < each - 1;
	h.reduces = reduces && k > 0 && k < n;
	h.finishes = h.reduces && k == n - 1;
	h.partial = h.reduces && k > 1;
	h.keeps = gathers && (k >= n || !reduces);
	// A reduction's chunk k hops before its owner; then those that come round.
	u32 back = reduces ? (k < n ? k + 1 : k + 1 - n) : k;
	h.chunk = back % n == 0 ? p.rank : p.peers[n - 1 - back].rank;
	return h;
}

template <class T, bool whole>
RL_DEVICE void hop(const Exchange &p, const Role &r, const Hop &h, const Span &in, const Span &out, const Pair *from,
		   Pair *to)
{
	const u32 size = vectors(in), divisor = p.op == op_avg ? p.ranks : 1;
	for (u32 i = r.thread; i < size; i += r.threads) {
		if (!h.reduces) {
			Pair v = h.receives ? load_pair(from + i) : load_vector<whole>(in, i);
			if (h.keeps)
				store_vector<whole>(out, i, v);
			if (h.sends)
				to[i] = v;
			continue;
		}
		typename T::Acc a[2][T::per_word];
		if (h.partial) {
			load_partial<T>(from, i, a);
		} else {
			Pair v = load_pair(from + i);
			T::unpack(v.lo, a[0]);
			T::unpack(v.hi, a[1]);
		}
		Pair own = load_vector<whole>(in, i);
		u64 w[2] = {own.lo, own.hi};
		add_terms<T>(p.op, false, a, w);
		if (!h.finishes) {
			store_partial<T>(to, i, a);
			continue;
		}
		Pair v = {result<T>(a[0], divisor), result<T>(a[1], divisor)};
		store_vector<whole>(out, i, v);
		if (h.sends)
			to[i] = v;
	}
}

// ring goes through all pieces of this block. peers are all other ranks in the order
// of the ring: peers[0] is the next one, with the bytes of all chunks as send_bytes,
// and the last the one before. own_bytes is a chunk. In a reduce-scatter out is the
// own chunk alone, in an all-gather in is.
template <class T, bool reduces, bool gathers> RL_DEVICE void ring(const Exchange &p)
{
	RL_SHARED u32 gone[1];
	if (thread() == 0)
		gone[0] = 0;
	barrier();
	const Role r = Role::of(1, gone);
	const Peer &next = p.peers[0], &prev = p.peers[p.ranks - 2];
	const u64 total = next.send_bytes, chunk = p.own_bytes;
	// As many blocks as rings here: what goes round is more than the pieces of a message.
	const Ring to = outgoing(p, next, 0, 0), from = incoming(p, prev, 0, 0);
	const u64 sent = to.at, received = from.at;
	const u32 mine = pieces(p, chunk), each = hops<reduces, gathers>(p.ranks), steps = mine * each;

	// Slots that this block has sent and received before a step.
	auto before = [&](u32 s, u32 first) {
		u32 full = lap_pieces * each, lap = s / full, left = mine - lap * lap_pieces;
		u32 wide = left < lap_pieces ? left : lap_pieces, in_lap = s - lap * full;
		u32 skip = first * wide, moved = in_lap < skip ? 0 : in_lap - skip, most = wide * (each - 1);
		return lap * lap_pieces * (each - 1) + (moved < most ? moved : most);
	};
	// The last chunks may be shorter, or empty; their pieces travel all the same.
	auto part = [&](u64 buffer, u64 at, const Hop &h) {
		u64 begin = h.chunk * chunk, size = begin < total ? (total - begin < chunk ? total - begin : chunk) : 0;
		u64 offset = (u64)(block() + h.piece * blocks()) << p.piece;
		if (offset >= size)
			return span(buffer, at, 0);
		u64 left = size - offset, most = 1ull << p.piece;
		return span(buffer, at + offset, left < most ? left : most);
	};
	bool done = pump<false>(
		r, steps,
		[&](u32 s) {
			if (r.lane != 0)
				return true;
			Hop h = hop_of<reduces, gathers>(p, mine, s);
			return (!h.receives || at_least(p, from.head, received + before(s, 1) + 1, prev, at_head)) &&
			       (!h.sends || has_room(p, to, sent + before(s, 0), next));
		},
		[&](u32 s) {
			Hop h = hop_of<reduces, gathers>(p, mine, s);
			Span in = part(p.in, reduces ? h.chunk * chunk : 0, h);
			Span out = part(p.out, gathers ? h.chunk * chunk : 0, h);
			const Pair *source = slot(p.geometry, from, received + before(s, 1));
			Pair *target = slot(p.geometry, to, sent + before(s, 0));
			if (whole(in) && whole(out))
				hop<T, true>(p, r, h, in, out, source, target);
			else
				hop<T, false>(p, r, h, in, out, source, target);
		},
		[&](u32 s) {
			if (r.lane != 0)
				return;
			Hop h = hop_of<reduces, gathers>(p, mine, s);
			fence_system();
			if (h.sends)
				store_relaxed((u64 *)to.head, sent + before(s, 0) + 1);
			if (h.receives)
				store_relaxed((u64 *)from.credit, received + before(s, 1) + 1);
		});
	if (!done)
		return;
	barrier(barrier_meet, everyone(r));
	if (r.thread == 0) {
		State *state = (State *)p.state;
		state->sent[0][block()][next.rank] = sent + (u64)mine * (each - 1);
		state->received[0][block()][prev.rank] = received + (u64)mine * (each - 1);
	}
}
