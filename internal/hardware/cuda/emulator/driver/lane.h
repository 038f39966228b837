// What a kernel and the emulator know of each other.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emulator {

constexpr uint32_t warp_size = 32;

// Kernel is an entry of the registry; kernels are static objects that enter
// themselves when the library is loaded.
struct Kernel {
	Kernel(const char *name, size_t bytes, uint32_t most, void (*entry)(const void *params));

	const char *name;
	size_t bytes;  // of its parameters
	uint32_t most; // threads of a block
	void (*entry)(const void *params);
	const Kernel *next;
};

// find returns the kernel of that name, or null.
const Kernel *find(const char *name);

// registered reports whether this is a kernel of the registry.
bool registered(const Kernel *kernel);

// Grid is one launch of a kernel.
struct Grid {
	const Kernel *kernel;
	const void *params;
	uint32_t blocks, threads; // threads of a block
};

// Lane is one thread of a GPU.
struct Lane {
	const Grid *grid;
	uint32_t block, thread;
};

// lane is the thread of the GPU that runs on this thread of the processor.
extern __thread Lane *lane __attribute__((tls_model("initial-exec")));

// barrier waits for count threads at barrier id; at barrier 0 for all that have
// not returned.
void barrier(uint32_t id, uint32_t count);

// arrive counts this thread at a barrier, and does not wait.
void arrive(uint32_t id, uint32_t count);

// vote waits for the lanes of the warp that have not returned, and reports
// whether all of them said yes.
bool vote(bool yes);

// take waits like vote, and returns the value that lane from of the warp brings.
uint64_t take(uint64_t value, uint32_t from);

// pause lets the other threads run.
void pause();

// now is a monotonic clock in nanoseconds.
uint64_t now();

// corrupting is set once memory has been opened across a path that corrupts;
// corrupt returns what such a path makes of a word on its way to or from at.
extern bool corrupting;
uint64_t corrupt(const void *at, uint64_t word);

} // namespace emulator
