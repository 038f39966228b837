// Devices, contexts, memory, pointers.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "check.h"

CASE(devices)
{
	setenv("RINGLANE_EMULATOR", "gpus=4,sms=3,threads=64,memory=8M,p2p=off:0>1", 1);
	setenv("CUDA_VISIBLE_DEVICES", "2,0,1,9,3", 1); // ends at the 9
	use();
	int value;
	OK(cuDriverGetVersion(&value));
	CHECK(value == 12040);
	OK(cuDeviceGetCount(&value));
	CHECK(value == 3);
	OK(cuDeviceGetAttribute(&value, 16, 0));
	CHECK(value == 3);
	OK(cuDeviceGetAttribute(&value, 1, 0));
	CHECK(value == 64);
	OK(cuDeviceGetAttribute(&value, 75, 0));
	CHECK(value == 9);
	char address[16];
	unsigned char first[16], last[16];
	OK(cuDeviceGetPCIBusId(address, sizeof address, 0));
	CHECK(std::string(address) == "0000:12:00.0");
	OK(cuDeviceGetUuid_v2(first, 0));
	OK(cuDeviceGetUuid_v2(last, 2));
	CHECK(memcmp(first, last, 16) != 0);
	// Ordinals 1 and 2 are GPUs 0 and 1.
	for (int gpu = 0; gpu < 3; gpu++)
		for (int peer = 0; peer < 3; peer++) {
			OK(cuDeviceCanAccessPeer(&value, gpu, peer));
			CHECK(value == (gpu != peer && !(gpu == 1 && peer == 2)));
		}
	void *contexts[3];
	for (int i = 0; i < 3; i++)
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
	OK(cuCtxSetCurrent(contexts[1]));
	WANT(217, cuCtxEnablePeerAccess(contexts[2], 0));
	OK(cuCtxEnablePeerAccess(contexts[0], 0));
	WANT(704, cuCtxEnablePeerAccess(contexts[0], 0));
	WANT(101, cuDevicePrimaryCtxRetain(&contexts[0], 3));
	void *found;
	int status;
	OK(cuGetProcAddress_v2("cuMemAlloc", &found, 12040, 0, &status));
	CHECK(found == reinterpret_cast<void *>(cuMemAlloc_v2) && status == 0);
	WANT(500, cuGetProcAddress_v2("cuNothing", &found, 12040, 0, &status));
	CHECK(status == 1);
}

CASE(settings_that_are_refused)
{
	for (const char *text : {"gpu=2", "gpus=17", "gpus=-1", "gpus=", "sms=0", "threads=33", "threads=2048", "memory=1",
				 "memory=12X", "mig=2", "p2p=maybe", "p2p=drop:0", "p2p=drop:0>2", "p2p=drop:0>1>0", "gpus=2,,sms=1"}) {
		setenv("RINGLANE_EMULATOR", text, 1);
		WANT(1, cuInit(0));
	}
	int count;
	WANT(3, cuDeviceGetCount(&count));
	setenv("RINGLANE_EMULATOR", "gpus=0", 1);
	WANT(100, cuInit(0));
	WANT(100, cuInit(0));
}

CASE(contexts)
{
	void *context, *other, *top;
	Pointer at;
	unsigned flags;
	int active;
	WANT(3, cuCtxSetCurrent(nullptr));
	OK(cuInit(0));
	WANT(201, cuMemAlloc_v2(&at, 8));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(cuCtxPushCurrent_v2(context));
	OK(cuCtxPushCurrent_v2(other));
	OK(cuCtxGetCurrent(&top));
	CHECK(top == other);
	std::thread([] {
		Pointer none;
		WANT(201, cuMemAlloc_v2(&none, 8)); // a thread has its own
	}).join();
	OK(cuCtxPopCurrent_v2(&top));
	CHECK(top == other);
	OK(cuMemAlloc_v2(&at, 8));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuCtxSynchronize());
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK(active == 0);
	WANT(709, cuMemAlloc_v2(&at, 8));
	WANT(201, cuCtxPushCurrent_v2(context));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	WANT(1, cuMemFree_v2(at)); // it went with the context
}

