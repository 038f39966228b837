// The probe: what a driver permits between two GPUs is tried before it is
// trusted. Every warp works for itself on rows of its own, so that no barrier
// waits for a row that never comes; every wait looks at the clock.
//
// A share is what a rank keeps for one peer, where a Part will be:
//
//	pushed   area bytes: the peer writes, the owner verifies
//	offered  area bytes: the owner writes, the peer reads and verifies
//	flags    a line of 128 bytes for each warp, then one for the ping-pong
#pragma once
#include "params.cuh"

enum : u32 { probe_flag = 128 };

// Turns are who does what in a step.
enum Turns : u32 { first_pushes = 1, second_pushes = 2, first_verifies = 4, second_verifies = 8 };

// Way is the memory that two ranks share.
struct Way {
	u64 outbox; // the peer's share for this rank, as this GPU sees it
	u64 inbox;  // this rank's share for the peer
	u64 seed_out, seed_in; // of the patterns that go to the peer, and come from it
	u32 first;  // this rank goes first; the peer goes second
	u32 skip;   // nothing is to be done with this peer
};

struct Probe {
	u64 results;  // a Seen for each warp of each peer
	u64 deadline; // in nanoseconds, for each wait
	u64 budget;	  // in nanoseconds, of lines and of pings
	u64 area;	  // bytes, a multiple of a row of each warp
	u32 count;	  // of peers
	u32 blocks;	  // a peer
	u32 step;	  // from 1: what a flag says when it is the turn of this launch
	u32 turns;	  // who does what
	u32 passes;	  // over the area
	u32 unused;
	Way ways[max_peers];
};
static_assert(sizeof(Probe) <= 4096, "CUDA passes 4096 bytes of parameters");

// Seen is what one warp saw. It begins as zeros.
struct Seen {
	u32 done;		 // the last step that ran to its end
	u32 late;		 // the step whose wait was given up
	u64 pushed_wrong, pulled_wrong; // rows
	u64 wrong_at, wrong_is, wrong_was; // a word of such a row
	u64 lines;		 // rows of lines that came
	u64 torn64, torn128;	 // lines of that length that came in parts
	u64 pings, nanoseconds;	 // round trips, and what they took
};

