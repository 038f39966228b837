// Reductions in bulk: ReduceScatter and Reduce, and with publish AllReduce, all
// the schedules "direct". Three roles: send every peer its chunk; reduce the own
// chunk piece by piece and, with publish, show each piece to all; copy what the
// others show.
#pragma once
#include "slot.cuh"

// reduce_piece has n vectors in flight in each thread.
template <class T, bool whole, u32 n>
RL_DEVICE void reduce_piece(const Exchange &p, const Role &r, const Span &own, const Span &out, u32 k)
{
	const u32 divisor = p.op == op_avg ? p.ranks : 1, size = vectors(own);
	for (u32 at = r.thread; at < size; at += n * r.threads) {
		typename T::Acc a[2 * n][T::per_word];
		for (u32 i = 0; i <= p.count; i++) {
			Pair term[n];
			if (i == p.position) {
#pragma unroll
				for (u32 j = 0; j < n; j++)
					if (at + j * r.threads < size)
						term[j] = load_vector<whole>(own, at + j * r.threads);
			} else {
				const Pair *from = slot(p.geometry, incoming(p, p.peers[i - (i > p.position)], 0, k));
#pragma unroll
				for (u32 j = 0; j < n; j++)
					if (at + j * r.threads < size)
						term[j] = load_pair(from + at + j * r.threads);
			}
			u64 w[2 * n];
#pragma unroll
			for (u32 j = 0; j < n; j++) {
				w[2 * j] = term[j].lo;
				w[2 * j + 1] = term[j].hi;
			}
			add_terms<T>(p.op, i == 0, a, w);
		}
		Pair v[n];
#pragma unroll
		for (u32 j = 0; j < n; j++)
			v[j] = Pair{result<T>(a[2 * j], divisor), result<T>(a[2 * j + 1], divisor)};
#pragma unroll
		for (u32 j = 0; j < n; j++)
			if (at + j * r.threads < size)
				store_vector<whole>(out, at + j * r.threads, v[j]);
		for (u32 i = 0; p.publish && i < p.count; i++) {
			Pair *to = slot(p.geometry, outgoing(p, p.peers[(p.position + i) % p.count], 1, k));
#pragma unroll
			for (u32 j = 0; j < n; j++)
				if (at + j * r.threads < size)
					to[at + j * r.threads] = v[j];
		}
	}
}

template <class T> RL_DEVICE bool reduce_all(const Exchange &p, const Role &r)
{
	// Lane i of the keeper is there for peer i: for its piece, and for room for
	// the result.
	return pump<true>(
		r, pieces(p, p.own_bytes),
		[&](u32 k) {
			if (r.lane >= p.count)
				return true;
			const Peer &peer = p.peers[r.lane];
			Ring in = incoming(p, peer, 0, k), out = outgoing(p, peer, 1, k);
			return at_least(p, in.head, in.at + 1, peer, at_head) &&
			       (!p.publish || has_room(p, out, out.at, peer));
		},
		[&](u32 k) {
			Span own = piece(p, p.in, p.own_in, p.own_bytes, k);
			Span out = piece(p, p.out, p.own_out, p.own_bytes, k);
			if (whole(own) && whole(out))
				reduce_piece<T, true, T::per_word <= 4 ? 2 : 1>(p, r, own, out, k);
			else
				reduce_piece<T, false, 1>(p, r, own, out, k);
		},
		[&](u32 k) {
			if (r.lane >= p.count)
				return;
			const Peer &peer = p.peers[r.lane];
			Ring in = incoming(p, peer, 0, k), out = outgoing(p, peer, 1, k);
			fence_system();
			if (p.publish)
				store_relaxed((u64 *)out.head, out.at + 1);
			store_relaxed((u64 *)in.credit, in.at + 1);
		});
}

template <class T> RL_DEVICE void reduce_slots(const Exchange &p)
{
	RL_SHARED u32 gone[3];
	if (thread() < 3)
		gone[thread()] = 0;
	barrier();
	Role r = Role::of(p.publish ? 3 : 2, gone);
	switch (r.id) {
	case 0:
		if (send_all(p, r))
			tally_sent(p, r, 0, false);
		return;
	case 1:
		if (!reduce_all<T>(p, r))
			return;
		tally_received(p, r, 0, true);
		if (p.publish)
			tally_sent(p, r, 1, true);
		return;
	case 2:
		if (receive_all(p, r, 1))
			tally_received(p, r, 1, false);
		return;
	}
}