CASE(memory)
{
	setenv("RINGLANE_EMULATOR", "memory=8M", 1);
	use();
	Pointer at, more, base;
	size_t bytes, free, total;
	OK(cuMemAlloc_v2(&at, 5000));
	OK(cuMemGetInfo_v2(&free, &total));
	CHECK(total == 8 << 20 && free < total);
	WANT(2, cuMemAlloc_v2(&more, 8 << 20));
	WANT(1, cuMemAlloc_v2(&more, 0));
	unsigned char byte;
	OK(cuMemcpyDtoH_v2(&byte, at + 17, 1));
	CHECK(byte != 0); // fresh memory is not zeros
	OK(cuMemGetAddressRange_v2(&base, &bytes, at + 4999));
	CHECK(base == at && bytes == 5000);
	WANT(500, cuMemGetAddressRange_v2(&base, &bytes, at + 5000));
	OK(cuMemsetD32_v2(at, 0x01020304, 1250));
	CHECK(read<uint32_t>(at + 4996) == 0x01020304);
	WANT(1, cuMemsetD32_v2(at, 0, 1251));
	WANT(1, cuMemsetD32_v2(at + 2, 0, 1));
	WANT(1, cuMemcpyDtoD_v2(at + 4000, at, 1001));
	OK(cuMemcpyDtoD_v2(at + 4000, at, 1000));
	WANT(1, cuMemFree_v2(at + 1));
	OK(cuMemFree_v2(at));
	WANT(1, cuMemFree_v2(at));
	OK(cuMemFree_v2(0));
	OK(cuMemGetInfo_v2(&free, &total));
	CHECK(free == total);
}

CASE(copies_of_pageable_memory)
{
	use();
	void *s;
	OK(cuStreamCreate(&s, 1));
	Pointer flag = zeros(8), done = zeros(8), at = zeros(1 << 16);
	launch("test_wait", 1, 32, WaitParams{flag, done, 1, 30 * second}, s);
	std::string text(1 << 16, 'a');
	OK(cuMemcpyHtoDAsync_v2(at, text.data(), text.size(), s));
	text.assign(1 << 16, 'b'); // the copy has what was there
	uint64_t one = 1;
	OK(cuMemcpyHtoD_v2(flag, &one, 8));
	OK(cuMemcpyDtoHAsync_v2(&text[0], at, text.size(), s));
	CHECK(text == std::string(1 << 16, 'a'));
}

CASE(host_memory_and_pointers)
{
	use();
	Pointer at = zeros(4096), same;
	void *pinned;
	static char registered[8192];
	OK(cuMemHostAlloc(&pinned, 4096, 3));
	OK(cuMemHostRegister_v2(registered + 100, 5000, 2));
	WANT(712, cuMemHostRegister_v2(registered + 5099, 100, 2));
	OK(cuMemHostRegister_v2(registered + 5100, 100, 2));
	OK(cuMemHostGetDevicePointer_v2(&same, registered + 200, 0));
	CHECK(same == reinterpret_cast<Pointer>(registered + 200));
	WANT(1, cuMemHostGetDevicePointer_v2(&same, registered + 99, 0));
	void *unmapped = mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(unmapped, 8192);
	WANT(1, cuMemHostRegister_v2(unmapped, 8192, 0));

	const int which[] = {2, 8, 9, 11, 12};
	unsigned kind;
	bool managed;
	int ordinal;
	Pointer start;
	size_t bytes;
	void *values[] = {&kind, &managed, &ordinal, &start, &bytes};
	OK(cuPointerGetAttributes(5, which, values, at + 10));
	CHECK(kind == 2 && !managed && ordinal == 0 && start == at && bytes == 4096);
	OK(cuPointerGetAttributes(5, which, values, reinterpret_cast<Pointer>(registered + 200)));
	CHECK(kind == 1 && start == reinterpret_cast<Pointer>(registered + 100) && bytes == 5000);
	OK(cuPointerGetAttributes(5, which, values, reinterpret_cast<Pointer>(&at)));
	CHECK(kind == 0 && ordinal == -2 && start == 0);
	WANT(1, cuPointerGetAttribute(&kind, 2, reinterpret_cast<Pointer>(&at)));

	// A kernel that works in host memory.
	launch("test_add", 1, 32, AddParams{reinterpret_cast<Pointer>(pinned), 41});
	OK(cuCtxSynchronize());
	CHECK(*static_cast<uint64_t *>(pinned) == 41);
	OK(cuMemHostUnregister(registered + 100));
	WANT(713, cuMemHostUnregister(registered + 100));
	OK(cuMemFreeHost(pinned));
	WANT(1, cuMemFreeHost(pinned));
}

// A driver does not live on in the child of a fork.
CASE(fork_has_no_driver)
{
	use();
	pid_t child = fork();
	if (child == 0) {
		Pointer at;
		WANT(3, cuMemAlloc_v2(&at, 8));
		WANT(3, cuInit(0));
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	zeros(8);
}
