// Kernels that try the emulator itself.
#include "machine.h"

// sums: out[block] is the sum of what all threads of the block put into shared memory.
struct Sums {
	u64 *out;
	u32 rounds;
};

RL_KERNEL(test_sums, Sums, 1024)
{
	RL_SHARED u64 cell[1024];
	RL_SHARED u64 total;
	for (u32 round = 0; round < p.rounds; round++) {
		cell[thread()] = (u64)block() * 1000 + thread() + round;
		barrier();
		if (thread() == threads() / 2) {
			total = 0;
			for (u32 i = 0; i < threads(); i++)
				total += cell[i];
		}
		barrier();
		if (thread() == 0)
			p.out[block()] += total;
		barrier();
	}
}

// votes: lanes of a warp vote with changing minds; odd lanes return half way.
// out[thread] counts the votes in which all agreed.
struct Votes {
	u32 *out;
};

RL_KERNEL(test_votes, Votes, 1024)
{
	u32 lane = thread() % 32, agreed = 0;
	for (u32 i = 0; i < 32; i++) // all but one
		agreed += warp_all(lane != i);
	for (u32 i = 0; i < 10; i++) // all, in every other one
		agreed += warp_all(i % 2 == 0 || lane < 20);
	for (u32 i = 0; i < 32; i++)
		agreed += warp_take(lane * 7 + i, (lane + i) % 32) == (lane + i) % 32 * 7 + i;
	p.out[thread()] = agreed;
	if (lane % 2 == 1)
		return;
	agreed += warp_all(true);
	agreed += warp_all(lane != 4);
	p.out[thread()] = agreed;
	if (lane % 4 == 2) { // while the others wait
		pause();
		pause();
		return;
	}
	barrier();
}

// roles: the first half of a block produces, the second consumes, one slot at a
// time, meeting at barriers of their own.
struct Roles {
	u64 *out;
	u32 slots;
};

RL_KERNEL(test_roles, Roles, 1024)
{
	RL_SHARED u64 slot[1024];
	RL_SHARED u64 filled, emptied;
	u32 half = threads() / 2, i = thread() % half;
	if (thread() == 0)
		filled = emptied = 0;
	barrier();
	if (thread() < half) {
		for (u32 k = 1; k <= p.slots; k++) {
			while (load_acquire(&emptied) + 1 < k)
				pause();
			slot[i] = (u64)k * i;
			barrier(1, half);
			if (i == 0)
				store_release(&filled, k);
		}
		return;
	}
	u64 sum = 0;
	for (u32 k = 1; k <= p.slots; k++) {
		while (load_acquire(&filled) < k)
			pause();
		sum += slot[i];
		barrier(2, half);
		if (i == 0)
			store_release(&emptied, k);
		barrier(2, half);
	}
	p.out[i] = sum;
}

// order: every thread appends its index between two waits of each kind.
struct Order {
	u32 *log; // of 4 * threads
};

RL_KERNEL(test_order, Order, 1024)
{
	RL_SHARED u32 next;
	if (thread() == 0)
		next = 0;
	barrier();
	p.log[next++] = thread();
	if (thread() == 5)
		for (u32 i = 0; i < 3; i++)
			pause(); // comes to the barrier last
	barrier();
	p.log[next++] = thread();
	barrier();
	if (thread() % 32 == 9)
		for (u32 i = 0; i < 3; i++)
			pause();
	warp_all(true);
	p.log[next++] = thread();
	barrier();
	p.log[next++] = thread();
}

// meet: every block waits until all blocks have come, many times.
struct Meet {
	u64 *came; // one for each block
	u64 rounds;
};

RL_KERNEL(test_meet, Meet, 1024)
{
	for (u64 round = 1; round <= p.rounds; round++) {
		if (thread() == 0)
			store_release(p.came + block(), round);
		for (u32 b = thread(); b < blocks(); b += threads())
			while (load_acquire(p.came + b) < round)
				pause();
		barrier();
	}
}

