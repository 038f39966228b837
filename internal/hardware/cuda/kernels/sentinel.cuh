// Reductions of floats in bulk, by rows that are data and nothing else: ReduceScatter
// and Reduce ("direct"), and with publish AllReduce "direct". A word has come when it
// is no longer absent, which is what every word of an area is before. So nobody
// fences, no flag takes room on the link, and no more than 8 bytes need to arrive
// together.
//
// absent, all ones, is made of NaNs in every float type, and of none that a result
// has (element.cuh). A term that is such a word travels as other NaNs do.
//
// Who has read a word makes it absent again. A part has three areas: two for terms,
// which calls alternate between, and one for results. A row of results goes to a
// peer when its term for this row has come: so the peer is in this call, and done
// with the results of the last one. Terms of call c go where those of c-2 were, when
// c-1 is over, in which terms have come from all: so all are in c-1, and done with
// c-2. For this at least a row goes each way between all ranks. A row of an area is
// written once a call at most, so areas hold the longest message.
#pragma once
#include "element.cuh"
#include "user.cuh"
#include "watch.cuh"

enum : u64 { absent = ~0ull, other_nans = 0x7fff7fff7fff7fffull };
enum : u32 { row_words = row_bytes / 8 };

RL_DEVICE u64 present(u64 word) { return word == absent ? other_nans : word; }

// Areas are where this lane's pair of row 0 lies in the areas of a call.
struct Areas {
	u64 terms, results;
};

// Rows are n rows of this warp: first, first + step, ...
struct Rows {
	u64 first, step;
};

RL_DEVICE u64 rows_of(u64 bytes) { return bytes == 0 ? 1 : (bytes + row_bytes - 1) / row_bytes; }

// own_pair is this lane's pair of a row of s, which is whole if it begins at a
// multiple of a pair.
template <bool whole> RL_DEVICE Pair own_pair(const Span &s, u64 row)
{
	u64 at = row * row_words + 2 * (thread() % lanes_a_warp);
	if (whole && 8 * at + sizeof(Pair) <= s.bytes)
		return *(const Pair *)(s.base + 8 * at);
	return Pair{load_word(s, at), load_word(s, at + 1)};
}

template <bool whole> RL_DEVICE void keep_pair(const Span &s, u64 row, Pair v)
{
	u64 at = row * row_words + 2 * (thread() % lanes_a_warp);
	if (whole && 8 * at + sizeof(Pair) <= s.bytes) {
		*(Pair *)(s.base + 8 * at) = v;
		return;
	}
	store_word(s, at, v.lo);
	store_word(s, at + 1, v.hi);
}

// take waits for this lane's pairs of up to n rows, those below limit, and makes
// their places absent. It reports whether they came.
template <int n>
RL_DEVICE bool take(const Exchange &p, const Peer &peer, u64 area, const Rows &r, u64 limit, Pair (&v)[n])
{
	Pair *from = (Pair *)(peer.inbox + area);
	Watch w = {0, 0};
	for (;;) {
		bool here = true;
#pragma unroll
		for (int j = 0; j < n; j++)
			if (r.first + j * r.step < limit) {
				v[j] = load_pair(from + (r.first + j * r.step) * lanes_a_warp);
				here = here && v[j].lo != absent && v[j].hi != absent;
			}
		if (here)
			break;
		if (look(w) && lost(p, w, peer.rank, at_row, 0, r.first))
			return false;
	}
#pragma unroll
	for (int j = 0; j < n; j++)
		if (r.first + j * r.step < limit)
			store_pair(from + (r.first + j * r.step) * lanes_a_warp, Pair{absent, absent});
	return true;
}

template <bool whole, int n> RL_DEVICE void send_terms(const Exchange &p, const Areas &a, const Rows &r)
{
	for (u32 i = 0; i < p.count; i++) {
		const Peer &peer = p.peers[(p.position + i) % p.count];
		const Span s = span(p.in, peer.send_at, peer.send_bytes);
		const u64 limit = rows_of(peer.send_bytes);
		Pair *to = (Pair *)(peer.outbox + a.terms);
		Pair v[n];
#pragma unroll
		for (int j = 0; j < n; j++)
			if (r.first + j * r.step < limit)
				v[j] = own_pair<whole>(s, r.first + j * r.step);
#pragma unroll
		for (int j = 0; j < n; j++)
			if (r.first + j * r.step < limit)
				store_pair(to + (r.first + j * r.step) * lanes_a_warp, Pair{present(v[j].lo), present(v[j].hi)});
	}
}

