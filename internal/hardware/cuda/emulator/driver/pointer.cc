// What a pointer points to.
#include "driver.h"

using namespace emulator;

namespace emulator {

// The driver's lock is held.
static Status attribute(int which, uintptr_t at, void *out)
{
	auto *found = driver().memory.find(at);
	if (!found)
		return invalid_value;
	const Range &range = found->second;
	switch (which) {
	case 1:
		*static_cast<Context **>(out) = range.context;
		return ok;
	case 2: // 1: host, 2: device
		*static_cast<unsigned *>(out) = range.host() ? 1 : 2;
		return ok;
	case 3:
		*static_cast<uintptr_t *>(out) = at;
		return ok;
	case 4:
		if (!range.host())
			return invalid_value;
		*static_cast<uintptr_t *>(out) = at;
		return ok;
	case 6: // copies wait for what runs
		*static_cast<unsigned *>(out) = 0;
		return ok;
	case 7:
		*static_cast<uint64_t *>(out) = range.id;
		return ok;
	case 8: // managed
		*static_cast<bool *>(out) = false;
		return ok;
	case 9:
		*static_cast<int *>(out) = range.context->ordinal;
		return ok;
	case 10: // can be opened by other processes
		*static_cast<bool *>(out) = range.kind == Range::device;
		return ok;
	case 11:
		*static_cast<uintptr_t *>(out) = found->first;
		return ok;
	case 12:
		*static_cast<size_t *>(out) = range.bytes;
		return ok;
	case 13: // is backed
		*static_cast<bool *>(out) = true;
		return ok;
	case 14: // handle types of the virtual memory API
		*static_cast<uint64_t *>(out) = 0;
		return ok;
	case 16: // may be read and written
		*static_cast<int *>(out) = 3;
		return ok;
	}
	return invalid_value;
}

// size is how large the value of an attribute is.
static size_t size(int which)
{
	switch (which) {
	case 2:
	case 6:
	case 9:
	case 16:
		return 4;
	case 8:
	case 10:
	case 13:
		return 1;
	}
	return 8;
}

} // namespace emulator

API cuPointerGetAttribute(void *out, int which, uintptr_t at)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Lock lock(driver().mutex);
	return attribute(which, at, out);
}

// A pointer that the driver does not know has no attributes: all are zero, -2
// for the ordinal.
API cuPointerGetAttributes(unsigned count, const int *which, void **out, uintptr_t at)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Lock lock(driver().mutex);
	for (unsigned i = 0; i < count; i++) {
		if (attribute(which[i], at, out[i]) == ok)
			continue;
		for (size_t b = 0; b < size(which[i]); b++)
			static_cast<unsigned char *>(out[i])[b] = 0;
		if (which[i] == 9)
			*static_cast<int *>(out[i]) = -2;
	}
	return ok;
}
