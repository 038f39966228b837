// The registry of kernels.
#include <string.h>

#include "fail.h"
#include "lane.h"

namespace emulator {

static const Kernel *first;

Kernel::Kernel(const char *name, size_t bytes, uint32_t most, void (*entry)(const void *params))
	: name(name), bytes(bytes), most(most), entry(entry), next(first)
{
	if (find(name))
		fail("two kernels are called %s", name);
	first = this;
}

const Kernel *find(const char *name)
{
	for (const Kernel *k = first; k; k = k->next)
		if (strcmp(k->name, name) == 0)
			return k;
	return nullptr;
}

bool registered(const Kernel *kernel)
{
	for (const Kernel *k = first; k; k = k->next)
		if (k == kernel)
			return true;
	return false;
}

} // namespace emulator
