// What GPUs there are, and how they stand to each other.
#include <stdio.h>
#include <string.h>

#include "driver.h"

using namespace emulator;

namespace emulator {

// device finds the physical GPU behind an ordinal.
static Status device(int ordinal, int *gpu)
{
	if (Status s = ready())
		return s;
	const auto &visible = driver().settings.visible;
	if (ordinal < 0 || static_cast<size_t>(ordinal) >= visible.size())
		return invalid_device;
	*gpu = visible[ordinal];
	return ok;
}

static int bus(int gpu) { return 0x10 + gpu; }

static int attribute(int which, int gpu)
{
	const Settings &settings = driver().settings;
	switch (which) {
	case 1: // threads of a block
		return settings.threads;
	case 16:
		return settings.multiprocessors;
	case 19: // can map host memory
	case 41: // unified addressing
		return 1;
	case 33:
		return bus(gpu);
	case 75: // compute capability
		return 9;
	}
	return 0;
}

} // namespace emulator

API cuDeviceGetCount(int *count)
{
	if (Status s = ready())
		return s;
	*count = static_cast<int>(driver().settings.visible.size());
	return ok;
}

API cuDeviceGet(int *out, int ordinal)
{
	int gpu;
	if (Status s = device(ordinal, &gpu))
		return s;
	*out = ordinal;
	return ok;
}

API cuDeviceGetName(char *name, int length, int ordinal)
{
	int gpu;
	if (Status s = device(ordinal, &gpu))
		return s;
	snprintf(name, static_cast<size_t>(length), "Ringlane Emulated GPU%s", driver().settings.mig ? " MIG 1g.10gb" : "");
	return ok;
}

API cuDeviceGetUuid_v2(unsigned char *uuid, int ordinal)
{
	int gpu;
	if (Status s = device(ordinal, &gpu))
		return s;
	memcpy(uuid, "ringlane emulat", 15);
	uuid[15] = static_cast<unsigned char>(gpu);
	return ok;
}

API cuDeviceGetUuid(unsigned char *uuid, int ordinal) { return cuDeviceGetUuid_v2(uuid, ordinal); }

API cuDeviceGetPCIBusId(char *text, int length, int ordinal)
{
	int gpu;
	if (Status s = device(ordinal, &gpu))
		return s;
	if (length < 13)
		return invalid_value;
	snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", bus(gpu));
	return ok;
}

API cuDeviceTotalMem_v2(size_t *bytes, int ordinal)
{
	int gpu;
	if (Status s = device(ordinal, &gpu))
		return s;
	*bytes = driver().settings.memory;
	return ok;
}

API cuDeviceGetAttribute(int *value, int which, int ordinal)
{
	int gpu;
	if (Status s = device(ordinal, &gpu))
		return s;
	if (which < 1)
		return invalid_value;
	*value = attribute(which, gpu);
	return ok;
}

API cuDeviceCanAccessPeer(int *can, int ordinal, int peer)
{
	int gpu, of;
	if (Status s = device(ordinal, &gpu))
		return s;
	if (Status s = device(peer, &of))
		return s;
	*can = gpu != of && driver().settings.paths[gpu][of] != Path::off;
	return ok;
}

API cuDeviceGetP2PAttribute(int *value, int which, int ordinal, int peer)
{
	int can;
	if (Status s = cuDeviceCanAccessPeer(&can, ordinal, peer))
		return s;
	if (ordinal == peer)
		return invalid_device;
	switch (which) {
	case 1: // performance rank: the smaller the better
		*value = 0;
		return ok;
	case 2: // access
	case 4: // access to arrays
		*value = can;
		return ok;
	case 3: // native atomics, as over NVLink
		*value = 0;
		return ok;
	}
	return invalid_value;
}
