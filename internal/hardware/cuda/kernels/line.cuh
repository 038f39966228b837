// Low latency: data and flag in one store, so that nobody fences and nobody
// asks whether there is room.
//
// A line is 16, 64 or 128 bytes that arrive together; its last word is the flag,
// the number of the exchange. Which length may be trusted depends on the path
// between two GPUs: 128 over NVLink, 16 anywhere. A warp stores a row of 512
// bytes in one instruction. A row belongs to one block: to block b the rows b,
// b+blocks, ...; in a part's half each block has a region of its own.
//
// An exchange goes both ways between all that take part, if only with a row of
// flags. So a rank that has received exchange e from a peer knows that the peer
// is done with e-1, and may write e+1 over it: two halves are enough, and there
// are no credits. Across launches the same follows from their order on a stream.
// Between the exchanges of a launch the block meets at a barrier, except where
// every row goes to and fro by itself (gather_pass in reduce_line.cuh).
#pragma once
#include "element.cuh"
#include "user.cuh"
#include "watch.cuh"

template <u32 line> struct Row {
	static constexpr u32 lanes = line / 16; // a line
	static constexpr u32 words_a_line = 2 * lanes - 1;
	static constexpr u32 words = lanes_a_warp / lanes * words_a_line;

	// first is where in a row this lane's first word comes from; its second
	// word follows, or is the flag.
	RL_DEVICE u32 first(u32 lane) { return lane / lanes * words_a_line + 2 * (lane % lanes); }
	RL_DEVICE bool flagged(u32 lane) { return lane % lanes == lanes - 1; }
};

template <u32 line> RL_DEVICE u64 rows(u64 bytes) { return (words(bytes) + Row<line>::words - 1) / Row<line>::words; }

// share is how many of n rows are this block's.
RL_DEVICE u32 share(u64 n) { return n > block() ? (u32)((n - block() + blocks() - 1) / blocks()) : 0; }

// Leg is one exchange with one peer, as a block sees it.
struct Leg {
	Pair *out, *in; // this block's region of the half
	u64 flag;
};

struct Line {
	u32 lane, warp, warps;
	u32 region; // rows that the block has in a half

	RL_DEVICE Line of(const Exchange &p)
	{
		Line l;
		l.lane = thread() % lanes_a_warp;
		l.warp = thread() / lanes_a_warp;
		l.warps = threads() / lanes_a_warp;
		l.region = p.region / row_bytes;
		return l;
	}
};

// row_of is where row k of this block in a pass lies in the message.
RL_DEVICE u64 row_of(const Line &l, u32 pass, u32 k) { return block() + ((u64)pass * l.region + k) * blocks(); }

// pass_rows is how many of a message's rows this block moves in a pass: at least
// one, which may be empty, since its flag says that the block has come here.
RL_DEVICE u32 pass_rows(const Line &l, u64 rows, u32 pass)
{
	u64 first = (u64)pass * l.region, mine = share(rows);
	u64 left = mine > first ? mine - first : 1;
	return left < l.region ? (u32)left : l.region;
}

RL_DEVICE Leg leg(const Exchange &p, const Line &l, const Peer &peer, u64 epoch)
{
	u64 at = (epoch & 1) * p.geometry.line_half + (u64)block() * p.region;
	return Leg{(Pair *)(peer.outbox + at), (Pair *)(peer.inbox + at), epoch};
}

// own_pair is this lane's words of a row of s. If s is whole, it is aligned and
// has no word that is cut off.
template <u32 line, bool whole> RL_DEVICE Pair own_pair(const Line &l, const Span &s, u64 row)
{
	u64 at = row * Row<line>::words + Row<line>::first(l.lane);
	Pair v = {0, 0};
	if (whole) {
		const u64 *word = (const u64 *)s.base + at;
		u64 left = s.bytes / 8;
		if (at < left)
			v.lo = word[0];
		if (at + 1 < left && !Row<line>::flagged(l.lane))
			v.hi = word[1];
		return v;
	}
	v.lo = load_word(s, at);
	if (!Row<line>::flagged(l.lane))
		v.hi = load_word(s, at + 1);
	return v;
}

template <u32 line, bool whole> RL_DEVICE void keep_pair(const Line &l, const Span &s, u64 row, Pair v)
{
	u64 at = row * Row<line>::words + Row<line>::first(l.lane);
	if (whole) {
		u64 *word = (u64 *)s.base + at, left = s.bytes / 8;
		if (at < left)
			word[0] = v.lo;
		if (at + 1 < left && !Row<line>::flagged(l.lane))
			word[1] = v.hi;
		return;
	}
	store_word(s, at, v.lo);
	if (!Row<line>::flagged(l.lane))
		store_word(s, at + 1, v.hi);
}

template <u32 line> RL_DEVICE void send_pair(const Line &l, const Leg &w, u32 k, Pair v)
{
	if (Row<line>::flagged(l.lane))
		v.hi = w.flag;
	store_pair(w.out + (u64)k * lanes_a_warp + l.lane, v);
}

// receive waits until all lanes have their pairs of up to n rows: rows k,
// k+step, ... of the region, those below limit. It reports whether they came.
template <u32 line, int n>
RL_DEVICE bool receive(const Exchange &p, const Line &l, const Peer &peer, const Leg &t, u32 k, u32 step, u32 limit,
		       Pair (&v)[n])
{
	Watch w = {0, 0};
	for (;;) {
		bool here = true;
#pragma unroll
		for (int i = 0; i < n; i++)
			if (k + i * step < limit) {
				v[i] = load_pair(t.in + (u64)(k + i * step) * lanes_a_warp + l.lane);
				here = here && (!Row<line>::flagged(l.lane) || v[i].hi == t.flag);
			}
		if (warp_all(here))
			break;
		if (look(w) && !warp_all(l.lane != 0 || !lost(p, w, peer.rank, at_line, t.flag, k)))
			return false;
	}
#pragma unroll
	for (int i = 0; i < n; i++)
		if (k + i * step < limit)
			reload(t.in + (u64)(k + i * step) * lanes_a_warp + l.lane, v[i]);
	return true;
}

// epoch_of is how many exchanges this rank has had with a peer, in any block.
RL_DEVICE u64 epoch_of(const Exchange &p, const Peer &peer)
{
	return ((const State *)p.state)->epoch[block()][peer.rank];
}

// advance counts the exchanges of this call, for this block and for blocks that
// this launch does not have. It is the last thing that a thread does: the barrier
// holds the new counts back until none asks for the old ones.
RL_DEVICE void advance(const Exchange &p, u32 exchanges_a_pass)
{
	State *state = (State *)p.state;
	for (u32 i = 0; i < p.count; i++) {
		const Peer &peer = p.peers[i];
		u64 epoch = epoch_of(p, peer) + (u64)peer.passes * exchanges_a_pass;
		barrier();
		for (u32 b = block() + thread() * blocks(); b < max_blocks; b += threads() * blocks())
			state->epoch[b][peer.rank] = epoch;
	}
}