// reduce_terms reduces rows of the own range, in the order of ranks, and with publish
// shows them to all.
template <class T, bool whole, int n> RL_DEVICE bool reduce_terms(const Exchange &p, const Areas &areas, const Rows &r)
{
	const Span in = span(p.in, p.own_in, p.own_bytes), out = span(p.out, p.own_out, p.own_bytes);
	const u64 limit = rows_of(p.own_bytes);
	if (r.first >= limit)
		return true;
	typename T::Acc a[2 * n][T::per_word];
	for (u32 i = 0; i <= p.count; i++) {
		Pair term[n];
		if (i == p.position) {
#pragma unroll
			for (int j = 0; j < n; j++)
				if (r.first + j * r.step < limit)
					term[j] = own_pair<whole>(in, r.first + j * r.step);
		} else if (!take<n>(p, p.peers[i - (i > p.position)], areas.terms, r, limit, term)) {
			return false;
		}
		u64 w[2 * n];
#pragma unroll
		for (int j = 0; j < n; j++) {
			w[2 * j] = term[j].lo;
			w[2 * j + 1] = term[j].hi;
		}
		add_terms<T>(p.op, i == 0, a, w);
	}
	const u32 divisor = p.op == op_avg ? p.ranks : 1;
#pragma unroll
	for (int j = 0; j < n; j++) {
		const u64 row = r.first + j * r.step;
		if (row >= limit)
			continue;
		Pair v = {result<T>(a[2 * j], divisor), result<T>(a[2 * j + 1], divisor)};
		for (u32 i = 0; p.publish && i < p.count; i++) {
			const Peer &peer = p.peers[(p.position + i) % p.count];
			store_pair((Pair *)(peer.outbox + areas.results) + row * lanes_a_warp, v);
		}
		keep_pair<whole>(out, row, v);
	}
	return true;
}

template <bool whole, int n> RL_DEVICE bool take_results(const Exchange &p, const Areas &areas, const Rows &r)
{
	for (u32 i = 0; p.publish && i < p.count; i++) {
		const Peer &peer = p.peers[i];
		const Span s = span(p.out, peer.gather_at, peer.gather_bytes);
		const u64 limit = rows_of(peer.gather_bytes);
		Pair v[n];
		if (r.first >= limit)
			continue;
		if (!take<n>(p, peer, areas.results, r, limit, v))
			return false;
#pragma unroll
		for (int j = 0; j < n; j++)
			if (r.first + j * r.step < limit)
				keep_pair<whole>(s, r.first + j * r.step, v[j]);
	}
	return true;
}

// Ranks may have different numbers of blocks, and so groups of rows of different
// sizes, up to this many. Sending as far ahead keeps them from waiting for each other
// in a circle: who waits for a row of results waits for terms of the same group, and
// who has not sent these yet waits for rows that come before all of that group.
enum : u64 { rows_ahead = 2 * 16 * max_blocks };

// reduce_sentinels_by sends rows ahead of those that it reduces, and leaves the
// results of others a group behind, so that what it waits for has been on its way for
// a while, and what has come is still in the cache.
template <class T, bool whole, int n> RL_DEVICE void reduce_sentinels_by(const Exchange &p)
{
	State *state = (State *)p.state;
	const u64 call = state->calls[block()], area = p.geometry.line_half;
	const u64 pair = thread() % lanes_a_warp * sizeof(Pair);
	const Areas areas = {(call & 1) * area + pair, 2 * area + pair};
	u64 longest = rows_of(p.own_bytes);
	for (u32 i = 0; i < p.count; i++)
		longest = longest > rows_of(p.peers[i].send_bytes) ? longest : rows_of(p.peers[i].send_bytes);

	const u64 step = (u64)(threads() / lanes_a_warp) * blocks(), group = n * step;
	const u64 begin = block() + (u64)(thread() / lanes_a_warp) * blocks();
	const u64 ahead = (rows_ahead + group - 1) / group * group;
	for (u64 at = begin; at < begin + ahead && at < longest; at += group)
		send_terms<whole, n>(p, areas, Rows{at, step});
	u64 at = begin;
	for (; at < longest; at += group) {
		send_terms<whole, n>(p, areas, Rows{at + ahead, step});
		if (!reduce_terms<T, whole, n>(p, areas, Rows{at, step}))
			return;
		if (at > begin && !take_results<whole, n>(p, areas, Rows{at - group, step}))
			return;
	}
	if (at > begin && !take_results<whole, n>(p, areas, Rows{at - group, step}))
		return;
	barrier(); // all have read calls
	for (u32 b = block() + thread() * blocks(); b < max_blocks; b += threads() * blocks())
		state->calls[b] = call + 1;
}

template <class T> RL_DEVICE void reduce_sentinels(const Exchange &p)
{
	u64 begins = p.in | p.out | p.own_in | p.own_out;
	for (u32 i = 0; i < p.count; i++)
		begins |= p.peers[i].send_at | p.peers[i].gather_at;
	if (begins % sizeof(Pair) == 0)
		reduce_sentinels_by<T, true, 2>(p);
	else
		reduce_sentinels_by<T, false, 1>(p);
}
