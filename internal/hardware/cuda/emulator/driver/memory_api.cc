// The driver's functions on device memory and on host memory that GPUs reach.
#include <sys/mman.h>

#include "driver.h"

using namespace emulator;

namespace emulator {

static Status allocate(uintptr_t *out, size_t bytes, Range::Kind kind)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	if (Status s = uncaptured())
		return s;
	Lock lock(driver().mutex);
	return driver().memory.allocate(context, bytes, kind, out);
}

} // namespace emulator

API cuMemAlloc_v2(uintptr_t *out, size_t bytes) { return allocate(out, bytes, Range::device); }

API cuMemAllocManaged(uintptr_t *out, size_t bytes, unsigned) { return allocate(out, bytes, Range::managed); }

// As a driver does, it waits until nothing runs that may use the memory.
API cuMemFree_v2(uintptr_t at)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	if (Status s = uncaptured())
		return s;
	if (at == 0)
		return ok;
	Context *owner;
	{
		Lock lock(driver().mutex);
		Range *range = driver().memory.exact(at);
		if (!range || (range->kind != Range::device && range->kind != Range::managed))
			return invalid_value;
		owner = range->context;
	}
	synchronize(owner);
	Lock lock(driver().mutex);
	driver().memory.release(at);
	return ok;
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
	if (Status s = current(&context))
		return s;
	if (Status s = uncaptured())
		return s;
	if (bytes == 0 || flags > 7)
		return invalid_value;
	void *memory = mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return out_of_memory;
	Lock lock(driver().mutex);
	driver().memory.enter(reinterpret_cast<uintptr_t>(memory),
			      Range{Range::pinned, bytes, whole_pages(bytes), context, -1, -1, 0, 0, 0, flags});
	*out = memory;
	return ok;
}

API cuMemAllocHost_v2(void **out, size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }

API cuMemFreeHost(void *memory)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	if (Status s = uncaptured())
		return s;
	uintptr_t at = reinterpret_cast<uintptr_t>(memory);
	{
		Lock lock(driver().mutex);
		Range *range = driver().memory.exact(at);
		if (!range || range->kind != Range::pinned)
			return invalid_value;
	}
	synchronize(context);
	Lock lock(driver().mutex);
	driver().memory.release(at);
	return ok;
}

API cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	if (Status s = uncaptured())
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
	driver().memory.enter(at, Range{Range::registered, bytes, 0, context, -1, -1, 0, 0, 0, flags});
	return ok;
}

API cuMemHostUnregister(void *memory)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	if (Status s = uncaptured())
		return s;
	uintptr_t at = reinterpret_cast<uintptr_t>(memory);
	{
		Lock lock(driver().mutex);
		Range *range = driver().memory.exact(at);
		if (!range || range->kind != Range::registered)
			return host_memory_not_registered;
	}
	synchronize(context);
	Lock lock(driver().mutex);
	driver().memory.forget(at);
	return ok;
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

API cuMemHostGetFlags(unsigned *flags, void *memory)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Lock lock(driver().mutex);
	auto *found = driver().memory.find(reinterpret_cast<uintptr_t>(memory));
	if (!found || !found->second.host())
		return invalid_value;
	*flags = found->second.flags;
	return ok;
}