RL_DEVICE u64 pattern(u64 seed, u64 word)
{
	u64 x = seed + word * 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

RL_DEVICE bool same(Pair a, Pair b) { return a.lo == b.lo && a.hi == b.hi; }

// Prober is a warp and the peer that it works with.
struct Prober {
	const Probe &p;
	const Way &way;
	Seen *seen;
	u32 lane, warp, warps; // of all that work with this peer
};

RL_DEVICE Prober prober(const Probe &p)
{
	u32 peer = block() / p.blocks, each = threads() / lanes_a_warp, warps = p.blocks * each;
	u32 warp = block() % p.blocks * each + thread() / lanes_a_warp;
	return Prober{p, p.ways[peer], (Seen *)p.results + (u64)peer * warps + warp, thread() % lanes_a_warp, warp, warps};
}

RL_DEVICE u64 *flag(const Prober &w, u64 share, u32 number) { return (u64 *)(share + 2 * w.p.area + (u64)number * probe_flag); }

// Patience counts the time of one wait.
struct Patience {
	u64 since;
	u32 polls;
};

// out reports, once in a while, that the wait has come to its deadline.
RL_DEVICE bool out(const Prober &w, Patience &wait)
{
	pause();
	if (++wait.polls % 256 != 0)
		return false;
	u64 t = now();
	if (wait.since == 0)
		wait.since = t;
	return t - wait.since > w.p.deadline;
}

RL_DEVICE Pair expected(u64 seed, u64 pair) { return Pair{pattern(seed, 2 * pair), pattern(seed, 2 * pair + 1)}; }

// verify counts the rows of an area that are not the pattern of seed.
RL_DEVICE u64 verify(const Prober &w, u64 area, u64 seed)
{
	u64 wrong = 0;
	for (u64 row = w.warp; row < w.p.area / row_bytes; row += w.warps) {
		u64 at = row * lanes_a_warp + w.lane;
		Pair is = load_pair((const Pair *)area + at), want = expected(seed, at);
		if (!same(is, want)) {
			bool low = is.lo != want.lo;
			w.seen->wrong_at = 2 * at + !low;
			w.seen->wrong_is = low ? is.lo : is.hi;
			w.seen->wrong_was = low ? want.lo : want.hi;
		}
		wrong += !warp_all(same(is, want));
	}
	return wrong;
}

// write puts the pattern of seed into an area.
RL_DEVICE void write(const Prober &w, u64 area, u64 seed)
{
	for (u64 row = w.warp; row < w.p.area / row_bytes; row += w.warps) {
		u64 at = row * lanes_a_warp + w.lane;
		store_pair((Pair *)area + at, expected(seed, at));
	}
}

// offer prepares what peers read, and flags.
RL_DEVICE void offer(const Probe &p)
{
	Prober w = prober(p);
	if (w.way.skip)
		return;
	write(w, w.way.inbox + p.area, ~w.way.seed_out);
	if (w.lane == 0)
		store_relaxed(flag(w, w.way.inbox, w.warp), 0);
	if (w.warp == 0 && w.lane == 0)
		store_relaxed(flag(w, w.way.inbox, w.warps), 0);
	fence_system();
}

// check has those whose turn it is push a pattern and read the other's, or
// verify what the other has pushed: the host has seen its kernel end, so all is
// there, or is given up.
RL_DEVICE void check(const Probe &p)
{
	Prober w = prober(p);
	if (w.way.skip)
		return;
	u64 seed = (u64)p.step << 32, pushed = 0, pulled = 0;
	if (p.turns & (w.way.first ? first_pushes : second_pushes)) {
		write(w, w.way.outbox, w.way.seed_out + seed);
		fence_system();
		warp_all(true);
		if (w.lane == 0) {
			fence_system();
			store_release(flag(w, w.way.outbox, w.warp), p.step);
		}
		pulled = verify(w, w.way.outbox + p.area, ~w.way.seed_in);
	}
	if (p.turns & (w.way.first ? first_verifies : second_verifies)) {
		Patience wait = {0, 0};
		while (load_acquire(flag(w, w.way.inbox, w.warp)) != p.step)
			if (out(w, wait)) {
				w.seen->late = p.step;
				return;
			}
		pushed = verify(w, w.way.inbox, w.way.seed_in + seed);
	}
	if (w.lane == 0) {
		w.seen->pushed_wrong += pushed;
		w.seen->pulled_wrong += pulled;
		w.seen->done = p.step;
	}
}

// torn counts the lines of a row, of that many lanes each, whose last word has
// come while others have not.
RL_DEVICE u32 torn(const Prober &w, u32 lanes, bool flagged, bool whole)
{
	u32 found = 0;
	for (u32 first = 0; first < lanes_a_warp; first += lanes)
		found += warp_all(w.lane != first + lanes - 1 || flagged) && !warp_all(w.lane - first >= lanes || whole);
	return found;
}

// stress sends row after row to and fro, each stored by one instruction of the
// warp, and looks with one load of the warp whether lines come whole. A row says
// in each hi which one it is, and whether it is the last, which the first decides.
RL_DEVICE void stress(const Probe &p)
{
	Prober w = prober(p);
	if (w.way.skip)
		return;
	u64 start = now(), torn64 = 0, torn128 = 0, n = 0;
	for (bool last = false; !last;) {
		u64 at = ((u64)(++n & 1) * w.warps + w.warp) * lanes_a_warp + w.lane;
		last = warp_all(w.way.first && now() - start > p.budget);
		Pair row = {pattern(w.way.seed_out + n, w.lane), 2 * n + last};
		store_pair((Pair *)w.way.outbox + at, row);
		u64 want = pattern(w.way.seed_in + n, w.lane);
		Patience wait = {0, 0};
		for (bool come = false; !come;) {
			Pair got = load_pair((const Pair *)w.way.inbox + at);
			if (!warp_all(got.hi / 2 != n)) { // something has come
				reload((const Pair *)w.way.inbox + at, got);
				bool whole = got.hi / 2 == n && got.lo == want;
				come = warp_all(whole);
				if (!come) {
					torn64 += torn(w, 4, got.hi / 2 == n, whole);
					torn128 += torn(w, 8, got.hi / 2 == n, whole);
				} else if (!w.way.first)
					last = warp_all(got.hi & 1);
			}
			if (!come && !warp_all(!out(w, wait))) {
				w.seen->late = p.step;
				return;
			}
		}
	}
	if (w.lane == 0) {
		w.seen->lines = n;
		w.seen->torn64 = torn64;
		w.seen->torn128 = torn128;
		w.seen->done = p.step;
	}
}

// ping sends a counter to the only peer and back, passes times, and takes the
// time from the second on. One thread works.
RL_DEVICE void ping(const Probe &p)
{
	Prober w = prober(p);
	if (block() != 0 || thread() != 0)
		return;
	u64 *there = flag(w, w.way.outbox, w.warps), *here = flag(w, w.way.inbox, w.warps);
	u64 start = 0;
	for (u64 n = 1; n <= p.passes; n++) {
		if (w.way.first)
			store_relaxed(there, n);
		Patience wait = {0, 0};
		while (load_relaxed(here) != n)
			if (out(w, wait)) {
				w.seen->late = p.step;
				return;
			}
		if (!w.way.first)
			store_relaxed(there, n);
		if (n == 1)
			start = now();
	}
	w.seen->pings = p.passes - 1;
	w.seen->nanoseconds = now() - start;
	w.seen->done = p.step;
}

enum : u32 { probe_flight = 4 }; // pairs of a thread

// push writes passes times over the only peer's area, pull reads it.
RL_DEVICE void push(const Probe &p)
{
	Pair *to = (Pair *)p.ways[0].outbox;
	u64 n = p.area / sizeof(Pair), step = (u64)blocks() * threads();
	for (u32 pass = 0; pass < p.passes; pass++)
		for (u64 i = (u64)block() * threads() + thread(); i < n; i += step)
			store_pair(to + i, Pair{pass, i});
	fence_system();
}

RL_DEVICE void pull(const Probe &p)
{
	const Pair *from = (const Pair *)p.ways[0].outbox;
	u64 n = p.area / sizeof(Pair), step = (u64)blocks() * threads(), all = 0;
	for (u32 pass = 0; pass < p.passes; pass++)
		for (u64 i = (u64)block() * threads() + thread(); i < n; i += probe_flight * step) {
			Pair v[probe_flight];
#pragma unroll
			for (u32 j = 0; j < probe_flight; j++)
				if (i + j * step < n)
					v[j] = load_pair(from + i + j * step);
#pragma unroll
			for (u32 j = 0; j < probe_flight; j++)
				if (i + j * step < n)
					all ^= v[j].lo ^ v[j].hi;
		}
	if (all == 1) // as good as never, but the loads have to be there
		((Seen *)p.results)->wrong_is = all;
}
