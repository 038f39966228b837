#pragma once

namespace emulator {

// fail says on standard error why the emulator cannot go on, and aborts. It is
// for what would hang a GPU, and for broken kernels.
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// complain says one line on standard error.
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

} // namespace emulator
