// The emulator's half of kernels/machine.cuh: the same names, for kernels that
// run on processors. A thread of a GPU is a fiber here (driver/block.cc), and
// the memory model is that of the processor, through the compiler's atomics.
//
// It includes nothing that declares functions of the C library: pause is one.
#pragma once

#include "driver/lane.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;

#define RL_DEVICE static inline
#define RL_OUTLINE static __attribute__((noinline))

// A kernel enters itself under its name. Its parameter is one struct, p; a block
// has at most most threads.
#define RL_KERNEL(name, Params, most) RL_KERNEL_EXPANDED(name, Params, most)
#define RL_KERNEL_EXPANDED(name, Params, most)                                                                 \
	static void name(const Params &p);                                                                     \
	static const emulator::Kernel kernel_##name(#name, sizeof(Params), most, [](const void *params) {      \
		name(*static_cast<const Params *>(params));                                                    \
	});                                                                                                    \
	static void name(const Params &p)

// Every block runs on an OS thread of its own. As on a GPU, what lies there
// when a block starts is what another block left.
#define RL_SHARED static __thread

// A plain assignment of a pair may be a store into the memory of a peer.
struct alignas(16) Pair {
	u64 lo, hi;

	Pair() = default;
	Pair(const Pair &) = default;
	Pair &operator=(const Pair &v)
	{
		lo = __builtin_expect(emulator::corrupting, false) ? emulator::corrupt(this, v.lo) : v.lo;
		hi = v.hi;
		return *this;
	}
};

RL_DEVICE u32 thread() { return emulator::lane->thread; }
RL_DEVICE u32 threads() { return emulator::lane->grid->threads; }
RL_DEVICE u32 block() { return emulator::lane->block; }
RL_DEVICE u32 blocks() { return emulator::lane->grid->blocks; }

// What comes before in a stream has ended when a kernel begins.
RL_DEVICE void follow() {}

RL_DEVICE void barrier() { emulator::barrier(0, 0); }
RL_DEVICE void barrier(u32 id, u32 count) { emulator::barrier(id, count); }
RL_DEVICE void arrive(u32 id, u32 count) { emulator::arrive(id, count); }
RL_DEVICE bool warp_all(bool yes) { return emulator::vote(yes); }
RL_DEVICE u64 warp_take(u64 v, u32 from) { return emulator::take(v, from); }
RL_DEVICE void pause() { emulator::pause(); }

// A pair is two stores and two loads: who sees the new hi sees the new lo, or
// one newer still. Protocols keep their flag in hi, or one flag in each half.
RL_DEVICE Pair load_pair(const Pair *at)
{
	Pair v;
	v.hi = __atomic_load_n(&at->hi, __ATOMIC_ACQUIRE);
	v.lo = __atomic_load_n(&at->lo, __ATOMIC_RELAXED);
	if (__builtin_expect(emulator::corrupting, false))
		v.lo = emulator::corrupt(at, v.lo);
	return v;
}

RL_DEVICE void store_pair(Pair *at, Pair v)
{
	if (__builtin_expect(emulator::corrupting, false))
		v.lo = emulator::corrupt(at, v.lo);
	__atomic_store_n(&at->lo, v.lo, __ATOMIC_RELAXED);
	__atomic_store_n(&at->hi, v.hi, __ATOMIC_RELEASE);
}

// reload loads a pair again, after the lanes of a warp, which load one after
// the other here, have agreed that the flag of their line is there.
RL_DEVICE void reload(const Pair *at, Pair &v) { v = load_pair(at); }

RL_DEVICE u64 load_acquire(const u64 *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
RL_DEVICE u32 load_relaxed(const u32 *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
RL_DEVICE u64 load_relaxed(const u64 *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
RL_DEVICE void store_relaxed(u64 *at, u64 v) { __atomic_store_n(at, v, __ATOMIC_RELAXED); }
RL_DEVICE void store_release(u64 *at, u64 v) { __atomic_store_n(at, v, __ATOMIC_RELEASE); }
RL_DEVICE void fence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

RL_DEVICE u32 swap_if(u32 *at, u32 expected, u32 desired)
{
	__atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return expected;
}

RL_DEVICE float bits_f32(u32 bits) { return __builtin_bit_cast(float, bits); }
RL_DEVICE u32 f32_bits(float v) { return __builtin_bit_cast(u32, v); }
RL_DEVICE double bits_f64(u64 bits) { return __builtin_bit_cast(double, bits); }
RL_DEVICE u64 f64_bits(double v) { return __builtin_bit_cast(u64, v); }

// An f16 is 1 bit of sign, 5 of exponent with bias 15, 10 of fraction.
RL_DEVICE float f16_to_f32(u16 bits)
{
	u32 sign = (u32)(bits >> 15) << 31, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
	if (exponent == 31)
		return bits_f32(sign | 0x7f800000u | fraction << 13);
	if (exponent == 0) { // a multiple of 2^-24
		float v = (float)fraction * 0x1p-24f;
		return sign ? -v : v;
	}
	return bits_f32(sign | (exponent + 112) << 23 | fraction << 13);
}

// f32_to_f16 rounds to nearest, ties to even.
RL_DEVICE u16 f32_to_f16(float v)
{
	u32 bits = f32_bits(v), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
	if (size > 0x7f800000)
		return 0x7fff; // as the GPU has it
	if (size >= 0x477ff000) // what rounds to 65536 or more
		return (u16)(sign | 0x7c00);
	if (size < 0x38800000) { // subnormal: adding 0.5 leaves multiples of 2^-24
		float shifted = bits_f32(size) + 0.5f;
		return (u16)(sign | (f32_bits(shifted) - 0x3f000000u));
	}
	size -= 112u << 23;
	return (u16)(sign | (size + 0xfff + (size >> 13 & 1)) >> 13);
}

RL_DEVICE u64 now() { return emulator::now(); }
