// The same as copy_line.cuh, in bulk. Two roles: send, receive.
#pragma once
#include "slot.cuh"

RL_DEVICE void copy_slots(const Exchange &p)
{
	RL_SHARED u32 gone[2];
	if (thread() < 2)
		gone[thread()] = 0;
	barrier();

	Span from = span(p.in, p.own_in, p.own_bytes), to = span(p.out, p.own_out, p.own_bytes);
	if (from.base != to.base)
		for (u64 i = (u64)block() * threads() + thread(); i < words(p.own_bytes); i += (u64)blocks() * threads())
			store_word(to, i, load_word(from, i));

	Role r = Role::of(2, gone);
	if (r.id == 0) {
		if (send_all(p, r))
			tally_sent(p, r, 0, false);
	} else {
		if (receive_all(p, r, 0))
			tally_received(p, r, 0, false);
	}
}
