// The scheduler of a block. It goes over the threads in the order of their
// index, pass after pass, and lets each that can run run until it waits, pauses
// or returns. A barrier that is complete lets its threads go on in the next pass,
// a warp that has met when its last lane has run: so the order of the index
// holds behind them as well.
#include "block.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <memory>
#include <vector>

#include "fail.h"
#include "fiber.h"

namespace emulator {

__thread Lane *lane;

namespace {

constexpr uint32_t barriers = 16;

// How often a warp that has met may go on before the next one runs.
constexpr int turns = 32;

enum class State : uint8_t { fresh, ready, at_barrier, let_go, at_warp, done };

struct Fiber : Lane {
	void *sp;
	Stack *stack;
	State state;
	uint8_t barrier; // that it waits at

	// What it brings where its warp meets, and what it takes away.
	bool yes, all;
	uint32_t from;
	uint64_t value, taken;
};

struct Barrier {
	uint32_t arrived, expected; // expected 0: all that have not returned
};

struct Warp {
	uint32_t live, met;
};

class Scheduler {
public:
	void run(const Grid &grid, uint32_t block);

	void arrive(uint32_t id, uint32_t count);
	void wait(uint32_t id, uint32_t count);
	void meet();
	void pause();

	Fiber &self() { return *static_cast<Fiber *>(lane); }

private:
	static void enter();
	void resume(Fiber &fiber);
	void leave();
	bool pass();
	bool run_warp(size_t index);
	bool release_warp(size_t index);
	void complete(uint32_t id);
	bool release();
	void rest();

