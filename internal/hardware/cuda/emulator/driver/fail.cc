#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

namespace emulator {

static void say(const char *format, va_list arguments)
{
	char text[512];
	vsnprintf(text, sizeof text, format, arguments);
	fprintf(stderr, "ringlane emulator: %s\n", text);
}

void fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
	abort();
}

void complain(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
}

} // namespace emulator
