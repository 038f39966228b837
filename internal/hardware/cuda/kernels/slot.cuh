// Bulk: slots of many kilobytes, a counter for the slots filled and one for the
// slots emptied. The data may arrive in any order; one thread fences after the
// block's stores and then counts, so a slot costs one fence.
//
// A piece of a message fills a slot. Piece k belongs to block k mod blocks, which
// has rings of its own towards every peer. The warps of a block share out the
// roles, so that one role's fence or wait does not hold up another.
#pragma once
#include "element.cuh"
#include "user.cuh"
#include "watch.cuh"

// Role is a group of whole warps that does one thing.
struct Role {
	u32 id, thread, threads;
	u32 *lost; // in shared memory: a wait of this role was given up

	RL_DEVICE Role of(u32 roles, u32 *lost)
	{
		u32 each = ::threads() / roles;
		u32 id = ::thread() / each;
		return Role{id, ::thread() % each, each, lost + id};
	}
};

RL_DEVICE void meet(const Role &r) { barrier(r.id + 1, r.threads); }

// Ring is one direction of a stream with one peer, as this block sees it. All
// counts are since the communicator was made.
struct Ring {
	u64 slots, head, credit; // addresses
	u64 *count;		 // of slots, in State
};

RL_DEVICE u64 counter_at(u32 kind, u32 stream)
{
	return kind * (u64)counters_bytes + (stream * (u64)max_blocks + block()) * sizeof(u64);
}

RL_DEVICE u64 slots_at(const Geometry &g, u32 stream)
{
	u64 ring = (u64)g.slots * g.slot_bytes;
	return 2 * g.line_half + 2 * (u64)counters_bytes + (stream * (u64)g.bulk_blocks + block()) * ring;
}

// outgoing is the ring in the peer's part: this rank fills it and counts there;
// the peer counts what it has emptied in this rank's part.
RL_DEVICE Ring outgoing(const Exchange &p, const Peer &peer, u32 stream)
{
	u64 counters = 2 * p.geometry.line_half;
	return Ring{peer.outbox + slots_at(p.geometry, stream), peer.outbox + counters + counter_at(0, stream),
		    peer.inbox + counters + counter_at(1, stream),
		    &((State *)p.state)->sent[stream][block()][peer.rank]};
}

RL_DEVICE Ring incoming(const Exchange &p, const Peer &peer, u32 stream)
{
	u64 counters = 2 * p.geometry.line_half;
	return Ring{peer.inbox + slots_at(p.geometry, stream), peer.inbox + counters + counter_at(0, stream),
		    peer.outbox + counters + counter_at(1, stream),
		    &((State *)p.state)->received[stream][block()][peer.rank]};
}

RL_DEVICE Pair *slot(const Geometry &g, const Ring &r, u64 count)
{
	return (Pair *)(r.slots + count % g.slots * g.slot_bytes);
}

// pieces is how many of a message's pieces this block moves.
RL_DEVICE u64 pieces(const Exchange &p, u64 bytes)
{
	u64 n = (bytes + p.piece - 1) / p.piece;
	return n > block() ? (n - block() + blocks() - 1) / blocks() : 0;
}