// lock: every thread adds to a counter under a lock.
struct Locked {
	u32 *lock;
	u32 *count;
};

RL_KERNEL(test_lock, Locked, 1024)
{
	while (swap_if(p.lock, 0, 1) != 0)
		pause();
	fence_system();
	u32 n = *p.count;
	*p.count = n + 1;
	fence_system();
	swap_if(p.lock, 1, 0);
}

// wait: until there is value at at, or for nanoseconds; then sets then.
struct Wait {
	u64 *at, *then;
	u64 value, nanoseconds;
};

RL_KERNEL(test_wait, Wait, 1024)
{
	u64 start = now();
	if (thread() == 0 && block() == 0) {
		while (load_acquire(p.at) != p.value)
			if (now() - start > p.nanoseconds)
				return;
			else
				pause();
		store_release(p.then, p.value);
	}
}

// add: *at = *at * 3 + term, which says in which order launches ran.
struct Add {
	u64 *at;
	u64 term;
};

RL_KERNEL(test_add, Add, 1024)
{
	if (thread() == 0 && block() == 0)
		*p.at = *p.at * 3 + p.term;
}

// rows: block b sends to each of count peers a row of 32 pairs with its flag in
// the last lane, and waits for theirs; sum becomes that of all words that came.
struct Rows {
	Pair *outbox[3], *inbox[3];
	u64 *sum, *late;
	u64 first, rounds, nanoseconds;
	u32 count, rank;
};

RL_KERNEL(test_rows, Rows, 1024)
{
	u32 lane = thread() % 32, warp = block() * (threads() / 32) + thread() / 32;
	u64 sum = 0;
	for (u64 round = p.first; round < p.first + p.rounds; round++) {
		u64 at = (round % 2 * blocks() * threads() / 32 + warp) * 32 + lane;
		for (u32 i = 0; i < p.count; i++)
			store_pair(p.outbox[i] + at, Pair{round * 100 + p.rank, lane == 31 ? round : lane});
		for (u32 i = 0; i < p.count; i++) {
			u64 start = now();
			Pair v;
			for (;;) {
				v = load_pair(p.inbox[i] + at);
				if (warp_all(lane != 31 || v.hi == round))
					break;
				pause();
				if (!warp_all(now() - start < p.nanoseconds)) {
					*p.late = round;
					return;
				}
			}
			reload(p.inbox[i] + at, v);
			sum += v.lo;
		}
		barrier();
	}
	p.sum[block() * threads() + thread()] += sum;
}

// pairs: stores rising pairs, or loads them and counts those with a lo that is
// older than their hi.
struct Pairs {
	Pair *at;
	u64 *old;
	u64 last;
	u32 stores;
};

RL_KERNEL(test_pairs, Pairs, 1024)
{
	for (u64 n = 1; p.stores && n <= p.last; n++) {
		store_pair(p.at, Pair{n, n});
		if (n % (1 << 18) == 0)
			pause();
	}
	for (u64 before = 0; !p.stores && before < p.last;) {
		Pair v = load_pair(p.at);
		*p.old += v.lo < v.hi;
		if (v.hi == before)
			pause();
		before = v.hi;
	}
}

// narrow, widen: conversions of f16.
struct Convert {
	const u32 *in;
	u32 *wide;
	u16 *narrow;
	u32 count;
};

RL_KERNEL(test_convert, Convert, 1024)
{
	for (u32 i = block() * threads() + thread(); i < p.count; i += blocks() * threads()) {
		p.narrow[i] = f32_to_f16(bits_f32(p.in[i]));
		p.wide[i] = f32_bits(f16_to_f32(p.narrow[i]));
	}
}

// forever: a barrier that one thread never comes to.
struct Forever {
	u32 count;
};

RL_KERNEL(test_forever, Forever, 1024)
{
	if (thread() < 32)
		barrier(3, p.count);
}
