// Memory that kernels reach.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <map>

#include "status.h"

namespace emulator {

struct Context;

// Range is memory that begins at a known address.
struct Range {
	enum Kind { device, opened, registered, pinned } kind;
	size_t bytes;  // as asked for
	size_t mapped; // whole pages; 0 of memory that is the caller's
	Context *context;
	int owner;       // physical GPU whose memory it is, for device memory
	int fd;          // of device memory: what it is a mapping of
	uint64_t id;     // of a buffer
	unsigned opens;  // of an opened range
	uint64_t inode;  // what identifies the memory of a device or opened range

	bool host() const { return kind == registered || kind == pinned; }
};

// Memory is all ranges of the process. The driver's lock is held by who calls.
class Memory {
public:
	// allocate maps device memory that other processes can open.
	Status allocate(Context *context, size_t bytes, uintptr_t *at);
	void enter(uintptr_t at, Range range);
	// release ends a range, and unmaps it where the driver mapped it.
	void release(uintptr_t at);

	// find returns the range that holds bytes at at, or null.
	std::pair<const uintptr_t, Range> *find(uintptr_t at, size_t bytes = 1);
	// exact returns the range that begins at at, or null.
	Range *exact(uintptr_t at);
	// overlaps reports whether a range of host memory has bytes in common.
	bool overlaps(uintptr_t at, size_t bytes);

	uint64_t used(int gpu) const;
	std::map<uintptr_t, Range> ranges;

private:
	uint64_t last_id = 0;
};

inline const size_t page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
inline size_t whole_pages(size_t bytes) { return (bytes + page_size - 1) & ~(page_size - 1); }

// move copies bytes as a copy engine does, across paths that corrupt as well.
void move(void *to, const void *from, size_t bytes);

// damage makes kernels and copies see whole pages at at across a path that
// corrupts; heal ends that.
void damage(uintptr_t at, size_t bytes);
void heal(uintptr_t at);

} // namespace emulator
