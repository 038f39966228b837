// Waiting, with a deadline. A thread that polls looks at the clock once in a
// while; when the deadline has passed it writes down what it waited for, and
// every wait of this rank is given up, in this launch and in those behind it.
#pragma once
#include "params.cuh"

enum : u32 { polls_a_look = 512 };

struct Watch {
	u32 polls;
	u64 since; // 0 before the first look
};

// record writes down what this thread waits for, if no other has done so. P is
// Exchange, or another struct that has what is used here.
template <class P> RL_DEVICE void record(const P &p, u32 peer, u32 place, u64 step, u64 chunk, u64 waited)
{
	State *state = (State *)p.state;
	if (swap_if(&state->faulted, 0, 1) != 0)
		return;
	Fault *fault = &((Control *)p.control)->fault;
	fault->sequence = p.sequence;
	fault->waited = waited;
	fault->rank = p.rank;
	fault->peer = peer;
	fault->place = place;
	fault->block = block();
	fault->step = step;
	fault->chunk = chunk;
	fence_system();
	store_release(&fault->written, 1);
}

// look says whether this poll, in vain like those before it, is one to look at
// the clock after.
RL_DEVICE bool look(Watch &w)
{
	pause();
	return ++w.polls % polls_a_look == 0;
}

// lost reports whether the wait is to be given up.
template <class P> RL_DEVICE bool lost(const P &p, Watch &w, u32 peer, u32 place, u64 step, u64 chunk)
{
	State *state = (State *)p.state;
	if (load_relaxed(&state->faulted) != 0)
		return true;
	if (load_relaxed(&((Control *)p.control)->abort) != 0) {
		swap_if(&state->faulted, 0, 1);
		return true;
	}
	u64 t = now();
	if (w.since == 0)
		w.since = t;
	if (t - w.since < p.deadline)
		return false;
	record(p, peer, place, step, chunk, t - w.since);
	return true;
}
