// A launch: all blocks of a grid.
#pragma once

#include "lane.h"

namespace emulator {

// run_grid runs all blocks and returns when they have returned. Up to resident
// of them run at the same time, each on an OS thread; the others follow.
void run_grid(const Grid &grid, uint32_t resident);

} // namespace emulator
