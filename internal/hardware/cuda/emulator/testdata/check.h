// What the cases use: the driver API as a program sees it, and checks.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <string>

typedef int Status;
typedef uint64_t Pointer;
struct Handle {
	char bytes[64];
};

extern "C" {
Status cuInit(unsigned);
Status cuDriverGetVersion(int *);
Status cuDeviceGetCount(int *);
Status cuDeviceGetAttribute(int *, int, int);
Status cuDeviceGetPCIBusId(char *, int, int);
Status cuDeviceGetUuid_v2(unsigned char *, int);
Status cuDeviceCanAccessPeer(int *, int, int);
Status cuDevicePrimaryCtxRetain(void **, int);
Status cuDevicePrimaryCtxRelease_v2(int);
Status cuDevicePrimaryCtxGetState(int, unsigned *, int *);
Status cuCtxSetCurrent(void *);
Status cuCtxGetCurrent(void **);
Status cuCtxPushCurrent_v2(void *);
Status cuCtxPopCurrent_v2(void **);
Status cuCtxSynchronize();
Status cuCtxEnablePeerAccess(void *, unsigned);
Status cuMemAlloc_v2(Pointer *, size_t);
Status cuMemFree_v2(Pointer);
Status cuMemGetInfo_v2(size_t *, size_t *);
Status cuMemHostAlloc(void **, size_t, unsigned);
Status cuMemFreeHost(void *);
Status cuMemHostRegister_v2(void *, size_t, unsigned);
Status cuMemHostUnregister(void *);
Status cuMemHostGetDevicePointer_v2(Pointer *, void *, unsigned);
Status cuMemGetAddressRange_v2(Pointer *, size_t *, Pointer);
Status cuPointerGetAttribute(void *, int, Pointer);
Status cuPointerGetAttributes(unsigned, const int *, void **, Pointer);
Status cuMemcpyHtoD_v2(Pointer, const void *, size_t);
Status cuMemcpyDtoH_v2(void *, Pointer, size_t);
Status cuMemcpyDtoD_v2(Pointer, Pointer, size_t);
Status cuMemcpyHtoDAsync_v2(Pointer, const void *, size_t, void *);
Status cuMemcpyDtoHAsync_v2(void *, Pointer, size_t, void *);
Status cuMemsetD8_v2(Pointer, unsigned char, size_t);
Status cuMemsetD32_v2(Pointer, unsigned, size_t);
Status cuMemsetD8Async(Pointer, unsigned char, size_t, void *);
Status cuIpcGetMemHandle(Handle *, Pointer);
Status cuIpcOpenMemHandle_v2(Pointer *, Handle, unsigned);
Status cuIpcCloseMemHandle(Pointer);
Status cuModuleLoadData(void **, const void *);
Status cuModuleGetFunction(void **, void *, const char *);
Status cuModuleUnload(void *);
Status cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
		      void **);
Status cuLaunchHostFunc(void *, void (*)(void *), void *);
Status cuStreamCreate(void **, unsigned);
Status cuStreamDestroy_v2(void *);
Status cuStreamSynchronize(void *);
Status cuStreamQuery(void *);
Status cuStreamWaitEvent(void *, void *, unsigned);
Status cuStreamBeginCapture_v2(void *, int);
Status cuStreamEndCapture(void *, void **);
Status cuStreamIsCapturing(void *, int *);
Status cuEventCreate(void **, unsigned);
Status cuEventDestroy_v2(void *);
Status cuEventRecord(void *, void *);
Status cuEventQuery(void *);
Status cuEventSynchronize(void *);
Status cuEventElapsedTime(float *, void *, void *);
Status cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
Status cuGraphLaunch(void *, void *);
Status cuGraphDestroy(void *);
Status cuGraphExecDestroy(void *);
Status cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
}

[[noreturn]] void fail(const char *file, int line, const std::string &what);

// CHECK ends the program unless what it is given holds; WANT, unless the call
// returns that status.
#define CHECK(yes) ((yes) ? (void)0 : fail(__FILE__, __LINE__, #yes))
#define WANT(status, call) require(status, call, __FILE__, __LINE__, #call)
#define OK(call) WANT(0, call)
inline void require(Status status, Status got, const char *file, int line, const char *call)
{
	if (got != status)
		fail(file, line, std::string(call) + " returned " + std::to_string(got));
}

// Case enters a function into what main runs by name.
struct Case {
	Case(const char *name, void (*run)()) { all()[name] = run; }
	static std::map<std::string, void (*)()> &all();
};
#define CASE(name)                                                                                             \
	static void name();                                                                                    \
	static Case case_##name(#name, name);                                                                  \
	static void name()

// use initialises the driver with the context of a GPU.
void use(int device = 0);
void *function(const char *name);
Pointer zeros(size_t bytes);

template <class T> T read(Pointer at)
{
	T value;
	OK(cuMemcpyDtoH_v2(&value, at, sizeof value));
	return value;
}

// launch puts a kernel with the parameter p on a stream.
template <class Params>
void launch(const char *name, unsigned blocks, unsigned threads, const Params &p, void *stream = nullptr)
{
	void *params[] = {const_cast<Params *>(&p)};
	OK(cuLaunchKernel(function(name), blocks, 1, 1, threads, 1, 1, 0, stream, params, nullptr));
}

struct AddParams {
	Pointer at;
	uint64_t term;
};
struct WaitParams {
	Pointer at, then;
	uint64_t value, nanoseconds;
};
constexpr uint64_t second = 1000000000;