	const Grid *grid;
	std::vector<Fiber> fibers;
	std::vector<Warp> warps;
	Barrier barrier[barriers];
	uint32_t live;
	bool paused;   // a thread of the warp that runs did, in this turn
	bool polling;  // all warps that ran in this pass did nothing but poll
	uint32_t idle; // passes like that
	void *sp;
	Stacks stacks;
};

thread_local std::unique_ptr<Scheduler> scheduler;

void Scheduler::run(const Grid &of, uint32_t block)
{
	grid = &of;
	live = of.threads;
	idle = 0;
	fibers.assign(live, Fiber{});
	warps.assign((live + warp_size - 1) / warp_size, Warp{});
	for (Barrier &b : barrier)
		b = Barrier{};
	for (uint32_t i = 0; i < of.threads; i++) {
		fibers[i].grid = grid;
		fibers[i].block = block;
		fibers[i].thread = i;
		warps[i / warp_size].live++;
	}
	while (live > 0) {
		bool ran = pass();
		if (!release() && !ran && live > 0)
			fail("kernel %s, block %u: every thread waits for one that never comes", grid->kernel->name,
			     block);
		rest();
	}
}

// pass reports whether any thread ran.
bool Scheduler::pass()
{
	bool any = false;
	polling = true;
	for (size_t i = 0; i < warps.size(); i++) {
		bool ran = false;
		for (int turn = 0; turn < turns; turn++) {
			paused = false;
			ran |= run_warp(i);
			if (!release_warp(i))
				break;
		}
		polling &= !ran || paused;
		any |= ran;
	}
	return any;
}

bool Scheduler::run_warp(size_t index)
{
	bool ran = false;
	for (size_t i = index * warp_size; i < fibers.size() && i < (index + 1) * warp_size; i++) {
		Fiber &fiber = fibers[i];
		if (fiber.state == State::fresh) {
			fiber.stack = stacks.take();
			fiber.sp = fiber.stack->prepare(enter);
		} else if (fiber.state != State::ready) {
			continue;
		}
		fiber.state = State::ready;
		ran = true;
		resume(fiber);
		if (fiber.state == State::done)
			stacks.give(fiber.stack);
	}
	return ran;
}

// release_warp lets go of a warp whose lanes have all met.
bool Scheduler::release_warp(size_t index)
{
	Warp &warp = warps[index];
	if (warp.met == 0 || warp.met < warp.live)
		return false;
	Fiber *first = &fibers[index * warp_size], *end = fibers.data() + fibers.size();
	if (end > first + warp_size)
		end = first + warp_size;
	bool all = true;
	for (Fiber *f = first; f < end; f++)
		all &= f->state != State::at_warp || f->yes;
	for (Fiber *f = first; f < end; f++) {
		if (f->state != State::at_warp)
			continue;
		f->all = all;
		f->taken = first + f->from < end ? first[f->from].value : 0;
		f->state = State::ready;
	}
	warp.met = 0;
	return true;
}

void Scheduler::resume(Fiber &fiber)
{
	lane = &fiber;
	emulator_switch_stack(&sp, fiber.sp);
}

void Scheduler::leave() { emulator_switch_stack(&self().sp, sp); }

// enter is where a thread starts, on its own stack.
void Scheduler::enter()
{
	Scheduler &s = *scheduler;
	s.grid->kernel->entry(s.grid->params);
	s.self().state = State::done;
	s.warps[s.self().thread / warp_size].live--;
	s.live--;
	s.complete(0);
	s.leave();
	__builtin_unreachable();
}

// complete begins a barrier anew once all that it expects have come.
void Scheduler::complete(uint32_t id)
{
	Barrier &b = barrier[id];
	if (b.arrived == 0 || b.arrived < (b.expected ? b.expected : live))
		return;
	for (Fiber &fiber : fibers)
		if (fiber.state == State::at_barrier && fiber.barrier == id)
			fiber.state = State::let_go;
	b = Barrier{};
}

// release reports whether a barrier let any thread go in this pass.
bool Scheduler::release()
{
	bool any = false;
	for (Fiber &fiber : fibers)
		if (fiber.state == State::let_go) {
			fiber.state = State::ready;
			any = true;
		}
	return any;
}

// rest gives the processor away while threads only look at flags, for longer and
// longer: a pass through a block takes as long as a short nap, and tens of blocks that
// wait would leave those nothing that they wait for.
void Scheduler::rest()
{
	if (!polling) {
		idle = 0;
		return;
	}
	if (++idle < 2)
		return;
	if (idle < 64) {
		sched_yield();
		return;
	}
	uint32_t doublings = (idle - 64) / 16;
	timespec doze = {0, 20000 << (doublings < 4 ? doublings : 4)};
	nanosleep(&doze, nullptr);
}

void Scheduler::arrive(uint32_t id, uint32_t count)
{
	if (id >= barriers || count % warp_size != 0)
		fail("kernel %s: barrier %u for %u threads (0 to 15, and whole warps)", grid->kernel->name, id, count);
	Barrier &b = barrier[id];
	if (b.arrived > 0 && b.expected != count)
		fail("kernel %s: barrier %u for %u threads, and for %u", grid->kernel->name, id, b.expected, count);
	b.expected = count;
	b.arrived++;
	complete(id);
}

void Scheduler::wait(uint32_t id, uint32_t count)
{
	self().state = State::at_barrier;
	self().barrier = static_cast<uint8_t>(id);
	arrive(id, count);
	leave();
}

void Scheduler::meet()
{
	warps[self().thread / warp_size].met++;
	self().state = State::at_warp;
	leave();
}

void Scheduler::pause()
{
	paused = true;
	leave();
}

} // namespace

void run_block(const Grid &grid, uint32_t block)
{
	if (!scheduler) {
		scheduler.reset(new Scheduler);
		prctl(PR_SET_TIMERSLACK, 1); // sleeps here are shorter than the default slack
	}
	scheduler->run(grid, block);
}

void barrier(uint32_t id, uint32_t count) { scheduler->wait(id, count); }

void arrive(uint32_t id, uint32_t count) { scheduler->arrive(id, count); }

bool vote(bool yes)
{
	Fiber &fiber = scheduler->self();
	fiber.yes = yes;
	fiber.from = 0;
	scheduler->meet();
	return fiber.all;
}

uint64_t take(uint64_t value, uint32_t from)
{
	Fiber &fiber = scheduler->self();
	fiber.yes = true;
	fiber.value = value;
	fiber.from = from;
	scheduler->meet();
	return fiber.taken;
}

void pause() { scheduler->pause(); }

uint64_t now()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

} // namespace emulator
