// What kernels ask of the machine. Compiled for a GPU these are instructions of
// its memory model; the emulator, which runs the same kernels on processors,
// has its own half in ../emulator/machine.h.
//
// Stores that another GPU or a processor waits for are of system scope. A pair
// is loaded and stored as one: PTX makes 16 bytes single-copy atomic from sm_70
// on. That 64 or 128 bytes stored by neighbouring lanes in one instruction
// arrive together is not promised anywhere; it is measured before it is used
// (probe.cu).
#pragma once

#ifndef __CUDACC__
#include "../emulator/machine.h"
#else

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;

#define RL_DEVICE static __device__ __forceinline__
// RL_KERNEL opens a kernel of one parameter, p, for blocks of at most most threads.
#define RL_KERNEL(name, Params, most) extern "C" __global__ void __launch_bounds__(most, 1) name(const __grid_constant__ Params p)
// RL_OUTLINE is for what is rare: it is called, not inlined.
#define RL_OUTLINE static __device__ __noinline__
#define RL_SHARED __shared__

struct alignas(16) Pair {
	u64 lo, hi;
};

RL_DEVICE u32 thread() { return threadIdx.x; }
RL_DEVICE u32 threads() { return blockDim.x; }
RL_DEVICE u32 block() { return blockIdx.x; }
RL_DEVICE u32 blocks() { return gridDim.x; }

// follow waits until what was launched before in the stream has ended, as a kernel
// does that was launched early, before it reads or writes anything. Then the next
// kernel may be placed, up to this line of it.
RL_DEVICE void follow()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// barrier waits for all threads of the block that have not returned.
RL_DEVICE void barrier() { __syncthreads(); }

// barrier waits until count threads, whole warps, have come to barrier id, 1 to 15.
RL_DEVICE void barrier(u32 id, u32 count)
{
	asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// arrive counts this thread as come to such a barrier, and does not wait.
RL_DEVICE void arrive(u32 id, u32 count) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory"); }

// warp_all reports whether yes holds in all lanes of the warp, which all call it.
RL_DEVICE bool warp_all(bool yes) { return __all_sync(0xffffffffu, yes); }

// warp_take is what lane from of the warp, which all lanes name, has as v.
RL_DEVICE u64 warp_take(u64 v, u32 from) { return __shfl_sync(0xffffffffu, v, from); }

// pause is for threads that poll: nothing here, where warps run by themselves.
RL_DEVICE void pause() {}

RL_DEVICE Pair load_pair(const Pair *at)
{
	Pair v;
	asm volatile("{ .reg .b128 t; ld.relaxed.sys.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }"
		     : "=l"(v.lo), "=l"(v.hi)
		     : "l"(at)
		     : "memory");
	return v;
}

RL_DEVICE void store_pair(Pair *at, Pair v)
{
	asm volatile("{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.sys.global.b128 [%0], t; }" ::"l"(at), "l"(v.lo),
		     "l"(v.hi)
		     : "memory");
}

// reload is for a machine on which the lanes of a warp load one after the other:
// there a lane may have read its pair of a line before the lane after it saw
// the line's flag.
RL_DEVICE void reload(const Pair *, Pair &) {}

RL_DEVICE u64 load_acquire(const u64 *at)
{
	u64 v;
	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
	return v;
}

RL_DEVICE u32 load_relaxed(const u32 *at)
{
	u32 v;
	asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
	return v;
}

RL_DEVICE u64 load_relaxed(const u64 *at)
{
	u64 v;
	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
	return v;
}

RL_DEVICE void store_relaxed(u64 *at, u64 v)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

RL_DEVICE void store_release(u64 *at, u64 v)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

// fence_system orders what this thread, and those that it has met at a barrier,
// have stored before it, for every observer of the system.
RL_DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// swap_if stores desired at at if expected is there, and returns what was there.
// Only for memory of the own GPU.
RL_DEVICE u32 swap_if(u32 *at, u32 expected, u32 desired)
{
	u32 was;
	asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
		     : "=r"(was)
		     : "l"(at), "r"(expected), "r"(desired)
		     : "memory");
	return was;
}

RL_DEVICE float f16_to_f32(u16 bits)
{
	float v;
	asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
	return v;
}

RL_DEVICE u16 f32_to_f16(float v)
{
	u16 bits;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
	return bits;
}

RL_DEVICE float bits_f32(u32 bits) { return __uint_as_float(bits); }
RL_DEVICE u32 f32_bits(float v) { return __float_as_uint(v); }
RL_DEVICE double bits_f64(u64 bits) { return __longlong_as_double((long long)bits); }
RL_DEVICE u64 f64_bits(double v) { return (u64)__double_as_longlong(v); }

// now is a clock in nanoseconds. It may tick as coarsely as once in a microsecond.
RL_DEVICE u64 now()
{
	u64 t;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
	return t;
}

#endif
