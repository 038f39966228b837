// Reductions over lines. Without publish: ReduceScatter and Reduce ("direct"),
// and AllReduce "oneshot", in which every rank gets all of every input. With it:
// AllReduce "direct", where each rank reduces its chunk and shows it to all.
#pragma once
#include "line.cuh"

// reduce_rows receives the terms of up to n rows and combines them with the
// own one, in rank order.
template <class T, u32 line, bool whole, int n>
RL_DEVICE bool reduce_rows(const Exchange &p, const Line &l, u32 pass, u32 exchanges, const Span &own, u32 k, u32 limit,
			   Pair (&v)[n])
{
	typename T::Acc a[2 * n][T::per_word];
	for (u32 i = 0; i <= p.count; i++) {
		Pair term[n];
		if (i == p.position) {
#pragma unroll
			for (int j = 0; j < n; j++)
				term[j] = own_pair<line, whole>(l, own, row_of(l, pass, k + j * l.warps));
		} else {
			const Peer &peer = p.peers[i - (i > p.position)];
			Leg t = leg(p, l, peer, epoch_of(p, peer) + pass * exchanges + 1);
			if (!receive<line, n>(p, l, peer, t, k, l.warps, limit, term))
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
	u32 divisor = p.op == op_avg ? p.ranks : 1;
#pragma unroll
	for (int j = 0; j < n; j++) {
		v[j].lo = result<T>(a[2 * j], divisor);
		v[j].hi = result<T>(a[2 * j + 1], divisor);
	}
	return true;
}

// send_rows sends a peer up to n rows of its range of in, from row k of a pass on.
template <u32 line, bool whole, int n>
RL_DEVICE void send_rows(const Exchange &p, const Line &l, const Peer &peer, u32 exchange, u32 pass, u32 k, u32 limit)
{
	const Span s = span(p.in, peer.send_at, peer.send_bytes);
	const Leg w = leg(p, l, peer, epoch_of(p, peer) + exchange);
	Pair v[n];
#pragma unroll
	for (int j = 0; j < n; j++)
		v[j] = own_pair<line, whole>(l, s, row_of(l, pass, k + j * l.warps));
#pragma unroll
	for (int j = 0; j < n; j++)
		if (k + j * l.warps < limit)
			send_pair<line>(l, w, k + j * l.warps, v[j]);
}

// send_pass sends all peers a pass.
template <u32 line, bool whole, int n>
RL_DEVICE void send_pass(const Exchange &p, const Line &l, u32 exchange, u32 pass)
{
	for (u32 i = 0; i < p.count; i++) {
		const Peer &peer = p.peers[(p.position + i) % p.count];
		const u32 limit = pass_rows(l, rows<line>(peer.send_bytes), pass);
		for (u32 k = l.warp; k < limit; k += n * l.warps)
			send_rows<line, whole, n>(p, l, peer, exchange, pass, k, limit);
	}
}

// reduce_group reduces up to n rows of the own range, from row k of a pass on, and with
// publish shows each to all.
template <class T, u32 line, bool whole, int n>
RL_DEVICE bool reduce_group(const Exchange &p, const Line &l, u32 exchanges, u32 pass, u32 k, u32 limit)
{
	const Span own = span(p.in, p.own_in, p.own_bytes), out = span(p.out, p.own_out, p.own_bytes);
	Pair v[n];
	if (!reduce_rows<T, line, whole, n>(p, l, pass, exchanges, own, k, limit, v))
		return false;
#pragma unroll
	for (int j = 0; j < n; j++) {
		u32 r = k + j * l.warps;
		if (r >= limit)
			continue;
		keep_pair<line, whole>(l, out, row_of(l, pass, r), v[j]);
		for (u32 i = 0; p.publish && i < p.count; i++) {
			const Peer &peer = p.peers[(p.position + i) % p.count];
			Leg w = leg(p, l, peer, epoch_of(p, peer) + pass * exchanges + 2);
			send_pair<line>(l, w, r, v[j]);
		}
	}
	return true;
}

// reduce_pass does so with all rows of a pass.
template <class T, u32 line, bool whole, int n>
RL_DEVICE bool reduce_pass(const Exchange &p, const Line &l, u32 exchanges, u32 pass)
{
	const u32 limit = pass_rows(l, rows<line>(p.own_bytes), pass);
	for (u32 k = l.warp; k < limit; k += n * l.warps)
		if (!reduce_group<T, line, whole, n>(p, l, exchanges, pass, k, limit))
			return false;
	return true;
}

// gather_group takes up to n rows that a peer shows.
template <u32 line, bool whole, int n>
RL_DEVICE bool gather_group(const Exchange &p, const Line &l, const Peer &peer, u32 pass, u32 k, u32 limit)
{
	const Span s = span(p.out, peer.gather_at, peer.gather_bytes);
	const Leg w = leg(p, l, peer, epoch_of(p, peer) + 2 * pass + 2);
	Pair v[n];
	if (!receive<line, n>(p, l, peer, w, k, l.warps, limit, v))
		return false;
#pragma unroll
	for (int j = 0; j < n; j++)
		if (k + j * l.warps < limit)
			keep_pair<line, whole>(l, s, row_of(l, pass, k + j * l.warps), v[j]);
	return true;
}

// gather_pass takes what the peers show, and sends them the next pass. A row that
// a peer has shown says that it is done with the row that this rank sent it for
// that, so the next may go there: row by row, no warp waits for another.
template <u32 line, bool whole, int n> RL_DEVICE bool gather_pass(const Exchange &p, const Line &l, u32 passes, u32 pass)
{
	for (u32 i = 0; i < p.count; i++) {
		const Peer &peer = p.peers[i];
		const u32 limit = pass_rows(l, rows<line>(peer.gather_bytes), pass);
		const u32 next = pass + 1 < passes ? pass_rows(l, rows<line>(peer.send_bytes), pass + 1) : 0;
		for (u32 k = l.warp; k < limit; k += n * l.warps) {
			if (!gather_group<line, whole, n>(p, l, peer, pass, k, limit))
				return false;
			if (k < next)
				send_rows<line, whole, n>(p, l, peer, 2 * pass + 3, pass + 1, k, next);
		}
	}
	return true;
}

// pipelined is a call of one pass in which a warp is p.ahead groups of n rows further with what
// it sends than with what it reduces, and with that than with what it gathers. Through host memory
// rows are long on their way, and looks for them fill the link: who sends all of them first has it
// filled out, and then in.
template <class T, u32 line, bool whole, int n> RL_DEVICE bool pipelined(const Exchange &p, const Line &l)
{
	const u32 own = pass_rows(l, rows<line>(p.own_bytes), 0), step = n * l.warps;
	u32 most = own;
	for (u32 i = 0; i < p.count; i++) {
		const u32 sent = pass_rows(l, rows<line>(p.peers[i].send_bytes), 0);
		const u32 gathered = pass_rows(l, rows<line>(p.peers[i].gather_bytes), 0);
		most = sent > most ? sent : most;
		most = gathered > most ? gathered : most;
	}
	const u32 lag = p.ahead * step;
	for (u32 at = l.warp; at < most + 2 * lag; at += step) { // the group to be sent
		for (u32 i = 0; i < p.count; i++) {
			const Peer &peer = p.peers[(p.position + i) % p.count];
			const u32 limit = pass_rows(l, rows<line>(peer.send_bytes), 0);
			if (at < limit)
				send_rows<line, whole, n>(p, l, peer, 1, 0, at, limit);
		}
		if (at >= lag && at - lag < own && !reduce_group<T, line, whole, n>(p, l, 2, 0, at - lag, own))
			return false;
		for (u32 i = 0; at >= 2 * lag && i < p.count; i++) {
			const Peer &peer = p.peers[i];
			const u32 limit = pass_rows(l, rows<line>(peer.gather_bytes), 0);
			if (at - 2 * lag < limit && !gather_group<line, whole, n>(p, l, peer, 0, at - 2 * lag, limit))
				return false;
		}
	}
	return true;
}

// reduce_lines_by has n rows in flight in each warp while it reduces, and more
// when it only moves them.
template <class T, u32 line, bool whole, int n, int more> RL_DEVICE void reduce_lines_by(const Exchange &p)
{
	const Line l = Line::of(p);
	const u32 passes = p.peers[0].passes; // the same for all
	if (p.publish && p.ahead && passes == 1) {
		if (!pipelined<T, line, whole, n>(p, l))
			return;
		return advance(p, 2);
	}
	if (p.publish) {
		send_pass<line, whole, more>(p, l, 1, 0);
		for (u32 pass = 0; pass < passes; pass++)
			if (!reduce_pass<T, line, whole, n>(p, l, 2, pass) || !gather_pass<line, whole, more>(p, l, passes, pass))
				return;
		return advance(p, 2);
	}
	for (u32 pass = 0; pass < passes; pass++) {
		send_pass<line, whole, more>(p, l, pass + 1, pass);
		if (!reduce_pass<T, line, whole, n>(p, l, 1, pass))
			return;
		barrier();
	}
	advance(p, 1);
}

template <class T, u32 line> RL_DEVICE void reduce_lines(const Exchange &p)
{
	// Chunks begin at multiples of a word from the buffers' starts.
	bool whole = ((p.in | p.out | p.own_in | p.own_out | p.own_bytes) & 7) == 0;
	for (u32 i = 0; i < p.count; i++)
		whole = whole && ((p.peers[i].send_at | p.peers[i].send_bytes | p.peers[i].gather_at | p.peers[i].gather_bytes) & 7) == 0;
	if (whole)
		reduce_lines_by<T, line, true, T::per_word <= 4 ? 2 : 1, 4>(p);
	else
		reduce_lines_by<T, line, false, 1, 1>(p);
}
