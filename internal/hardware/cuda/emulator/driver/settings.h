// RINGLANE_EMULATOR: the machine that is emulated.
#pragma once

#include <stdint.h>

#include <string>
#include <vector>

namespace emulator {

// Path says what becomes of what one GPU does in the memory of another that it
// has opened.
enum class Path {
	good,
	off,     // there is no peer access
	drop,    // stores vanish; loads see what the other GPU has, until this one stores nearby
	hang,    // neither stores nor loads get through: whoever waits waits for ever
	corrupt, // of 16 bytes that a kernel or a copy moves, the first one arrives wrong
};

struct Settings {
	int gpus = 2;
	int multiprocessors = 4;
	int threads = 128; // of a block
	uint64_t memory = 256 << 20; // of a GPU, for each process
	bool mig = false; // each is a MIG instance, of which a process has one, and no peers
	std::vector<std::vector<Path>> paths; // [of][into], physical GPUs
	std::vector<int> visible; // physical GPUs that this process has, in its order

	int resident(uint32_t threads_a_block) const;
};

// parse reads "gpus=2,sms=4,threads=128,memory=256M,mig=off,p2p=off,p2p=drop:0>1" and
// the value of CUDA_VISIBLE_DEVICES, or null. It returns what is wrong, or "".
std::string parse(const char *text, const char *visible, Settings *settings);

} // namespace emulator
