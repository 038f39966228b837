// Functions by name.
#include <dlfcn.h>

#include <string>

#include "driver.h"

using namespace emulator;

// CUdriverProcAddressQueryResult
enum : int { symbol_found = 0, symbol_missing = 1 };

API cuGetProcAddress_v2(const char *name, void **out, int, uint64_t, int *status)
{
	static void *self = [] {
		Dl_info info;
		dladdr(reinterpret_cast<void *>(&driver), &info);
		return dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
	}();
	*out = nullptr;
	for (const char *version : {"_v2", ""})
		if (!*out)
			*out = dlsym(self, (std::string(name) + version).c_str());
	if (status)
		*status = *out ? symbol_found : symbol_missing;
	return *out ? ok : not_found;
}
