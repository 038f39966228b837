// Streams and events.
#pragma once

#include <stdint.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "status.h"

namespace emulator {

struct Context;
struct Capture;

using Work = std::function<void()>;

// Stream runs what is put on it in order, on an OS thread of its own.
class Stream : public std::enable_shared_from_this<Stream> {
public:
	Stream(Context *context, unsigned flags, bool legacy) : context(context), flags(flags), legacy(legacy) {}

	void enqueue(Work work);
	void wait();  // for all that has been put on it so far
	bool idle();
	void close(); // its thread ends when all is done

	Context *const context;
	const unsigned flags; // 1: non-blocking
	const bool legacy;

	// While the stream is captured: what it is captured into, and the nodes that
	// the next one comes after. Under the driver's lock.
	std::shared_ptr<Capture> capture;
	std::vector<size_t> tail;

private:
	void serve();

	std::mutex mutex;
	std::condition_variable changed;
	std::deque<Work> queue;
	uint64_t put = 0, done = 0;
	bool started = false, closed = false;
};

using StreamRef = std::shared_ptr<Stream>;

// Event is a place in a stream, and the time when it was passed.
class Event {
public:
	explicit Event(unsigned flags) : flags(flags) {}

	uint64_t record(); // a new recording, which is to be completed
	void complete(uint64_t recording);
	void wait(uint64_t recording);
	uint64_t latest();
	bool query();
	uint64_t when(); // of the latest recording, once it is complete, in nanoseconds

	const unsigned flags; // 2: takes no time

	// Set while its latest recording was in a capture. Under the driver's lock.
	std::shared_ptr<Capture> capture;
	std::vector<size_t> nodes;

private:
	std::mutex mutex;
	std::condition_variable changed;
	uint64_t recorded = 0, time = 0;
	std::set<uint64_t> pending; // recordings, which other streams may complete in another order
};

using EventRef = std::shared_ptr<Event>;

} // namespace emulator
