// The driver's functions on streams and events.
#include "driver.h"
#include "graph.h"

using namespace emulator;

namespace emulator {

// outside finds a stream for calls that it does not take while it is captured.
static Status outside(void *handle, StreamRef *stream)
{
	OnStream on(handle);
	if (on.status)
		return on.status;
	*stream = on.stream;
	if (on.stream->capture)
		return spoil(*on.stream->capture, capture_unsupported);
	return on.stream->legacy ? implicit(on.context) : ok;
}

// The driver's lock is held.
static Status find_event(void *handle, EventRef *event)
{
	if (Status s = ready())
		return s;
	auto found = driver().events.find(handle);
	if (found == driver().events.end())
		return invalid_handle;
	*event = found->second;
	return ok;
}

// passed is find_event for calls that ask about the event's place in time.
static Status passed(void *handle, EventRef *event)
{
	{
		Lock lock(driver().mutex);
		if (Status s = find_event(handle, event))
			return s;
		if ((*event)->capture)
			return spoil(*(*event)->capture, captured_event);
	}
	return uncaptured();
}

} // namespace emulator

// All streams go at once here, whatever their priority.
API cuStreamCreateWithPriority(void **out, unsigned flags, int)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	if (flags > 1)
		return invalid_value;
	auto stream = std::make_shared<Stream>(context, flags, false);
	Lock lock(driver().mutex);
	context->streams[stream.get()] = stream;
	*out = stream.get();
	return ok;
}

API cuStreamCreate(void **out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

API cuStreamDestroy_v2(void *handle)
{
	OnStream on(handle);
	if (on.status)
		return on.status;
	if (on.context->streams.erase(handle) == 0)
		return invalid_handle; // a default stream
	forsake(on.stream);
	on.stream->close();
	return ok;
}

API cuStreamSynchronize(void *handle)
{
	StreamRef stream;
	if (Status s = outside(handle, &stream))
		return s;
	stream->wait();
	return ok;
}

API cuStreamQuery(void *handle)
{
	StreamRef stream;
	if (Status s = outside(handle, &stream))
		return s;
	return stream->idle() ? ok : not_ready;
}

API cuLaunchHostFunc(void *handle, void (*function)(void *), void *argument)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	return submit(context, handle, [=] { function(argument); });
}

API cuEventCreate(void **out, unsigned flags)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	auto event = std::make_shared<Event>(flags);
	Lock lock(driver().mutex);
	driver().events[event.get()] = event;
	*out = event.get();
	return ok;
}

API cuEventDestroy_v2(void *handle)
{
	if (Status s = ready())
		return s;
	Lock lock(driver().mutex);
	return driver().events.erase(handle) ? ok : invalid_handle;
}

API cuEventRecord(void *handle, void *stream_handle)
{
	OnStream on(stream_handle);
	if (on.status)
		return on.status;
	EventRef event;
	if (Status s = find_event(handle, &event))
		return s;
	const StreamRef &stream = on.stream;
	if (stream->capture) {
		if (stream->capture->broken)
			return capture_invalidated;
		event->capture = stream->capture;
		event->nodes = stream->tail;
		return ok;
	}
	if (stream->legacy)
		if (Status s = implicit(on.context))
			return s;
	event->capture.reset();
	uint64_t recording = event->record();
	stream->enqueue([event, recording] { event->complete(recording); });
	return ok;
}

API cuStreamWaitEvent(void *stream_handle, void *handle, unsigned)
{
	OnStream on(stream_handle);
	if (on.status)
		return on.status;
	EventRef event;
	if (Status s = find_event(handle, &event))
		return s;
	const StreamRef &stream = on.stream;
	if (event->capture)
		return join(stream, *event);
	if (stream->capture)
		return spoil(*stream->capture, capture_isolation);
	uint64_t recording = event->latest();
	stream->enqueue([event, recording] { event->wait(recording); });
	return ok;
}

API cuEventQuery(void *handle)
{
	EventRef event;
	if (Status s = passed(handle, &event))
		return s;
	return event->query() ? ok : not_ready;
}

API cuEventSynchronize(void *handle)
{
	EventRef event;
	if (Status s = passed(handle, &event))
		return s;
	event->wait(event->latest());
	return ok;
}

API cuEventElapsedTime(float *milliseconds, void *from, void *to)
{
	EventRef first, last;
	if (Status s = passed(from, &first))
		return s;
	if (Status s = passed(to, &last))
		return s;
	if (((first->flags | last->flags) & 2) != 0 || first->latest() == 0 || last->latest() == 0)
		return invalid_handle;
	if (!first->query() || !last->query())
		return not_ready;
	*milliseconds = static_cast<float>(static_cast<double>(last->when() - first->when()) / 1e6);
	return ok;
}
