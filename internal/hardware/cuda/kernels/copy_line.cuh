// Exchanges of lines in which nothing is reduced: AllGather, AllToAll, Broadcast,
// Gather, Scatter and messages, as far as they are the schedules "direct".
#pragma once
#include "line.cuh"

// copy_lines_by has n rows in flight in each warp.
template <u32 line, bool whole, int n> RL_DEVICE void copy_lines_by(const Exchange &p)
{
	const Line l = Line::of(p);
	u32 most = 1;
	for (u32 i = 0; i < p.count; i++)
		most = p.peers[i].passes > most ? p.peers[i].passes : most;

	// What stays with this rank.
	Span own_in = span(p.in, p.own_in, p.own_bytes), own_out = span(p.out, p.own_out, p.own_bytes);
	if (own_in.base != own_out.base)
		for (u64 i = (u64)block() * threads() + thread(); i < words(p.own_bytes); i += (u64)blocks() * threads())
			store_word(own_out, i, load_word(own_in, i));

	for (u32 pass = 0; pass < most; pass++) {
		for (u32 i = 0; i < p.count; i++) {
			// From the next rank on, so that not all write to the same one.
			const Peer &peer = p.peers[(p.position + i) % p.count];
			if (pass >= peer.passes)
				continue;
			Leg t = leg(p, l, peer, epoch_of(p, peer) + pass + 1);
			Span s = span(p.in, peer.send_at, peer.send_bytes);
			u32 limit = pass_rows(l, rows<line>(s.bytes), pass);
			for (u32 k = l.warp; k < limit; k += n * l.warps) {
				Pair v[n];
#pragma unroll
				for (int j = 0; j < n; j++)
					v[j] = own_pair<line, whole>(l, s, row_of(l, pass, k + j * l.warps));
#pragma unroll
				for (int j = 0; j < n; j++)
					if (k + j * l.warps < limit)
						send_pair<line>(l, t, k + j * l.warps, v[j]);
			}
		}
		for (u32 i = 0; i < p.count; i++) {
			const Peer &peer = p.peers[i];
			if (pass >= peer.passes)
				continue;
			Leg t = leg(p, l, peer, epoch_of(p, peer) + pass + 1);
			Span s = span(p.out, peer.recv_at, peer.recv_bytes);
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
	advance(p, 1);
}

template <u32 line> RL_DEVICE void copy_lines(const Exchange &p)
{
	follow();
	bool whole = ((p.in | p.out) & 7) == 0;
	for (u32 i = 0; i < p.count; i++) {
		const Peer &peer = p.peers[i];
		whole = whole && ((peer.send_at | peer.send_bytes | peer.recv_at | peer.recv_bytes) & 7) == 0;
	}
	if (whole)
		copy_lines_by<line, true, 4>(p);
	else
		copy_lines_by<line, false, 1>(p);
}
