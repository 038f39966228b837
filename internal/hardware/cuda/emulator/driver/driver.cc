#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "current.h"
#include "fail.h"
#include "graph.h"

namespace emulator {

static std::atomic<bool> started, forked;

Driver &driver()
{
	static Driver *only = new Driver;
	return *only;
}

Status ready() { return started && !forked ? ok : not_initialized; }

static Status initialize()
{
	static std::mutex mutex;
	Lock lock(mutex);
	if (forked)
		return not_initialized;
	if (started)
		return driver().contexts.empty() ? no_device : ok;
	Driver &d = driver();
	Settings settings;
	std::string wrong = parse(getenv("RINGLANE_EMULATOR"), getenv("CUDA_VISIBLE_DEVICES"), &settings);
	if (!wrong.empty()) {
		complain("RINGLANE_EMULATOR: %s", wrong.c_str());
		return invalid_value;
	}
	d.settings = settings;
	for (int gpu : settings.visible)
		d.contexts.emplace_back(new Context(static_cast<int>(d.contexts.size()), gpu));
	for (auto &context : d.contexts)
		context->peers.assign(d.contexts.size(), false);
	pthread_atfork(nullptr, nullptr, [] { forked = true; });
	started = true;
	return d.contexts.empty() ? no_device : ok;
}

Context::Context(int ordinal, int gpu) : ordinal(ordinal), gpu(gpu)
{
	legacy = std::make_shared<Stream>(this, 0, true);
}

std::vector<StreamRef> Context::all()
{
	std::vector<StreamRef> found{legacy};
	for (auto &entry : per_thread)
		found.push_back(entry.second);
	for (auto &entry : streams)
		found.push_back(entry.second);
	return found;
}

Status current(Context **context)
{
	if (Status s = ready())
		return s;
	if (current_contexts.empty() || !current_contexts.back())
		return invalid_context;
	*context = current_contexts.back();
	Lock lock(driver().mutex);
	return (*context)->retained > 0 ? ok : context_is_destroyed;
}

Status prepare(Context **context)
{
	Status s = current(context);
	return s ? s : uncaptured();
}

Status find_stream(Context *context, void *handle, StreamRef *stream)
{
	switch (reinterpret_cast<uintptr_t>(handle)) {
	case 0:
	case 1:
		*stream = context->legacy;
		return ok;
	case 2: {
		StreamRef &own = context->per_thread[syscall(SYS_gettid)];
		if (!own)
			own = std::make_shared<Stream>(context, 0, false);
		*stream = own;
		return ok;
	}
	}
	for (auto &other : driver().contexts) {
		auto found = other->streams.find(handle);
		if (found == other->streams.end())
			continue;
		*stream = found->second;
		return other.get() == context ? ok : invalid_handle;
	}
	return context_is_destroyed;
}

OnStream::OnStream(void *handle) : status(current(&context))
{
	if (status)
		return;
	lock = std::unique_lock<std::mutex>(driver().mutex);
	status = find_stream(context, handle, &stream);
}

Status submit(Context *context, void *handle, Work work)
{
	Lock lock(driver().mutex);
	StreamRef stream;
	if (Status s = find_stream(context, handle, &stream))
		return s;
	if (stream->capture)
		return add_node(*stream, std::move(work));
	if (stream->legacy)
		if (Status s = implicit(context))
			return s;
	stream->enqueue(std::move(work));
	return ok;
}

Status finish(Context *context, Work work)
{
	if (Status s = uncaptured())
		return s;
	if (Status s = submit(context, nullptr, std::move(work)))
		return s;
	context->legacy->wait();
	return ok;
}

void synchronize(Context *context)
{
	std::vector<StreamRef> streams;
	{
		Lock lock(driver().mutex);
		streams = context->all();
	}
	for (const StreamRef &stream : streams)
		stream->wait();
}

} // namespace emulator

API cuInit(unsigned flags)
{
	return flags == 0 ? emulator::initialize() : emulator::invalid_value;
}

API cuDriverGetVersion(int *version)
{
	*version = 12040;
	return emulator::ok;
}
