// Bulk: slots of many kilobytes, a counter for the slots filled and one for the
// slots emptied. The data may arrive in any order; a thread fences after the
// block's stores and then counts, so a slot costs one fence.
//
// A piece of a message fills a slot. Piece k goes through ring k mod rings, and block
// k mod blocks moves it. Ranks agree on rings; each has as many blocks as it likes, of
// which rings are a multiple, so that a ring is one block's. None waits in a circle: a
// block takes pieces in order, and a piece waits only for the same one elsewhere, and
// for those before it.
//
// The warps of a block share out the roles, so that what one role waits for does not
// hold up another. In each role one warp, the keeper, waits and counts while the others
// move data: it lets them into the next slot before it fences behind the last.
#pragma once
#include "element.cuh"
#include "user.cuh"
#include "watch.cuh"

// Role is a group of whole warps that does one thing.
struct Role {
	u32 id, thread, threads; // those that move data
	u32 lane;		 // of the keeper
	bool keeper;
	u32 *lost; // in shared memory: a wait of this role was given up

	// Of three roles the one in the middle, which reduces, has three fifths of the
	// warps: it loads and stores twice what the others do.
	RL_DEVICE Role of(u32 roles, u32 *lost)
	{
		u32 warps = ::threads() / lanes_a_warp, side = roles == 3 ? warps / 5 : warps / roles;
		side = (side < 2 ? 2 : side) * lanes_a_warp;
		u32 id = 0, first = 0, all = side;
		if (roles == 1) {
			all = ::threads();
		} else if (roles == 2) {
			id = ::thread() / side;
			first = id * side;
		} else if (::thread() >= ::threads() - side) {
			id = 2;
			first = ::threads() - side;
		} else if (::thread() >= side) {
			id = 1;
			first = side;
			all = ::threads() - 2 * side;
		}
		u32 thread = ::thread() - first, movers = all - lanes_a_warp;
		return Role{id, thread, movers, thread - movers, thread >= movers, lost + id};
	}
};

RL_DEVICE u32 everyone(const Role &r) { return r.threads + lanes_a_warp; }

// Barriers of a role: two that let into a slot, two that say it is done with,
// one for all its threads.
enum : u32 { barrier_enter = 1, barrier_leave = 3, barriers_a_role = 4, barrier_meet = 13 };

RL_DEVICE u32 enter(const Role &r, u32 step) { return barrier_enter + r.id * barriers_a_role + (step & 1); }
RL_DEVICE u32 leave(const Role &r, u32 step) { return barrier_leave + r.id * barriers_a_role + (step & 1); }

// pump takes a role through steps slots. The keeper's lanes call ready, which
// waits for a slot and may fail, and done; the others call move in between.
// ahead says that the keeper lets them into a slot before it is done with the
// last, which is wrong where the peers wait for that to fill this one. Barriers
// alternate: a step's is not used again before all have passed it.
template <bool ahead, class Ready, class Move, class Done>
RL_DEVICE bool pump(const Role &r, u32 steps, Ready ready, Move move, Done done)
{
	if (r.keeper) {
		auto finish = [&](u32 s) {
			barrier(leave(r, s), everyone(r));
			done(s);
		};
		for (u32 s = 0; s < steps; s++) {
			if (!ahead && s > 0)
				finish(s - 1);
			bool come = warp_all(ready(s));
			if (!come)
				*r.lost = 1;
			arrive(enter(r, s), everyone(r));
			if (!come)
				return false;
			if (ahead && s > 0)
				finish(s - 1);
		}
		if (steps > 0)
			finish(steps - 1);
	} else {
		for (u32 s = 0; s < steps; s++) {
			barrier(enter(r, s), everyone(r));
			if (*(volatile u32 *)r.lost != 0)
				return false;
			move(s);
			arrive(leave(r, s), everyone(r));
		}
	}
	return true;
}

// Ring is one direction of a stream with one peer, where a piece goes through. All
// counts are since the communicator was made.
struct Ring {
	u64 slots, head, credit; // addresses
	u64 at;			 // the number of the piece's slot
};

RL_DEVICE u64 counter_at(u32 kind, u32 stream, u32 ring)
{
	return kind * (u64)counters_bytes + (stream * (u64)max_blocks + ring) * sizeof(u64);
}

RL_DEVICE u64 slots_at(const Geometry &g, u32 stream, u32 ring)
{
	u64 bytes = (u64)g.slots * g.slot_bytes;
	return 2 * g.line_half + 2 * (u64)counters_bytes + (stream * (u64)g.bulk_blocks + ring) * bytes;
}

// outgoing is the ring of this block's piece i in the peer's part: this rank fills it
// and counts there; the peer counts what it has emptied in this rank's part.
RL_DEVICE Ring outgoing(const Exchange &p, const Peer &peer, u32 stream, u32 i)
{
	u64 counters = 2 * p.geometry.line_half;
	u32 k = block() + i * blocks(), ring = k % p.geometry.rings;
	return Ring{peer.outbox + slots_at(p.geometry, stream, ring),
		    peer.outbox + counters + counter_at(0, stream, ring),
		    peer.inbox + counters + counter_at(1, stream, ring),
		    ((State *)p.state)->sent[stream][ring][peer.rank] + k / p.geometry.rings};
}

