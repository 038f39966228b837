// AllReduce "hierarchical" in bulk: islands of ranks, of which one leads. A rank
// sends its input to its leader. The leaders stand in a chain: each adds the terms
// of its island to the sum of those before, and the last one's result goes on round
// to the other leaders, and from each to its island. So of an island one rank alone
// sends out, to the leader of the next island alone.
//
// A sum under way travels in the accumulator type, as in a ring: a piece is at most
// half a slot then.
#pragma once
#include "ring.cuh"

// Leader is what leads an island, and who stands beside it: peers[0] to
// peers[count-1] are its island, own_bytes the message. Behind them are the leader
// before it and the one after it, which are one of two. For all others peers[0] is
// their leader.
struct Leader {
	const Peer *before, *after;
	bool first, last;
	bool onward; // sends the result on to the next leader

	RL_DEVICE Leader of(const Exchange &p)
	{
		const Peer *before = p.islands > 1 ? &p.peers[p.count] : nullptr;
		const Peer *after = p.islands > 2 ? before + 1 : before;
		return Leader{before, after, p.island == 0, p.island == p.islands - 1,
			      p.islands > 1 && p.island + 2 != p.islands};
	}
};

// Lane i of a keeper is there for member i of the island, the one behind them for
// the leaders: so with two lanes for them a warp is enough for 32 ranks.
enum : u32 { lane_chain = 31 };

template <class T, bool whole>
RL_DEVICE void lead_piece(const Exchange &p, const Role &r, const Leader &l, const Span &in, const Span &out, u32 k)
{
	const u32 size = vectors(in), divisor = p.op == op_avg ? p.ranks : 1;
	const Pair *sum = nullptr;
	Pair *next = nullptr;
	if (!l.first)
		sum = slot(p.geometry, incoming(p, *l.before, 0, k));
	if (!l.last || l.onward)
		next = slot(p.geometry, outgoing(p, *l.after, l.last ? 1 : 0, k));
	for (u32 at = r.thread; at < size; at += r.threads) {
		typename T::Acc a[2][T::per_word];
		if (sum)
			load_partial<T>(sum, at, a);
		for (u32 i = 0; i <= p.count; i++) {
			Pair term;
			if (i == p.position)
				term = load_vector<whole>(in, at);
			else
				term = load_pair(slot(p.geometry, incoming(p, p.peers[i - (i > p.position)], 0, k)) + at);
			u64 w[2] = {term.lo, term.hi};
			add_terms<T>(p.op, !sum && i == 0, a, w);
		}
		if (!l.last) {
			store_partial<T>(next, at, a);
			continue;
		}
		Pair v = {result<T>(a[0], divisor), result<T>(a[1], divisor)};
		store_vector<whole>(out, at, v);
		if (next)
			next[at] = v;
		for (u32 i = 0; i < p.count; i++)
			slot(p.geometry, outgoing(p, p.peers[i], 1, k))[at] = v;
	}
}

// lead is the role of a leader that adds, and of the last one that shows the result.
template <class T> RL_DEVICE bool lead(const Exchange &p, const Role &r, const Leader &l)
{
	const u32 stream = l.last ? 1 : 0; // of what goes on
	const bool sends = !l.last || l.onward;
	return pump<true>(
		r, pieces(p, p.own_bytes),
		[&](u32 k) {
			if (r.lane < p.count) {
				const Peer &peer = p.peers[r.lane];
				Ring in = incoming(p, peer, 0, k), out = outgoing(p, peer, 1, k);
				return at_least(p, in.head, in.at + 1, peer, at_head) &&
				       (!l.last || has_room(p, out, out.at, peer));
			}
			if (r.lane != lane_chain)
				return true;
			if (!l.first) {
				Ring in = incoming(p, *l.before, 0, k);
				if (!at_least(p, in.head, in.at + 1, *l.before, at_head))
					return false;
			}
			if (!sends)
				return true;
			Ring out = outgoing(p, *l.after, stream, k);
			return has_room(p, out, out.at, *l.after);
		},
		[&](u32 k) {
			Span in = piece(p, p.in, 0, p.own_bytes, k), out = piece(p, p.out, 0, p.own_bytes, k);
			if (whole(in) && whole(out))
				lead_piece<T, true>(p, r, l, in, out, k);
			else
				lead_piece<T, false>(p, r, l, in, out, k);
		},
		[&](u32 k) {
			fence_system();
			if (r.lane < p.count) {
				const Peer &peer = p.peers[r.lane];
				Ring in = incoming(p, peer, 0, k), out = outgoing(p, peer, 1, k);
				if (l.last)
					store_relaxed((u64 *)out.head, out.at + 1);
				store_relaxed((u64 *)in.credit, in.at + 1);
			} else if (r.lane == lane_chain) {
				if (sends) {
					Ring out = outgoing(p, *l.after, stream, k);
					store_relaxed((u64 *)out.head, out.at + 1);
				}
				if (!l.first) {
					Ring in = incoming(p, *l.before, 0, k);
					store_relaxed((u64 *)in.credit, in.at + 1);
				}
			}
		});
}

