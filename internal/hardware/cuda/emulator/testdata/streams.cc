// Streams, events, captures.
#include <string.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

static void *stream()
{
	void *s;
	OK(cuStreamCreate(&s, 1));
	return s;
}

static void *event(unsigned flags = 2)
{
	void *e;
	OK(cuEventCreate(&e, flags));
	return e;
}

static void add(Pointer at, uint64_t term, void *on) { launch("test_add", 1, 32, AddParams{at, term}, on); }

// After add 1, add 2, ... the value says in which order they ran.
static uint64_t sequence(uint64_t from, uint64_t n)
{
	for (uint64_t i = 1; i <= n; i++)
		from = from * 3 + i;
	return from;
}

CASE(stream_keeps_order)
{
	use();
	void *s = stream();
	Pointer at = zeros(8);
	for (uint64_t i = 1; i <= 30; i++)
		add(at, i, s);
	OK(cuStreamSynchronize(s));
	CHECK(read<uint64_t>(at) == sequence(0, 30));
	OK(cuStreamDestroy_v2(s));
	WANT(709, cuStreamSynchronize(s));
}

// The first of two streams waits for the second, so they run at the same time.
CASE(streams_run_at_the_same_time)
{
	use();
	void *first = stream(), *second_stream = stream();
	Pointer flag = zeros(8), done = zeros(8);
	launch("test_wait", 1, 32, WaitParams{flag, done, 1, 30 * second}, first);
	WANT(600, cuStreamQuery(first));
	add(flag, 1, second_stream);
	OK(cuStreamSynchronize(first));
	OK(cuStreamQuery(first));
	CHECK(read<uint64_t>(done) == 1);
}

CASE(events)
{
	use();
	void *first = stream(), *other = stream(), *e = event(), *from = event(0), *to = event(0);
	Pointer flag = zeros(8), done = zeros(8), at = zeros(8);
	OK(cuEventQuery(e)); // nothing has been recorded
	OK(cuEventRecord(from, first));
	launch("test_wait", 1, 32, WaitParams{flag, done, 1, 30 * second}, first);
	add(at, 1, first);
	OK(cuEventRecord(e, first));
	OK(cuEventRecord(to, first));
	OK(cuStreamWaitEvent(other, e, 0));
	add(at, 2, other);
	WANT(600, cuEventQuery(e));
	WANT(600, cuStreamQuery(other));
	float milliseconds;
	WANT(600, cuEventElapsedTime(&milliseconds, from, to));
	add(flag, 1, nullptr);
	OK(cuStreamSynchronize(other));
	OK(cuEventQuery(e));
	CHECK(read<uint64_t>(at) == sequence(0, 2));
	OK(cuEventSynchronize(to));
	OK(cuEventElapsedTime(&milliseconds, from, to));
	CHECK(milliseconds > 0);
	WANT(400, cuEventElapsedTime(&milliseconds, from, e)); // takes no time
	OK(cuEventDestroy_v2(e));
	WANT(400, cuEventQuery(e));
}

// A stream that waits for an event goes on waiting when that is recorded elsewhere.
CASE(event_recorded_anew)
{
	use();
	void *slow = stream(), *idle = stream(), *waits = stream(), *e = event();
	Pointer flag = zeros(8), done = zeros(8);
	launch("test_wait", 1, 32, WaitParams{flag, done, 1, 30 * second}, slow);
	OK(cuEventRecord(e, slow));
	OK(cuStreamWaitEvent(waits, e, 0));
	OK(cuEventRecord(e, idle));
	OK(cuEventSynchronize(e));
	WANT(600, cuStreamQuery(waits));
	add(flag, 1, idle);
	OK(cuStreamSynchronize(waits));
	OK(cuStreamSynchronize(slow));
}

