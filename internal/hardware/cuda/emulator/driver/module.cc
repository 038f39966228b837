// Modules, functions and launches.
#include <stdio.h>
#include <string.h>

#include <string>

#include "driver.h"
#include "grid.h"

using namespace emulator;

namespace emulator {

// Launch is a launch as its stream keeps it, with its own copy of the parameters.
struct Launch {
	const Kernel *kernel;
	std::vector<uint64_t> params; // words, which aligns them
	uint32_t blocks, threads;

	void run() const
	{
		Grid grid{kernel, params.data(), blocks, threads};
		run_grid(grid, static_cast<uint32_t>(driver().settings.resident(threads)));
	}
};

// params finds the one parameter: the first of an array of pointers, or a buffer
// and its size behind their tags.
static Status params(const Kernel *kernel, void **kernel_params, void **extra, const void **from)
{
	if (kernel_params && !extra) {
		*from = kernel_params[0];
		return *from ? ok : invalid_value;
	}
	if (kernel_params || !extra)
		return invalid_value;
	size_t bytes = 0;
	*from = nullptr;
	for (; *extra; extra += 2) {
		if (extra[0] == reinterpret_cast<void *>(1))
			*from = extra[1];
		else if (extra[0] == reinterpret_cast<void *>(2))
			bytes = *static_cast<size_t *>(extra[1]);
		else
			return invalid_value;
	}
	return *from && bytes == kernel->bytes ? ok : invalid_value;
}

} // namespace emulator

API cuModuleLoadData(void **out, const void *image)
{
	Context *context;
	if (Status s = prepare(&context))
		return s;
	std::string text = static_cast<const char *>(image);
	if (text.empty())
		return invalid_image;
	Lock lock(driver().mutex);
	void *handle = new char;
	driver().modules[handle] = text;
	*out = handle;
	return ok;
}

API cuModuleLoadDataEx(void **out, const void *image, unsigned count, int *options, void **values)
{
	Status status = cuModuleLoadData(out, image);
	char *log = nullptr;
	size_t bytes = 0;
	for (unsigned i = 0; i < count; i++)
		if (options[i] == 5) // where the compiler says what is wrong
			log = static_cast<char *>(values[i]);
		else if (options[i] == 6)
			bytes = reinterpret_cast<size_t>(values[i]);
	if (log)
		snprintf(log, bytes, "%s", status == invalid_image ? "fatal:\n  the image is empty\n" : "");
	return status;
}

API cuModuleUnload(void *handle)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	synchronize(context);
	Lock lock(driver().mutex);
	if (driver().modules.erase(handle) == 0)
		return invalid_handle;
	delete static_cast<char *>(handle);
	return ok;
}

// A kernel has to be in the module's text as well, if that has any.
API cuModuleGetFunction(const Kernel **out, void *handle, const char *name)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	Lock lock(driver().mutex);
	auto module = driver().modules.find(handle);
	if (module == driver().modules.end())
		return invalid_handle;
	const std::string &text = module->second;
	if (text.find(".entry ") != std::string::npos && text.find(std::string(".entry ") + name + "(") == std::string::npos)
		return not_found;
	*out = find(name);
	return *out ? ok : not_found;
}

API cuFuncGetAttribute(int *value, int which, const Kernel *kernel)
{
	if (!registered(kernel))
		return invalid_handle;
	switch (which) {
	case 0: { // threads of a block
		unsigned most = static_cast<unsigned>(driver().settings.threads);
		*value = static_cast<int>(kernel->most < most ? kernel->most : most);
		return ok;
	}
	case 4: // registers
		*value = 32;
		return ok;
	case 5: // versions of the PTX and of the binary
	case 6:
		*value = 90;
		return ok;
	}
	*value = 0;
	return which >= 0 && which < 16 ? ok : invalid_value;
}

// Kernels declare what they share: there is no more to have.
API cuLaunchKernel(const Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned, void *stream, void **kernel_params, void **extra)
{
	Context *context;
	if (Status s = current(&context))
		return s;
	if (!registered(kernel))
		return invalid_handle;
	unsigned most = static_cast<unsigned>(driver().settings.threads);
	if (gx == 0 || gy != 1 || gz != 1 || bx == 0 || bx > most || by != 1 || bz != 1)
		return invalid_value;
	if (bx > kernel->most)
		return launch_out_of_resources;
	const void *from;
	if (Status s = params(kernel, kernel_params, extra, &from))
		return s;
	auto launch = std::make_shared<Launch>();
	launch->kernel = kernel;
	launch->params.resize((kernel->bytes + 7) / 8);
	memcpy(launch->params.data(), from, kernel->bytes);
	launch->blocks = gx;
	launch->threads = bx;
	return submit(context, stream, [launch] { launch->run(); });
}

struct LaunchAttribute {
	unsigned id;
	alignas(8) char value[64];
};

struct LaunchConfig {
	unsigned gx, gy, gz, bx, by, bz, shared;
	void *stream;
	const LaunchAttribute *attributes;
	unsigned count;
};

enum : unsigned { programmatic_serialization = 6 };

// A kernel that may be early comes when its turn is.
API cuLaunchKernelEx(const LaunchConfig *l, const Kernel *kernel, void **kernel_params, void **extra)
{
	if (!l)
		return invalid_value;
	for (unsigned i = 0; i < l->count; i++)
		if (l->attributes[i].id != programmatic_serialization)
			return not_supported;
	return cuLaunchKernel(kernel, l->gx, l->gy, l->gz, l->bx, l->by, l->bz, l->shared, l->stream, kernel_params, extra);
}
