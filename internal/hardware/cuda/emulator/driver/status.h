// What functions of the driver return.
#pragma once

namespace emulator {

enum Status : int {
	ok = 0,
	invalid_value = 1,
	out_of_memory = 2,
	not_initialized = 3,
	no_device = 100,
	invalid_device = 101,
	invalid_image = 200,
	invalid_context = 201,
	map_failed = 205,
	peer_access_unsupported = 217,
	operating_system = 304,
	invalid_handle = 400,
	not_found = 500,
	not_ready = 600,
	launch_out_of_resources = 701,
	peer_access_already_enabled = 704,
	context_is_destroyed = 709,
	host_memory_already_registered = 712,
	host_memory_not_registered = 713,
	not_supported = 801,
	capture_unsupported = 900,
	capture_invalidated = 901,
	capture_merge = 902,
	capture_unmatched = 903,
	capture_unjoined = 904,
	capture_isolation = 905,
	capture_implicit = 906,
	captured_event = 907,
	capture_wrong_thread = 908,
};

} // namespace emulator