RL_DEVICE Ring incoming(const Exchange &p, const Peer &peer, u32 stream, u32 i)
{
	u64 counters = 2 * p.geometry.line_half;
	u32 k = block() + i * blocks(), ring = k % p.geometry.rings;
	return Ring{peer.inbox + slots_at(p.geometry, stream, ring),
		    peer.inbox + counters + counter_at(0, stream, ring),
		    peer.outbox + counters + counter_at(1, stream, ring),
		    ((State *)p.state)->received[stream][ring][peer.rank] + k / p.geometry.rings};
}

// slot is that of number at in a ring.
RL_DEVICE Pair *slot(const Geometry &g, const Ring &r, u64 at)
{
	return (Pair *)(r.slots + ((u32)at & (g.slots - 1)) * g.slot_bytes);
}

RL_DEVICE Pair *slot(const Geometry &g, const Ring &r) { return slot(g, r, r.at); }

// every is how many of numbers up to n are first, first + step, ...
RL_DEVICE u32 every(u32 n, u32 first, u32 step) { return n > first ? (n - first + step - 1) / step : 0; }

RL_DEVICE u32 all_pieces(const Exchange &p, u64 bytes) { return (u32)((bytes + (1ull << p.piece) - 1) >> p.piece); }

// pieces is how many of a message's pieces this block moves.
RL_DEVICE u32 pieces(const Exchange &p, u64 bytes) { return every(all_pieces(p, bytes), block(), blocks()); }

// piece is piece i of this block.
RL_DEVICE Span piece(const Exchange &p, u64 buffer, u64 at, u64 bytes, u32 i)
{
	u64 from = (u64)(block() + i * blocks()) << p.piece, size = 1ull << p.piece;
	return span(buffer, at + from, bytes - from < size ? bytes - from : size);
}

// at_least waits until the counter has come to target.
RL_DEVICE bool at_least(const Exchange &p, u64 counter, u64 target, const Peer &peer, u32 place)
{
	Watch w = {0, 0};
	while (load_acquire((const u64 *)counter) < target)
		if (look(w) && lost(p, w, peer.rank, place, target - 1, 0))
			return false;
	return true;
}

// has_room waits until slot number at of the ring is free.
RL_DEVICE bool has_room(const Exchange &p, const Ring &ring, u64 at, const Peer &peer)
{
	return at < p.geometry.slots || at_least(p, ring.credit, at - p.geometry.slots + 1, peer, at_credit);
}

// A vector is 16 bytes of a buffer of the user. Whole ones are aligned, and none
// is cut off by the buffer's end.
RL_DEVICE bool whole(const Span &s) { return (((u64)s.base | s.bytes) & 15) == 0; }

template <bool whole> RL_DEVICE Pair load_vector(const Span &s, u32 i)
{
	if (whole)
		return ((const Pair *)s.base)[i];
	return Pair{load_word(s, 2 * i), load_word(s, 2 * i + 1)};
}

template <bool whole> RL_DEVICE void store_vector(const Span &s, u32 i, Pair v)
{
	if (whole) {
		((Pair *)s.base)[i] = v;
		return;
	}
	store_word(s, 2 * i, v.lo);
	store_word(s, 2 * i + 1, v.hi);
}

RL_DEVICE u32 vectors(const Span &s) { return (u32)((s.bytes + 15) / 16); }

// fill and empty move a slot, with n vectors in flight in each thread.
template <bool whole, u32 n> RL_DEVICE void fill_by(const Role &r, Pair *to, const Span &from)
{
	u32 size = vectors(from);
	for (u32 i = r.thread; i < size; i += n * r.threads) {
		Pair v[n];
#pragma unroll
		for (u32 j = 0; j < n; j++)
			if (i + j * r.threads < size)
				v[j] = load_vector<whole>(from, i + j * r.threads);
#pragma unroll
		for (u32 j = 0; j < n; j++)
			if (i + j * r.threads < size)
				to[i + j * r.threads] = v[j];
	}
}

template <bool whole, u32 n> RL_DEVICE void empty_by(const Role &r, const Span &to, const Pair *from)
{
	u32 size = vectors(to);
	for (u32 i = r.thread; i < size; i += n * r.threads) {
		Pair v[n];
#pragma unroll
		for (u32 j = 0; j < n; j++)
			if (i + j * r.threads < size)
				v[j] = load_pair(from + i + j * r.threads);
#pragma unroll
		for (u32 j = 0; j < n; j++)
			if (i + j * r.threads < size)
				store_vector<whole>(to, i + j * r.threads, v[j]);
	}
}

RL_DEVICE void fill(const Role &r, Pair *to, const Span &from)
{
	if (whole(from))
		fill_by<true, 4>(r, to, from);
	else
		fill_by<false, 1>(r, to, from);
}

RL_DEVICE void empty(const Role &r, const Span &to, const Pair *from)
{
	if (whole(to))
		empty_by<true, 4>(r, to, from);
	else
		empty_by<false, 1>(r, to, from);
}

