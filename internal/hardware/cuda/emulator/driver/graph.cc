#include "graph.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "driver.h"

using namespace emulator;

namespace emulator {

// Those that have begun and not ended, under the driver's lock. Never destroyed,
// as the driver.
static std::set<std::shared_ptr<Capture>> &captures = *new std::set<std::shared_ptr<Capture>>;
static thread_local CaptureMode interaction = CaptureMode::global;

static long this_thread() { return syscall(SYS_gettid); }

Status spoil(Capture &capture, Status why)
{
	if (capture.broken == ok)
		capture.broken = why;
	return why;
}

Status add_node(Stream &stream, Work work)
{
	Capture &capture = *stream.capture;
	if (capture.broken)
		return capture_invalidated;
	capture.graph->nodes.push_back(Node{std::move(work), stream.tail});
	stream.tail = {capture.graph->nodes.size() - 1};
	return ok;
}

Status join(StreamRef stream, Event &event)
{
	if (stream->capture && stream->capture != event.capture) {
		spoil(*event.capture, capture_merge);
		return spoil(*stream->capture, capture_merge);
	}
	if (captures.count(event.capture) == 0)
		return invalid_value; // recorded in a capture that has ended
	if (event.capture->broken)
		return capture_invalidated;
	if (!stream->capture) {
		if (stream->legacy)
			return spoil(*event.capture, capture_implicit);
		stream->capture = event.capture;
		stream->capture->streams.push_back(stream);
		stream->tail.clear();
	}
	for (size_t node : event.nodes)
		if (std::find(stream->tail.begin(), stream->tail.end(), node) == stream->tail.end())
			stream->tail.push_back(node);
	return ok;
}

// entangled returns a capture with a stream that waits for the legacy stream, or null.
static Capture *entangled(Context *context)
{
	for (const auto &capture : captures)
		for (const StreamRef &stream : capture->streams)
			if (stream->context == context && (stream->flags & 1) == 0)
				return capture.get();
	return nullptr;
}

Status implicit(Context *context)
{
	Capture *capture = entangled(context);
	return capture ? spoil(*capture, capture_implicit) : ok;
}

Status uncaptured()
{
	if (interaction == CaptureMode::relaxed)
		return ok;
	Lock lock(driver().mutex);
	for (const auto &capture : captures) {
		bool own = capture->thread == this_thread() && capture->mode != CaptureMode::relaxed;
		bool other = interaction == CaptureMode::global && capture->mode == CaptureMode::global;
		if (own || other)
			return spoil(*capture, capture_unsupported);
	}
	return ok;
}

// unjoined reports whether the capture has nodes that its origin does not wait for.
static bool unjoined(const Capture &capture)
{
	const auto &nodes = capture.graph->nodes;
	std::vector<bool> reached(nodes.size());
	for (size_t node : capture.origin->tail)
		reached[node] = true;
	for (size_t i = nodes.size(); i-- > 0;)
		if (reached[i])
			for (size_t node : nodes[i].after)
				reached[node] = true;
	return std::find(reached.begin(), reached.end(), false) != reached.end();
}

// release ends a capture on all its streams.
static void release(const std::shared_ptr<Capture> &capture)
{
	for (const StreamRef &joined : capture->streams) {
		joined->capture.reset();
		joined->tail.clear();
	}
	captures.erase(capture);
	capture->streams.clear();
	capture->origin.reset();
}

void forsake(const StreamRef &stream)
{
	std::shared_ptr<Capture> capture = stream->capture;
	if (!capture)
		return;
	spoil(*capture, capture_invalidated);
	if (capture->origin == stream) {
		release(capture);
		return;
	}
	auto &streams = capture->streams;
	streams.erase(std::find(streams.begin(), streams.end(), stream));
	stream->capture.reset();
}

static Status end(Stream &stream, std::shared_ptr<Graph> *graph)
{
	std::shared_ptr<Capture> capture = stream.capture;
	if (!capture)
		return invalid_value;
	if (capture->origin.get() != &stream)
		return spoil(*capture, capture_unmatched);
	if (capture->mode != CaptureMode::relaxed && capture->thread != this_thread())
		return capture_wrong_thread;
	Status status = capture->broken ? capture_invalidated : unjoined(*capture) ? capture_unjoined : ok;
	release(capture);
	*graph = capture->graph;
	return status;
}

static Status find_graph(void *handle, std::shared_ptr<Graph> *graph)
{
	auto found = driver().graphs.find(handle);
	if (found == driver().graphs.end())
		return invalid_value;
	*graph = found->second;
	return ok;
}

} // namespace emulator

