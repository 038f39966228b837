// Device memory of other processes.
//
// A handle names the file behind an allocation: the process, its descriptor, and
// the file's inode, which tells it from what may have the descriptor later. The
// opener maps /proc/PID/fd/FD, so there is nothing to clean up.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <type_traits>

#include "driver.h"

using namespace emulator;

namespace emulator {

struct Handle {
	char magic[8];
	int32_t process, descriptor;
	int32_t gpu, unused;
	uint64_t inode, bytes;
	char rest[24];
};
static_assert(sizeof(Handle) == 64, "CUipcMemHandle has 64 bytes");

static const char magic[8] = {'r', 'l', 'e', 'm', 'u', 'l', '0', '1'};

static bool same_file(int fd, const Handle &handle)
{
	struct stat file;
	return fstat(fd, &file) == 0 && file.st_ino == handle.inode;
}

// map gives the opener what the path between the two GPUs leaves of the memory.
static Status map(int fd, const Handle &handle, Path path, uintptr_t *at)
{
	size_t bytes = whole_pages(handle.bytes);
	// The pages of a private mapping are shared until they are stored to.
	int sharing = path == Path::drop || path == Path::hang ? MAP_PRIVATE : MAP_SHARED;
	void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing, fd, 0);
	if (memory == MAP_FAILED)
		return map_failed;
	*at = reinterpret_cast<uintptr_t>(memory);
	if (path == Path::hang) {
		// What is stored to becomes a copy, which nobody else stores to.
		volatile char *byte = static_cast<char *>(memory);
		for (size_t i = 0; i < bytes; i += page_size)
			byte[i] = byte[i];
	}
	if (path == Path::corrupt)
		damage(*at, bytes);
	return ok;
}

// reopen finds a range that this context has opened already.
static uintptr_t reopen(Context *context, const Handle &handle)
{
	for (auto &entry : driver().memory.ranges) {
		Range &range = entry.second;
		if (range.kind == Range::opened && range.context == context && range.inode == handle.inode) {
			range.opens++;
			return entry.first;
		}
	}
	return 0;
}

static Status open(Context *context, const Handle &handle, uintptr_t *out)
{
	if (memcmp(handle.magic, magic, sizeof magic) != 0)
		return invalid_handle;
	if (handle.process == getpid())
		return invalid_context; // a process does not open what it exports
	Path path = Path::good;
	const auto &paths = driver().settings.paths;
	if (handle.gpu < 0 || static_cast<size_t>(handle.gpu) >= paths.size())
		return invalid_device;
	if (handle.gpu != context->gpu)
		path = paths[context->gpu][handle.gpu];
	if (path == Path::off)
		return peer_access_unsupported;
	char name[64];
	snprintf(name, sizeof name, "/proc/%d/fd/%d", handle.process, handle.descriptor);
	int fd = ::open(name, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? operating_system : invalid_handle;
	Status status = invalid_handle;
	if (same_file(fd, handle)) {
		*out = reopen(context, handle);
		status = ok;
		if (*out == 0) {
			status = map(fd, handle, path, out);
			if (status == ok)
				driver().memory.enter(*out, Range{Range::opened, handle.bytes, whole_pages(handle.bytes),
								  context, handle.gpu, -1, 0, 1, handle.inode});
		}
	}
	close(fd);
	return status;
}

} // namespace emulator

API cuIpcGetMemHandle(Handle *handle, uintptr_t at)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Lock lock(driver().mutex);
	auto *found = driver().memory.find(at);
	if (!found || found->second.kind != Range::device)
		return invalid_value;
	const Range &range = found->second;
	*handle = Handle{};
	memcpy(handle->magic, magic, sizeof magic);
	handle->process = getpid();
	handle->descriptor = range.fd;
	handle->gpu = range.owner;
	handle->inode = range.inode;
	handle->bytes = range.bytes;
	return ok;
}

// The handle comes by value.
static_assert(std::is_trivially_copyable<Handle>::value, "or it would not come on the stack");

API cuIpcOpenMemHandle_v2(uintptr_t *out, Handle handle, unsigned flags)
{
	Context *context;
	if (Status s = prepare(&context))
		return s;
	if (flags != 1) // enable peer access as needed
		return invalid_value;
	Lock lock(driver().mutex);
	return open(context, handle, out);
}

API cuIpcCloseMemHandle(uintptr_t at) { return give_back(at, Range::opened, invalid_value); }
