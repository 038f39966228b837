// The driver's functions on device memory and on host memory that GPUs reach.
#include <sys/mman.h>

#include "driver.h"

using namespace emulator;

namespace emulator {

// find_kind finds the range of a kind that begins at at, or null. The driver's
// lock is held.
static Range *find_kind(uintptr_t at, Range::Kind kind)
{
	Range *range = driver().memory.exact(at);
	return range && range->kind == kind ? range : nullptr;
}

Status give_back(uintptr_t at, Range::Kind kind, Status missing)
{
	Context *context;
	if (Status s = prepare(&context))
		return s;
	{
		Lock lock(driver().mutex);
		Range *range = find_kind(at, kind);
		if (!range)
			return missing;
		context = range->context;
	}
	synchronize(context);
	// It may have been given back, or opened, meanwhile.
	Lock lock(driver().mutex);
	Range *range = find_kind(at, kind);
	if (!range)
		return missing;
	if (range->opens > 1)
		range->opens--;
	else
		driver().memory.release(at);
	return ok;
}

} // namespace emulator

API cuMemAlloc_v2(uintptr_t *out, size_t bytes)
{
	Context *context;
	if (Status s = prepare(&context))
		return s;
	Lock lock(driver().mutex);
	return driver().memory.allocate(context, bytes, out);
}

API cuMemFree_v2(uintptr_t at)
{
	if (at == 0) {
		Context *context;
		return prepare(&context);
	}
	return give_back(at, Range::device, invalid_value);
}

API cuMemGetInfo_v2(size_t *free, size_t *total)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Lock lock(driver().mutex);
	*total = driver().settings.memory;
	*free = *total - driver().memory.used(context->gpu);
	return ok;
}

API cuMemGetAddressRange_v2(uintptr_t *base, size_t *bytes, uintptr_t at)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Lock lock(driver().mutex);
	auto *found = driver().memory.find(at);
	if (!found || found->second.host())
		return not_found;
	if (base)
		*base = found->first;
	if (bytes)
		*bytes = found->second.bytes;
	return ok;
}

API cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
	Context *context;
	if (Status s = prepare(&context))
		return s;
	if (bytes == 0 || flags > 7)
		return invalid_value;
	void *memory = mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return out_of_memory;
	Lock lock(driver().mutex);
	driver().memory.enter(reinterpret_cast<uintptr_t>(memory),
			      Range{Range::pinned, bytes, whole_pages(bytes), context, -1, -1, 0, 0, 0});
	*out = memory;
	return ok;
}

API cuMemFreeHost(void *memory)
{
	return give_back(reinterpret_cast<uintptr_t>(memory), Range::pinned, invalid_value);
}

API cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
	Context *context;
	if (Status s = prepare(&context))
		return s;
	uintptr_t at = reinterpret_cast<uintptr_t>(memory);
	if (at == 0 || bytes == 0 || flags > 15)
		return invalid_value;
	Lock lock(driver().mutex);
	if (driver().memory.overlaps(at, bytes))
		return host_memory_already_registered;
	// What is not mapped cannot be locked.
	uintptr_t from = at & ~(page_size - 1);
	if (madvise(reinterpret_cast<void *>(from), whole_pages(at + bytes - from), MADV_NORMAL) != 0)
		return invalid_value;
	driver().memory.enter(at, Range{Range::registered, bytes, 0, context, -1, -1, 0, 0, 0});
	return ok;
}

API cuMemHostUnregister(void *memory)
{
	return give_back(reinterpret_cast<uintptr_t>(memory), Range::registered, host_memory_not_registered);
}

API cuMemHostGetDevicePointer_v2(uintptr_t *out, void *memory, unsigned flags)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	if (flags != 0)
		return invalid_value;
	Lock lock(driver().mutex);
	auto *found = driver().memory.find(reinterpret_cast<uintptr_t>(memory));
	if (!found || !found->second.host())
		return invalid_value;
	*out = reinterpret_cast<uintptr_t>(memory);
	return ok;
}
