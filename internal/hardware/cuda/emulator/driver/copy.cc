// Copies and fills.
#include <string.h>

#include <vector>

#include "driver.h"

using namespace emulator;

namespace emulator {

// Place is one end of a copy: what its function says it is.
enum class Place { device, host, any };

// reachable reports whether a GPU can reach bytes there, and whether it is known
// at all: host memory that the driver does not know is pageable.
static Status reachable(Place place, uintptr_t at, size_t bytes, bool *pageable)
{
	Lock lock(driver().mutex);
	auto *found = driver().memory.find(at, bytes);
	*pageable = !found;
	if (found || (place != Place::device && !driver().memory.find(at)))
		return ok;
	return invalid_value;
}

struct Copy {
	uintptr_t to, from;
	size_t bytes;
	bool pageable_to, pageable_from;

	Status check(Place to_place, Place from_place)
	{
		if (Status s = reachable(to_place, to, bytes, &pageable_to))
			return s;
		return reachable(from_place, from, bytes, &pageable_from);
	}
};

static Work work(Copy c)
{
	return [c] { move(reinterpret_cast<void *>(c.to), reinterpret_cast<const void *>(c.from), c.bytes); };
}

static Status copy(Place to_place, uintptr_t to, Place from_place, uintptr_t from, size_t bytes)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Copy c{to, from, bytes, false, false};
	if (bytes == 0)
		return ok;
	if (Status s = c.check(to_place, from_place))
		return s;
	return finish(context, work(c));
}

// captured reports whether work on the stream goes into a graph.
static bool captured(Context *context, void *handle)
{
	Lock lock(driver().mutex);
	StreamRef stream;
	return find_stream(context, handle, &stream) == ok && stream->capture;
}

static Status wait(Context *context, void *handle)
{
	StreamRef stream;
	{
		Lock lock(driver().mutex);
		if (Status s = find_stream(context, handle, &stream))
			return s;
	}
	stream->wait();
	return ok;
}

// A copy from pageable memory has read it when the call returns; one into
// pageable memory has been done.
static Status copy_async(Place to_place, uintptr_t to, Place from_place, uintptr_t from, size_t bytes, void *stream)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Copy c{to, from, bytes, false, false};
	if (bytes == 0)
		return ok;
	if (Status s = c.check(to_place, from_place))
		return s;
	if (captured(context, stream))
		return submit(context, stream, work(c));
	if (c.pageable_from) {
		const char *at = reinterpret_cast<const char *>(from);
		auto staged = std::make_shared<std::vector<char>>(at, at + bytes);
		Status s = submit(context, stream, [c, staged] {
			move(reinterpret_cast<void *>(c.to), staged->data(), c.bytes);
		});
		return s || !c.pageable_to ? s : wait(context, stream);
	}
	Status s = submit(context, stream, work(c));
	return s || !c.pageable_to ? s : wait(context, stream);
}

template <class T> static Status fill(uintptr_t at, T value, size_t count, Work *work)
{
	bool pageable;
	if (at % sizeof(T) != 0)
		return invalid_value;
	*work = [=] {
		T *to = reinterpret_cast<T *>(at);
		for (size_t i = 0; i < count; i++)
			to[i] = value;
	};
	return count == 0 ? ok : reachable(Place::device, at, count * sizeof(T), &pageable);
}

template <class T> static Status set(uintptr_t at, T value, size_t count)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Work work;
	if (Status s = fill(at, value, count, &work))
		return s;
	return finish(context, work);
}

template <class T> static Status set_async(uintptr_t at, T value, size_t count, void *stream)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Work work;
	if (Status s = fill(at, value, count, &work))
		return s;
	return submit(context, stream, work);
}

static uintptr_t address(const void *p) { return reinterpret_cast<uintptr_t>(p); }

} // namespace emulator

API cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t n)
{
	return copy(Place::device, to, Place::host, address(from), n);
}

API cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t n)
{
	return copy(Place::host, address(to), Place::device, from, n);
}

API cuMemcpyDtoD_v2(uintptr_t to, uintptr_t from, size_t n) { return copy(Place::device, to, Place::device, from, n); }

API cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t n, void *stream)
{
	return copy_async(Place::any, to, Place::any, from, n, stream);
}

API cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t n, void *stream)
{
	return copy_async(Place::device, to, Place::host, address(from), n, stream);
}

API cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t n, void *stream)
{
	return copy_async(Place::host, address(to), Place::device, from, n, stream);
}

API cuMemsetD8_v2(uintptr_t at, unsigned char value, size_t count) { return set(at, value, count); }

API cuMemsetD32_v2(uintptr_t at, unsigned value, size_t count) { return set(at, value, count); }

API cuMemsetD8Async(uintptr_t at, unsigned char value, size_t count, void *stream)
{
	return set_async(at, value, count, stream);
}
