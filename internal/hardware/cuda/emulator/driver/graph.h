// Captures of streams into graphs.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "stream.h"

namespace emulator {

struct Node {
	Work work;
	std::vector<size_t> after; // nodes, all of them earlier ones
};

// Graph is what a capture recorded.
struct Graph {
	std::vector<Node> nodes;
};

// GraphExec runs a graph in the order of the capture, which is one of those that
// its edges allow. One launch runs at a time.
struct GraphExec {
	std::vector<Node> nodes;
	std::mutex running;
};

enum class CaptureMode : int { global, thread_local_, relaxed };

struct Capture {
	uint64_t id;
	CaptureMode mode;
	long thread; // that began it
	StreamRef origin;
	std::vector<StreamRef> streams; // the origin and those that joined
	std::shared_ptr<Graph> graph;
	Status broken = ok; // why it is invalid
};

// The driver's lock is held by who calls these.

// add_node puts work into the graph that the stream is captured into.
Status add_node(Stream &stream, Work work);

// join has a stream wait for an event of a capture.
Status join(StreamRef stream, Event &event);

// implicit refuses work on the legacy stream while a stream that waits for it is
// captured.
Status implicit(Context *context);

// forsake takes a stream out of its capture before it is destroyed. The capture is
// invalid then, and at its end where it began on that stream.
void forsake(const StreamRef &stream);

// spoil invalidates the capture of a stream and returns why.
Status spoil(Capture &capture, Status why);

} // namespace emulator
