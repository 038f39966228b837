// The contexts that are current in a thread, the last one on top.
#pragma once

#include <vector>

namespace emulator {

struct Context;

extern thread_local std::vector<Context *> current_contexts;

} // namespace emulator
