// Names and texts of what functions return.
#include "driver.h"

using namespace emulator;

namespace {

struct Text {
	int status;
	const char *name, *text;
};

const Text texts[] = {
	{ok, "CUDA_SUCCESS", "no error"},
	{invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{invalid_image, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
	{invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{map_failed, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
	{peer_access_unsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
	 "peer access is not supported between these two devices"},
	{operating_system, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
	{invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{not_found, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
	{launch_out_of_resources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
	{peer_access_already_enabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	{context_is_destroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
	{host_memory_already_registered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	 "part or all of the requested memory range is already mapped"},
	{host_memory_not_registered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
	 "pointer does not correspond to a registered memory region"},
	{capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	 "operation not permitted when stream is capturing"},
	{capture_invalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	 "operation failed due to a previous error during capture"},
	{capture_merge, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
	 "operation would result in a merge of separate capture sequences"},
	{capture_unmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
	 "capture was not ended in the same stream as it began"},
	{capture_unjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
	{capture_isolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
	 "dependency created on uncaptured work in another stream"},
	{capture_implicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
	 "operation would make the legacy stream depend on a capturing blocking stream"},
	{captured_event, "CUDA_ERROR_CAPTURED_EVENT",
	 "operation not permitted on an event last recorded in a capturing stream"},
	{capture_wrong_thread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
	 "attempt to terminate a thread-local capture sequence from another thread"},
};

const Text *find_text(int status)
{
	for (const Text &t : texts)
		if (t.status == status)
			return &t;
	return nullptr;
}

} // namespace

API cuGetErrorName(int status, const char **name)
{
	const Text *found = find_text(status);
	*name = found ? found->name : nullptr;
	return found ? ok : invalid_value;
}

API cuGetErrorString(int status, const char **text)
{
	const Text *found = find_text(status);
	*text = found ? found->text : nullptr;
	return found ? ok : invalid_value;
}