API cuStreamBeginCapture_v2(void *handle, int mode)
{
	OnStream on(handle);
	if (on.status)
		return on.status;
	if (mode < 0 || mode > 2)
		return invalid_value;
	const StreamRef &stream = on.stream;
	if (stream->legacy)
		return capture_unsupported;
	if (stream->capture)
		return spoil(*stream->capture, invalid_value);
	static uint64_t last;
	auto capture = std::make_shared<Capture>();
	capture->id = ++last;
	capture->mode = static_cast<CaptureMode>(mode);
	capture->thread = this_thread();
	capture->origin = stream;
	capture->streams = {stream};
	capture->graph = std::make_shared<Graph>();
	captures.insert(capture);
	stream->capture = capture;
	stream->tail.clear();
	return ok;
}

API cuStreamEndCapture(void *handle, void **out)
{
	*out = nullptr;
	OnStream on(handle);
	if (on.status)
		return on.status;
	std::shared_ptr<Graph> graph;
	if (Status s = end(*on.stream, &graph))
		return s;
	driver().graphs[graph.get()] = graph;
	*out = graph.get();
	return ok;
}

API cuStreamGetCaptureInfo_v2(void *handle, int *status, uint64_t *id, void **graph, const void ***nodes, size_t *count)
{
	OnStream on(handle);
	if (on.status)
		return on.status;
	if (on.stream->legacy && entangled(on.context))
		return capture_implicit; // and the capture goes on
	const Capture *capture = on.stream->capture.get();
	*status = !capture ? 0 : capture->broken ? 2 : 1;
	if (id && capture)
		*id = capture->id;
	if (graph)
		*graph = capture ? capture->graph.get() : nullptr;
	if (nodes) // nodes have no handles here
		*nodes = nullptr;
	if (count)
		*count = 0;
	return ok;
}

API cuStreamIsCapturing(void *handle, int *status)
{
	return cuStreamGetCaptureInfo_v2(handle, status, nullptr, nullptr, nullptr, nullptr);
}

API cuThreadExchangeStreamCaptureMode(int *mode)
{
	if (*mode < 0 || *mode > 2)
		return invalid_value;
	CaptureMode before = interaction;
	interaction = static_cast<CaptureMode>(*mode);
	*mode = static_cast<int>(before);
	return ok;
}

API cuGraphInstantiateWithFlags(void **out, void *handle, unsigned long long)
{
	if (Status s = ready())
		return s;
	Lock lock(driver().mutex);
	std::shared_ptr<Graph> graph;
	if (Status s = find_graph(handle, &graph))
		return s;
	auto exec = std::make_shared<GraphExec>();
	exec->nodes = graph->nodes;
	driver().execs[exec.get()] = exec;
	*out = exec.get();
	return ok;
}

API cuGraphLaunch(void *handle, void *stream)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	std::shared_ptr<GraphExec> exec;
	{
		Lock lock(driver().mutex);
		auto found = driver().execs.find(handle);
		if (found == driver().execs.end())
			return invalid_value;
		exec = found->second;
	}
	return submit(context, stream, [exec] {
		Lock running(exec->running);
		for (const Node &node : exec->nodes)
			node.work();
	});
}

API cuGraphDestroy(void *handle)
{
	Lock lock(driver().mutex);
	return driver().graphs.erase(handle) ? ok : invalid_value;
}

API cuGraphExecDestroy(void *handle)
{
	Lock lock(driver().mutex);
	return driver().execs.erase(handle) ? ok : invalid_value;
}
