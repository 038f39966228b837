// OS threads of the emulator.
#pragma once

#include <functional>

namespace emulator {

// start runs work on a new detached thread that takes no signals: they belong
// to the program's own threads, whose handlers expect a stack of theirs.
void start(std::function<void()> work);

// lend runs work on an idle thread of a pool that grows as needed, so that all
// that is lent runs at the same time.
void lend(std::function<void()> work);

} // namespace emulator
