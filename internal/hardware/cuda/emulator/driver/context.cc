// Primary contexts, and which one a thread uses.
#include "current.h"
#include "driver.h"

using namespace emulator;

namespace emulator {

thread_local std::vector<Context *> current_contexts;

static Context *context_of(int device)
{
	auto &contexts = driver().contexts;
	return device >= 0 && static_cast<size_t>(device) < contexts.size() ? contexts[device].get() : nullptr;
}

// valid reports whether a handle is one of a context that is retained.
static bool valid(Context *handle)
{
	Lock lock(driver().mutex);
	for (auto &context : driver().contexts)
		if (context.get() == handle)
			return handle->retained > 0;
	return false;
}

// destroy ends what a context has, once nothing runs there.
static void destroy(Context *context)
{
	synchronize(context);
	Driver &d = driver();
	Lock lock(d.mutex);
	for (const StreamRef &stream : context->all())
		stream->close();
	context->streams.clear();
	context->per_thread.clear();
	context->legacy = std::make_shared<Stream>(context, 0, true);
	context->peers.assign(context->peers.size(), false);
	std::vector<uintptr_t> mine;
	for (auto &entry : d.memory.ranges)
		if (entry.second.context == context)
			mine.push_back(entry.first);
	for (uintptr_t at : mine)
		d.memory.release(at);
}

} // namespace emulator

API cuDevicePrimaryCtxRetain(Context **out, int device)
{
	if (Status s = ready())
		return s;
	Context *context = context_of(device);
	if (!context)
		return invalid_device;
	Lock lock(driver().mutex);
	context->retained++;
	*out = context;
	return ok;
}

API cuDevicePrimaryCtxRelease_v2(int device)
{
	if (Status s = ready())
		return s;
	Context *context = context_of(device);
	if (!context)
		return invalid_device;
	{
		Lock lock(driver().mutex);
		if (context->retained == 0)
			return invalid_context;
		if (context->retained > 1) {
			context->retained--;
			return ok;
		}
	}
	destroy(context);
	Lock lock(driver().mutex);
	context->retained--;
	return ok;
}

API cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
	if (Status s = ready())
		return s;
	Context *context = context_of(device);
	if (!context)
		return invalid_device;
	Lock lock(driver().mutex);
	*flags = 0;
	*active = context->retained > 0;
	return ok;
}

API cuCtxGetCurrent(Context **out)
{
	if (Status s = ready())
		return s;
	*out = current_contexts.empty() ? nullptr : current_contexts.back();
	return ok;
}

API cuCtxSetCurrent(Context *context)
{
	if (Status s = ready())
		return s;
	if (context && !valid(context))
		return invalid_context;
	if (!current_contexts.empty())
		current_contexts.pop_back();
	if (context)
		current_contexts.push_back(context);
	return ok;
}

API cuCtxPushCurrent_v2(Context *context)
{
	if (Status s = ready())
		return s;
	if (!valid(context))
		return invalid_context;
	current_contexts.push_back(context);
	return ok;
}

API cuCtxPopCurrent_v2(Context **out)
{
	if (Status s = ready())
		return s;
	if (current_contexts.empty())
		return invalid_context;
	if (out)
		*out = current_contexts.back();
	current_contexts.pop_back();
	return ok;
}

API cuCtxSynchronize()
{
	Context *context;
	if (Status s = prepare(&context))
		return s;
	synchronize(context);
	return ok;
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return ok;
}

API cuCtxEnablePeerAccess(Context *of, unsigned flags)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	if (flags != 0)
		return invalid_value;
	if (!valid(of) || of == context)
		return invalid_context;
	Lock lock(driver().mutex);
	if (driver().settings.paths[context->gpu][of->gpu] == Path::off)
		return peer_access_unsupported;
	if (context->peers[of->ordinal])
		return peer_access_already_enabled;
	context->peers[of->ordinal] = true;
	return ok;
}
