// AllReduce "oneshot" for messages that take no more than a few microseconds.
// The same lines, halves and epochs as line.cuh, with everything left out that
// such a message can do without: buffers are aligned to words and hold whole
// ones, a launch makes one pass, and no warp has more than n rows. A kernel this
// short is made of the latency of its instructions, and of fetching them. Other
// ranks may run reduce_line for the same call.
#pragma once
#include "line.cuh"

// Term is what rank r of the communicator contributes, as one thread sees it.
template <u32 n> struct Term {
	const Pair *from; // nullptr for this rank itself, and behind the last one
	u64 flag;
	Pair v[n];
};

// arrived waits until all lanes of the warp have their pairs of all terms, from
// number first on, in the rows that the warp has.
template <u32 line, u32 n, u32 terms>
RL_DEVICE bool arrived(const Exchange &p, u32 first, u32 rows, u32 step, Term<n> (&t)[terms])
{
	const u32 lane = thread() % lanes_a_warp;
	Watch w = {0, 0};
	for (;;) {
		bool here = true;
		u32 missing = 0;
		u64 flag = 0;
#pragma unroll
		for (u32 i = 0; i < terms; i++)
#pragma unroll
			for (u32 j = 0; j < n; j++)
				if (t[i].from && j < rows) {
					t[i].v[j] = load_pair(t[i].from + j * step);
					if (Row<line>::flagged(lane) && t[i].v[j].hi != t[i].flag) {
						here = false;
						missing = i;
						flag = t[i].flag;
					}
				}
		// Each lane has a flag of its own, or all must see those of some.
		if (line == 16 ? here : warp_all(here))
			break;
		if (!look(w))
			continue;
		u32 peer = first + missing - (first + missing > p.position);
		bool gone = !here && lost(p, w, p.peers[peer].rank, at_line, flag, thread() / lanes_a_warp);
		if (line == 16 ? gone : !warp_all(!gone))
			return false;
	}
#pragma unroll
	for (u32 i = 0; i < terms; i++)
#pragma unroll
		for (u32 j = 0; j < n; j++)
			if (t[i].from && j < rows)
				reload(t[i].from + j * step, t[i].v[j]);
	return true;
}

// fast_lines has n rows a warp, and waits for so many terms at once.
template <class T, u32 line, u32 n, u32 terms> RL_DEVICE void fast_lines(const Exchange &p)
{
	follow();
	constexpr u32 words = line == 16 ? 1 : 2; // of a pair
	const u32 lane = thread() % lanes_a_warp, warp = thread() / lanes_a_warp, warps = threads() / lanes_a_warp;
	const u32 total = (u32)(p.own_bytes / 8);
	const u32 step = warps * lanes_a_warp; // pairs from one row of this warp to the next
	const u64 *in = (const u64 *)p.in;

	// The epochs of all peers, one a lane, are on their way with the data.
	u64 mine = 0;
	if (lane < p.count)
		mine = ((const State *)p.state)->epoch[block()][lane + (lane >= p.position)] + 1;
	u32 at[n], rows = warp == 0; // a block's first row is sent in any case
	Pair own[n];
#pragma unroll
	for (u32 j = 0; j < n; j++) {
		if ((block() + (warp + j * warps) * blocks()) * Row<line>::words < total)
			rows = j + 1;
		at[j] = (block() + (warp + j * warps) * blocks()) * Row<line>::words + Row<line>::first(lane);
		own[j].lo = at[j] < total ? in[at[j]] : 0;
		own[j].hi = words == 2 && !Row<line>::flagged(lane) && at[j] + 1 < total ? in[at[j] + 1] : 0;
	}

	const u32 region = block() * p.region + thread() * (u32)sizeof(Pair);
	for (u32 i = 0; i < p.count; i++) {
		u64 flag = warp_take(mine, i);
		Pair *to = (Pair *)(p.peers[i].outbox + (flag & 1) * p.geometry.line_half + region);
#pragma unroll
		for (u32 j = 0; j < n; j++)
			if (j < rows)
				store_pair(to + j * step, Row<line>::flagged(lane) ? Pair{own[j].lo, flag} : own[j]);
	}

	typename T::Acc a[words * n][T::per_word];
	for (u32 r = 0; r <= p.count; r += terms) {
		Term<n> t[terms];
#pragma unroll
		for (u32 k = 0; k < terms; k++) {
			t[k].from = nullptr;
			u32 peer = r + k - (r + k > p.position);
			u64 flag = warp_take(mine, peer % lanes_a_warp);
			if (r + k == p.position) {
#pragma unroll
				for (u32 j = 0; j < n; j++)
					t[k].v[j] = own[j];
			} else if (r + k <= p.count) {
				t[k].flag = flag;
				t[k].from = (const Pair *)(p.peers[peer].inbox + (flag & 1) * p.geometry.line_half + region);
			}
		}
		if (!arrived<line, n, terms>(p, r, rows, step, t))
			return;
#pragma unroll
		for (u32 k = 0; k < terms; k++) {
			if (r + k > p.count)
				break;
			u64 w[words * n];
#pragma unroll
			for (u32 j = 0; j < n; j++) {
				w[words * j] = t[k].v[j].lo;
				if (words == 2)
					w[words * j + 1] = t[k].v[j].hi;
			}
			add_terms<T>(p.op, r + k == 0, a, w);
		}
	}

	u64 *out = (u64 *)p.out;
	const u32 divisor = p.op == op_avg ? p.ranks : 1;
#pragma unroll
	for (u32 j = 0; j < n; j++) {
		if (at[j] < total)
			out[at[j]] = result<T>(a[words * j], divisor);
		if (words == 2 && !Row<line>::flagged(lane) && at[j] + 1 < total)
			out[at[j] + 1] = result<T>(a[words * j + 1], divisor);
	}

	// Nobody asks for an epoch any more once all warps have sent.
	barrier();
	for (u32 i = 0; i < p.count; i++) {
		u64 epoch = warp_take(mine, i);
		u64 *counts = &((State *)p.state)->epoch[0][i + (i >= p.position)];
		for (u32 b = block() + thread() * blocks(); b < max_blocks; b += threads() * blocks())
			counts[b * max_ranks] = epoch;
	}
}