CASE(host_functions)
{
	use();
	void *s = stream();
	Pointer at = zeros(8);
	static std::atomic<int> seen;
	struct Look {
		uint64_t *at, want;
	} look{reinterpret_cast<uint64_t *>(at), sequence(0, 1)};
	add(at, 1, s);
	OK(cuLaunchHostFunc(
		s,
		[](void *argument) {
			Look *l = static_cast<Look *>(argument);
			seen += *l->at == l->want; // device memory is memory here
		},
		&look));
	add(at, 2, s);
	OK(cuStreamSynchronize(s));
	CHECK(seen == 1 && read<uint64_t>(at) == sequence(0, 2));
}

CASE(default_streams)
{
	use();
	void *legacy = reinterpret_cast<void *>(1), *own = reinterpret_cast<void *>(2), *context;
	OK(cuCtxGetCurrent(&context));
	Pointer flag = zeros(8), done = zeros(8);
	launch("test_wait", 1, 32, WaitParams{flag, done, 1, 30 * second}, own);
	WANT(600, cuStreamQuery(own));
	OK(cuStreamQuery(nullptr));
	OK(cuStreamQuery(legacy));
	std::thread([=] {
		OK(cuCtxSetCurrent(context));
		OK(cuStreamQuery(own)); // another one
		add(flag, 1, own);
		OK(cuStreamSynchronize(own));
	}).join();
	OK(cuStreamSynchronize(own));
	CHECK(read<uint64_t>(done) == 1);
	Pointer at = zeros(8);
	for (uint64_t i = 1; i <= 20; i++)
		add(at, i, i % 2 ? nullptr : legacy);
	OK(cuCtxSynchronize());
	CHECK(read<uint64_t>(at) == sequence(0, 20));
}

CASE(capture_and_replay)
{
	use();
	void *s = stream(), *side = stream(), *fork = event(), *join = event(), *graph, *exec;
	Pointer main_at = zeros(8), side_at = zeros(8), both = zeros(8);
	AddParams p{main_at, 1};
	void *params[] = {&p};
	int capturing;
	void *f = function("test_add");
	OK(cuStreamBeginCapture_v2(s, 0));
	OK(cuStreamIsCapturing(s, &capturing));
	CHECK(capturing == 1);
	OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, params, nullptr));
	p.term = 99; // what was captured stays
	OK(cuEventRecord(fork, s));
	WANT(907, cuEventQuery(fork));
	WANT(901, cuStreamEndCapture(s, &graph)); // for having asked
	CHECK(graph == nullptr);

	OK(cuStreamBeginCapture_v2(s, 0));
	p.term = 1;
	OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, params, nullptr));
	p.term = 99;
	OK(cuEventRecord(fork, s));
	OK(cuStreamWaitEvent(side, fork, 0));
	OK(cuStreamIsCapturing(side, &capturing));
	CHECK(capturing == 1);
	add(side_at, 1, side);
	OK(cuMemsetD8Async(both, 0, 8, side));
	OK(cuEventRecord(join, side));
	OK(cuStreamWaitEvent(s, join, 0));
	add(both, 7, s);
	OK(cuStreamEndCapture(s, &graph));
	OK(cuStreamIsCapturing(side, &capturing));
	CHECK(capturing == 0);
	CHECK(read<uint64_t>(main_at) == 0); // nothing has run yet

	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	uint64_t want = 0;
	for (int i = 0; i < 1000; i++) {
		OK(cuGraphLaunch(exec, s));
		want = want * 3 + 1;
	}
	add(main_at, 5, s); // work in between keeps its place
	OK(cuGraphLaunch(exec, s));
	OK(cuGraphExecDestroy(exec)); // what was launched still runs
	OK(cuStreamSynchronize(s));
	CHECK(read<uint64_t>(main_at) == (want * 3 + 5) * 3 + 1);
	CHECK(read<uint64_t>(both) == 7);
	WANT(1, cuGraphLaunch(exec, s));
}

// spoiled captures something that may not be, and looks whether the stream can
// be used afterwards.
template <class Body> static void spoiled(Status why, Status end, Body body)
{
	void *s = stream(), *graph;
	OK(cuStreamBeginCapture_v2(s, 0));
	WANT(why, body(s));
	WANT(end, cuStreamEndCapture(s, &graph));
	CHECK(graph == nullptr);
	Pointer at = zeros(8);
	add(at, 1, s);
	OK(cuStreamSynchronize(s));
	CHECK(read<uint64_t>(at) == 1);
}