// piece is piece i of this block.
RL_DEVICE Span piece(const Exchange &p, u64 buffer, u64 at, u64 bytes, u64 i)
{
	u64 from = (block() + i * blocks()) * p.piece;
	return span(buffer, at + from, bytes - from < p.piece ? bytes - from : p.piece);
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

// room has the role wait until slot number count of the ring is free.
RL_DEVICE bool room(const Exchange &p, const Role &r, const Ring &ring, u64 count, const Peer &peer)
{
	if (r.thread == 0 && count >= p.geometry.slots &&
	    !at_least(p, ring.credit, count - p.geometry.slots + 1, peer, at_credit))
		*r.lost = 1;
	meet(r);
	return *(volatile u32 *)r.lost == 0;
}

// filled has the role tell the reader that slot number count is full.
RL_DEVICE void filled(const Role &r, const Ring &ring, u64 count)
{
	meet(r);
	if (r.thread == 0) {
		fence_system();
		store_release((u64 *)ring.head, count + 1);
	}
}

// A vector is 16 bytes of a buffer of the user.
RL_DEVICE Pair load_vector(const Span &s, u64 i)
{
	if (((u64)s.base & 15) == 0 && 16 * i + 16 <= s.bytes)
		return *(const Pair *)(s.base + 16 * i);
	return Pair{load_word(s, 2 * i), load_word(s, 2 * i + 1)};
}

RL_DEVICE void store_vector(const Span &s, u64 i, Pair v)
{
	if (((u64)s.base & 15) == 0 && 16 * i + 16 <= s.bytes) {
		*(Pair *)(s.base + 16 * i) = v;
		return;
	}
	store_word(s, 2 * i, v.lo);
	store_word(s, 2 * i + 1, v.hi);
}

RL_DEVICE u32 vectors(const Span &s) { return (u32)((s.bytes + 15) / 16); }

enum : u32 { in_flight = 4 }; // vectors a thread

RL_DEVICE void fill(const Role &r, Pair *to, const Span &from)
{
	u32 n = vectors(from);
	for (u32 i = r.thread; i < n; i += in_flight * r.threads) {
		Pair v[in_flight];
#pragma unroll
		for (u32 j = 0; j < in_flight; j++)
			if (i + j * r.threads < n)
				v[j] = load_vector(from, i + j * r.threads);
#pragma unroll
		for (u32 j = 0; j < in_flight; j++)
			if (i + j * r.threads < n)
				to[i + j * r.threads] = v[j];
	}
}

RL_DEVICE void empty(const Role &r, const Span &to, const Pair *from)
{
	u32 n = vectors(to);
	for (u32 i = r.thread; i < n; i += in_flight * r.threads) {
		Pair v[in_flight];
#pragma unroll
		for (u32 j = 0; j < in_flight; j++)
			if (i + j * r.threads < n)
				v[j] = load_pair(from + i + j * r.threads);
#pragma unroll
		for (u32 j = 0; j < in_flight; j++)
			if (i + j * r.threads < n)
				store_vector(to, i + j * r.threads, v[j]);
	}
}

// send_all is the role that sends every peer its range of in.
RL_DEVICE bool send_all(const Exchange &p, const Role &r)
{
	u64 most = 0;
	for (u32 i = 0; i < p.count; i++) {
		u64 n = pieces(p, p.peers[i].send_bytes);
		most = n > most ? n : most;
	}
	for (u64 k = 0; k < most; k++)
		for (u32 i = 0; i < p.count; i++) {
			// From the next rank on, so that not all write to the same one.
			const Peer &peer = p.peers[(p.position + i) % p.count];
			if (k >= pieces(p, peer.send_bytes))
				continue;
			Ring ring = outgoing(p, peer, 0);
			u64 count = *ring.count + k;
			if (!room(p, r, ring, count, peer))
				return false;
			fill(r, slot(p.geometry, ring, count), piece(p, p.in, peer.send_at, peer.send_bytes, k));
			filled(r, ring, count);
		}
	return true;
}

// receive_all is the role that copies what arrives on a stream to out: the
// ranges recv, or the ranges gather.
RL_DEVICE bool receive_all(const Exchange &p, const Role &r, u32 stream)
{
	u64 most = 0;
	for (u32 i = 0; i < p.count; i++) {
		const Peer &peer = p.peers[i];
		u64 n = pieces(p, stream == 0 ? peer.recv_bytes : peer.gather_bytes);
		most = n > most ? n : most;
	}
	for (u64 k = 0; k < most; k++)
		for (u32 i = 0; i < p.count; i++) {
			const Peer &peer = p.peers[i];
			u64 at = stream == 0 ? peer.recv_at : peer.gather_at;
			u64 bytes = stream == 0 ? peer.recv_bytes : peer.gather_bytes;
			if (k >= pieces(p, bytes))
				continue;
			Ring ring = incoming(p, peer, stream);
			u64 count = *ring.count + k;
			if (r.thread == 0 && !at_least(p, ring.head, count + 1, peer, at_head))
				*r.lost = 1;
			meet(r);
			if (*(volatile u32 *)r.lost != 0)
				return false;
			empty(r, piece(p, p.out, at, bytes, k), slot(p.geometry, ring, count));
			meet(r);
			if (r.thread == 0)
				store_release((u64 *)ring.credit, count + 1);
		}
	return true;
}

// tally keeps the counts of a stream's rings, once its roles are done.
RL_DEVICE void tally_sent(const Exchange &p, const Role &r, u32 stream, bool own)
{
	meet(r);
	if (r.thread < p.count) {
		const Peer &peer = p.peers[r.thread];
		*outgoing(p, peer, stream).count += pieces(p, own ? p.own_bytes : peer.send_bytes);
	}
}

RL_DEVICE void tally_received(const Exchange &p, const Role &r, u32 stream, bool own)
{
	meet(r);
	if (r.thread < p.count) {
		const Peer &peer = p.peers[r.thread];
		*incoming(p, peer, stream).count +=
			pieces(p, own ? p.own_bytes : stream == 0 ? peer.recv_bytes : peer.gather_bytes);
	}
}
