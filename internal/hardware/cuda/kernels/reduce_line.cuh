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
			Way t = way(p, l, peer, epoch_of(p, peer) + pass * exchanges + 1);
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

// reduce_lines_by has n rows in flight in each warp, and sends rows that go out.
template <class T, u32 line, bool whole, int n, int sends> RL_DEVICE void reduce_lines_by(const Exchange &p)
{
	const Line l = Line::of(p);
	const u32 exchanges = p.publish ? 2 : 1;
	const u32 passes = p.peers[0].passes; // the same for all
	const Span own = span(p.in, p.own_in, p.own_bytes), out = span(p.out, p.own_out, p.own_bytes);

	for (u32 pass = 0; pass < passes; pass++) {
		for (u32 i = 0; i < p.count; i++) {
			const Peer &peer = p.peers[(p.position + i) % p.count];
			Way t = way(p, l, peer, epoch_of(p, peer) + pass * exchanges + 1);
			Span s = span(p.in, peer.send_at, peer.send_bytes);
			u32 limit = pass_rows(l, rows<line>(s.bytes), pass);
			for (u32 k = l.warp; k < limit; k += sends * l.warps) {
				Pair v[sends];
#pragma unroll
				for (int j = 0; j < sends; j++)
					v[j] = own_pair<line, whole>(l, s, row_of(l, pass, k + j * l.warps));
#pragma unroll
				for (int j = 0; j < sends; j++)
					if (k + j * l.warps < limit)
						send_pair<line>(l, t, k + j * l.warps, v[j]);
			}
		}

		u32 limit = pass_rows(l, rows<line>(own.bytes), pass);
		for (u32 k = l.warp; k < limit; k += n * l.warps) {
			Pair v[n];
			if (!reduce_rows<T, line, whole, n>(p, l, pass, exchanges, own, k, limit, v))
				return;
#pragma unroll
			for (int j = 0; j < n; j++) {
				u32 r = k + j * l.warps;
				if (r >= limit)
					continue;
				keep_pair<line, whole>(l, out, row_of(l, pass, r), v[j]);
				// A peer that has sent exchange e is done with e-1, so
				// e+1 may go out row by row.
				for (u32 i = 0; p.publish && i < p.count; i++) {
					const Peer &peer = p.peers[(p.position + i) % p.count];
					Way t = way(p, l, peer, epoch_of(p, peer) + pass * exchanges + 2);
					send_pair<line>(l, t, r, v[j]);
				}
			}
		}
		barrier();
		if (!p.publish)
			continue;

		for (u32 i = 0; i < p.count; i++) {
			const Peer &peer = p.peers[i];
			Way t = way(p, l, peer, epoch_of(p, peer) + pass * exchanges + 2);
			Span s = span(p.out, peer.gather_at, peer.gather_bytes);
			u32 limit = pass_rows(l, rows<line>(s.bytes), pass);
			for (u32 k = l.warp; k < limit; k += n * l.warps) {
				Pair v[n];
				if (!receive<line, n>(p, l, peer, t, k, l.warps, limit, v))
					return;
#pragma unroll
				for (int j = 0; j < n; j++)
					if (k + j * l.warps < limit)
						keep_pair<line, whole>(l, s, row_of(l, pass, k + j * l.warps), v[j]);
			}
		}
		barrier();
	}
	advance(p, exchanges);
}

template <class T, u32 line> RL_DEVICE void reduce_lines(const Exchange &p)
{
	// Chunks begin at multiples of a word from the buffers' starts.
	bool whole = ((p.in | p.out | p.own_in | p.own_out | p.own_bytes) & 7) == 0;
	for (u32 i = 0; i < p.count; i++)
		whole = whole && ((p.peers[i].send_at | p.peers[i].send_bytes | p.peers[i].gather_at | p.peers[i].gather_bytes) & 7) == 0;
	if (whole)
		reduce_lines_by<T, line, true, 2, 4>(p);
	else
		reduce_lines_by<T, line, false, 1, 1>(p);
}
