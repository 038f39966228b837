// The driver's state in this process, and how its functions enter it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "memory.h"
#include "settings.h"
#include "status.h"
#include "stream.h"

// API opens a function of the driver API. Other names are not visible outside.
#define API extern "C" __attribute__((visibility("default"))) emulator::Status

namespace emulator {

struct Graph;
struct GraphExec;

// Context is the primary context of a GPU. Contexts live as long as the process;
// one that is not retained is not active.
struct Context {
	Context(int ordinal, int gpu);

	const int ordinal; // among the GPUs that this process sees
	const int gpu;     // the physical one

	// Under the driver's lock.
	int retained = 0;
	StreamRef legacy;
	std::unordered_map<long, StreamRef> per_thread; // by thread
	std::unordered_map<void *, StreamRef> streams;
	std::vector<bool> peers; // by ordinal: access is enabled

	// all returns every stream of the context.
	std::vector<StreamRef> all();
};

// Driver is everything that the functions of the API share. There is one, which
// is never destroyed: threads of streams outlive static objects.
struct Driver {
	std::mutex mutex;
	Settings settings;
	std::vector<std::unique_ptr<Context>> contexts; // by ordinal
	Memory memory;
	std::unordered_map<void *, EventRef> events;
	std::unordered_map<void *, std::shared_ptr<Graph>> graphs;
	std::unordered_map<void *, std::shared_ptr<GraphExec>> execs;
	std::unordered_map<void *, std::string> modules; // their text
};

Driver &driver();

using Lock = std::lock_guard<std::mutex>;

// ready reports whether cuInit has succeeded in this very process: a driver does
// not live on in the child of a fork.
Status ready();

// current finds the current context of this thread.
Status current(Context **context);

// find_stream finds the stream behind a handle: 0 and 1 are the context's legacy
// default stream, 2 is that of this thread. The driver's lock is held.
Status find_stream(Context *context, void *handle, StreamRef *stream);

// OnStream is how a call on one stream begins: it finds the stream and, unless
// status says what is wrong, holds the driver's lock as long as it lives.
struct OnStream {
	explicit OnStream(void *handle);

	Context *context = nullptr; // the current one
	StreamRef stream;
	Status status;

private:
	std::unique_lock<std::mutex> lock;
};

// submit puts work on a stream, or into the graph it is captured into.
Status submit(Context *context, void *handle, Work work);

// finish is submit and a wait, for calls that return when their work is done.
Status finish(Context *context, Work work);

// synchronize waits for all streams of a context.
void synchronize(Context *context);

// uncaptured refuses a call that may not be made while streams are captured, and
// invalidates the capture.
Status uncaptured();

// prepare is current for such calls.
Status prepare(Context **context);

// give_back ends a range of that kind once nothing runs that may use it, as a
// driver does; one that was opened several times, the last time. It returns
// missing where there is no such range.
Status give_back(uintptr_t at, Range::Kind kind, Status missing);

} // namespace emulator