// Slot is a step of a role that takes the peers in turn: piece piece of the
// message to or from one peer, if that has so many.
struct Slot {
	u32 peer;
	u32 piece;
};

RL_DEVICE Slot slot_of(const Exchange &p, u32 step) { return Slot{step % p.count, step / p.count}; }

// send_all is the role that sends every peer its range of in.
RL_DEVICE bool send_all(const Exchange &p, const Role &r)
{
	u32 most = 0;
	for (u32 i = 0; i < p.count; i++) {
		u32 n = pieces(p, p.peers[i].send_bytes);
		most = n > most ? n : most;
	}
	// From the next rank on, so that not all write to the same one.
	auto to = [&](const Slot &s) -> const Peer & { return p.peers[(p.position + s.peer) % p.count]; };
	return pump<true>(
		r, most * p.count,
		[&](u32 step) {
			Slot s = slot_of(p, step);
			const Peer &peer = to(s);
			if (r.lane != 0 || s.piece >= pieces(p, peer.send_bytes))
				return true;
			Ring ring = outgoing(p, peer, 0, s.piece);
			return has_room(p, ring, ring.at, peer);
		},
		[&](u32 step) {
			Slot s = slot_of(p, step);
			const Peer &peer = to(s);
			if (s.piece >= pieces(p, peer.send_bytes))
				return;
			fill(r, slot(p.geometry, outgoing(p, peer, 0, s.piece)),
			     piece(p, p.in, peer.send_at, peer.send_bytes, s.piece));
		},
		[&](u32 step) {
			Slot s = slot_of(p, step);
			const Peer &peer = to(s);
			if (r.lane != 0 || s.piece >= pieces(p, peer.send_bytes))
				return;
			Ring ring = outgoing(p, peer, 0, s.piece);
			fence_system();
			store_relaxed((u64 *)ring.head, ring.at + 1);
		});
}

// receive_all is the role that copies what arrives on a stream to out: the
// ranges recv, or the ranges gather.
RL_DEVICE bool receive_all(const Exchange &p, const Role &r, u32 stream)
{
	auto at = [&](const Peer &peer) { return stream == 0 ? peer.recv_at : peer.gather_at; };
	auto bytes = [&](const Peer &peer) { return stream == 0 ? peer.recv_bytes : peer.gather_bytes; };
	u32 most = 0;
	for (u32 i = 0; i < p.count; i++) {
		u32 n = pieces(p, bytes(p.peers[i]));
		most = n > most ? n : most;
	}
	return pump<true>(
		r, most * p.count,
		[&](u32 step) {
			Slot s = slot_of(p, step);
			const Peer &peer = p.peers[s.peer];
			if (r.lane != 0 || s.piece >= pieces(p, bytes(peer)))
				return true;
			Ring ring = incoming(p, peer, stream, s.piece);
			return at_least(p, ring.head, ring.at + 1, peer, at_head);
		},
		[&](u32 step) {
			Slot s = slot_of(p, step);
			const Peer &peer = p.peers[s.peer];
			if (s.piece >= pieces(p, bytes(peer)))
				return;
			empty(r, piece(p, p.out, at(peer), bytes(peer), s.piece),
			      slot(p.geometry, incoming(p, peer, stream, s.piece)));
		},
		[&](u32 step) {
			Slot s = slot_of(p, step);
			const Peer &peer = p.peers[s.peer];
			if (r.lane != 0 || s.piece >= pieces(p, bytes(peer)))
				return;
			Ring ring = incoming(p, peer, stream, s.piece);
			store_release((u64 *)ring.credit, ring.at + 1);
		});
}

// tally adds to the counts of this block's rings with a peer what a message of so many
// bytes has moved through each.
RL_DEVICE void tally(const Exchange &p, u64 (&counts)[max_blocks][max_ranks], const Peer &peer, u64 bytes)
{
	const u32 n = all_pieces(p, bytes), rings = p.geometry.rings;
	for (u32 ring = block(); ring < rings; ring += blocks())
		counts[ring][peer.rank] += every(n, ring, rings);
}

// tally_sent and tally_received keep the counts of a stream's rings, once its
// role is done; own says that each ring moved the pieces of the own range.
RL_DEVICE void tally_sent(const Exchange &p, const Role &r, u32 stream, bool own)
{
	barrier(barrier_meet + r.id, everyone(r));
	if (r.thread < p.count) {
		const Peer &peer = p.peers[r.thread];
		tally(p, ((State *)p.state)->sent[stream], peer, own ? p.own_bytes : peer.send_bytes);
	}
}

RL_DEVICE void tally_received(const Exchange &p, const Role &r, u32 stream, bool own)
{
	barrier(barrier_meet + r.id, everyone(r));
	if (r.thread < p.count) {
		const Peer &peer = p.peers[r.thread];
		u64 bytes = own ? p.own_bytes : stream == 0 ? peer.recv_bytes : peer.gather_bytes;
		tally(p, ((State *)p.state)->received[stream], peer, bytes);
	}
}
