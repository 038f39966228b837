// A block of threads on one OS thread.
#pragma once

#include "lane.h"

namespace emulator {

// run_block runs one block of a grid and returns when all its threads have
// returned. Threads run in the order of their index between two waits.
void run_block(const Grid &grid, uint32_t block);

} // namespace emulator