CASE(captures_that_are_refused)
{
	use();
	void *graph, *side = stream(), *e = event(), *f = event();
	Pointer at = zeros(8), memory;
	void *blocking;
	OK(cuStreamCreate(&blocking, 0));

	spoiled(900, 901, [&](void *) { return cuMemAlloc_v2(&memory, 8); });
	spoiled(900, 901, [&](void *) { return cuMemcpyDtoH_v2(&memory, at, 8); });
	spoiled(900, 901, [&](void *s) { return cuStreamSynchronize(s); });
	spoiled(900, 901, [&](void *s) { return cuStreamQuery(s); });
	OK(cuEventRecord(e, side));
	OK(cuEventSynchronize(e));
	spoiled(900, 901, [&](void *) { return cuEventQuery(e); }); // of another stream
	spoiled(905, 901, [&](void *s) { return cuStreamWaitEvent(s, e, 0); });
	spoiled(0, 904, [&](void *s) { // work that the origin does not wait for
		OK(cuEventRecord(e, s));
		OK(cuStreamWaitEvent(side, e, 0));
		add(at, 1, side);
		return 0;
	});
	spoiled(903, 901, [&](void *s) { // ended where it did not begin
		OK(cuEventRecord(f, s));
		OK(cuStreamWaitEvent(side, f, 0));
		return cuStreamEndCapture(side, &graph);
	});
	OK(cuStreamBeginCapture_v2(blocking, 2));
	void *params[] = {&memory};
	int capturing;
	WANT(906, cuStreamIsCapturing(nullptr, &capturing)); // does no harm
	OK(cuStreamIsCapturing(blocking, &capturing));
	CHECK(capturing == 1);
	WANT(906, cuLaunchKernel(function("test_add"), 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
	WANT(901, cuStreamEndCapture(blocking, &graph));
	WANT(900, cuStreamBeginCapture_v2(nullptr, 0));
	WANT(1, cuStreamEndCapture(side, &graph));

	// In relaxed mode all of that is the caller's own business.
	OK(cuStreamBeginCapture_v2(side, 2));
	OK(cuMemAlloc_v2(&memory, 8));
	OK(cuStreamEndCapture(side, &graph));
	OK(cuGraphDestroy(graph));
}

// A capture ends with the stream where it began, and stands in nobody's way.
CASE(captures_whose_stream_is_destroyed)
{
	use();
	void *s = stream(), *side = stream(), *e = event(), *graph;
	Pointer memory;
	OK(cuStreamBeginCapture_v2(s, 0));
	OK(cuEventRecord(e, s));
	OK(cuStreamWaitEvent(side, e, 0));
	OK(cuStreamDestroy_v2(s));
	OK(cuMemAlloc_v2(&memory, 8));
	OK(cuStreamSynchronize(side));
	WANT(1, cuStreamWaitEvent(side, e, 0)); // which was recorded in it

	s = stream();
	OK(cuStreamBeginCapture_v2(s, 0));
	OK(cuEventRecord(e, s));
	OK(cuStreamWaitEvent(side, e, 0));
	OK(cuStreamDestroy_v2(side));
	WANT(901, cuStreamEndCapture(s, &graph));
	OK(cuMemAlloc_v2(&memory, 8));
}

CASE(many_streams_and_threads)
{
	use();
	void *context;
	OK(cuCtxGetCurrent(&context));
	function("test_add");
	std::vector<std::thread> threads;
	for (int t = 0; t < 6; t++)
		threads.emplace_back([=] {
			OK(cuCtxSetCurrent(context));
			void *s = stream();
			Pointer at = zeros(8);
			for (uint64_t i = 1; i <= 50; i++)
				add(at, i, s);
			OK(cuStreamSynchronize(s));
			CHECK(read<uint64_t>(at) == sequence(0, 50));
			OK(cuStreamDestroy_v2(s));
			OK(cuMemFree_v2(at));
		});
	for (std::thread &thread : threads)
		thread.join();
}