template <bool whole>
RL_DEVICE void show_piece(const Exchange &p, const Role &r, const Leader &l, const Span &out, u32 k)
{
	const Pair *source = slot(p.geometry, incoming(p, *l.before, 1, k));
	Pair *next = nullptr;
	if (l.onward)
		next = slot(p.geometry, outgoing(p, *l.after, 1, k));
	for (u32 at = r.thread; at < vectors(out); at += r.threads) {
		Pair v = load_pair(source + at);
		store_vector<whole>(out, at, v);
		if (next)
			next[at] = v;
		for (u32 i = 0; i < p.count; i++)
			slot(p.geometry, outgoing(p, p.peers[i], 1, k))[at] = v;
	}
}

// show is the role of the other leaders that takes the result and shows it.
RL_DEVICE bool show(const Exchange &p, const Role &r, const Leader &l)
{
	return pump<true>(
		r, pieces(p, p.own_bytes),
		[&](u32 k) {
			if (r.lane < p.count) {
				const Peer &peer = p.peers[r.lane];
				Ring out = outgoing(p, peer, 1, k);
				return has_room(p, out, out.at, peer);
			}
			if (r.lane != lane_chain)
				return true;
			Ring in = incoming(p, *l.before, 1, k), out = outgoing(p, *l.after, 1, k);
			return at_least(p, in.head, in.at + 1, *l.before, at_head) &&
			       (!l.onward || has_room(p, out, out.at, *l.after));
		},
		[&](u32 k) {
			Span out = piece(p, p.out, 0, p.own_bytes, k);
			if (whole(out))
				show_piece<true>(p, r, l, out, k);
			else
				show_piece<false>(p, r, l, out, k);
		},
		[&](u32 k) {
			fence_system();
			if (r.lane < p.count) {
				Ring out = outgoing(p, p.peers[r.lane], 1, k);
				store_relaxed((u64 *)out.head, out.at + 1);
			} else if (r.lane == lane_chain) {
				Ring in = incoming(p, *l.before, 1, k), out = outgoing(p, *l.after, 1, k);
				if (l.onward)
					store_relaxed((u64 *)out.head, out.at + 1);
				store_relaxed((u64 *)in.credit, in.at + 1);
			}
		});
}

// tally_leader keeps the counts of a stream's rings once the role is done that
// moves all pieces of the message through them.
RL_DEVICE void tally_leader(const Exchange &p, const Role &r, const Peer *from, u32 from_stream, const Peer *to,
			    u32 to_stream, bool takes, bool shows)
{
	barrier(barrier_meet + r.id, everyone(r));
	State *state = (State *)p.state;
	if (r.thread < p.count) {
		const Peer &peer = p.peers[r.thread];
		if (takes)
			tally(p, state->received[0], peer, p.own_bytes);
		if (shows)
			tally(p, state->sent[1], peer, p.own_bytes);
	}
	if (r.thread == lane_chain) {
		if (from)
			tally(p, state->received[from_stream], *from, p.own_bytes);
		if (to)
			tally(p, state->sent[to_stream], *to, p.own_bytes);
	}
}

template <class T> RL_DEVICE void hierarchical(const Exchange &p)
{
	RL_SHARED u32 gone[2];
	if (thread() < 2)
		gone[thread()] = 0;
	barrier();
	const Role r = Role::of(2, gone);
	if (p.own_bytes == 0) {
		if (r.id == 0) {
			if (send_all(p, r))
				tally_sent(p, r, 0, false);
		} else if (receive_all(p, r, 1)) {
			tally_received(p, r, 1, false);
		}
		return;
	}
	const Leader l = Leader::of(p);
	if (r.id == 0) {
		if (lead<T>(p, r, l))
			tally_leader(p, r, l.first ? nullptr : l.before, 0, !l.last || l.onward ? l.after : nullptr,
				     l.last ? 1 : 0, true, l.last);
	} else if (!l.last && show(p, r, l)) {
		tally_leader(p, r, l.before, 1, l.onward ? l.after : nullptr, 1, false, true);
	}
}
