// Arithmetic on words of 8 bytes. The law is the Go kernels of package reduce:
// terms are combined in rank order in the accumulator type and rounded once, and
// a NaN in a result is the one positive quiet NaN without payload.
#pragma once
#include "params.cuh"

RL_DEVICE float quiet_nan(float) { return bits_f32(0x7fc00000u); }
RL_DEVICE double quiet_nan(double) { return bits_f64(0x7ff8000000000000ull); }

template <class A> RL_DEVICE A finish(A v, u32 divisor)
{
	if (divisor > 1)
		v = v / (A)divisor;
	return v;
}
// 1/divisor is no float in general, so this divides; rounding is to nearest.
RL_DEVICE float finish(float v, u32 divisor)
{
	if (divisor > 1)
		v = v / (float)divisor;
	return v == v ? v : quiet_nan(v);
}
RL_DEVICE double finish(double v, u32 divisor)
{
	if (divisor > 1)
		v = v / (double)divisor;
	return v == v ? v : quiet_nan(v);
}

struct F32 {
	typedef float Acc;
	static constexpr int per_word = 2;
	RL_DEVICE void unpack(u64 w, Acc *a)
	{
		a[0] = bits_f32((u32)w);
		a[1] = bits_f32((u32)(w >> 32));
	}
	RL_DEVICE u64 pack(const Acc *a) { return f32_bits(a[0]) | (u64)f32_bits(a[1]) << 32; }
};

struct F64 {
	typedef double Acc;
	static constexpr int per_word = 1;
	RL_DEVICE void unpack(u64 w, Acc *a) { a[0] = bits_f64(w); }
	RL_DEVICE u64 pack(const Acc *a) { return f64_bits(a[0]); }
};

struct F16 {
	typedef float Acc;
	static constexpr int per_word = 4;
	RL_DEVICE void unpack(u64 w, Acc *a)
	{
#pragma unroll
		for (int i = 0; i < 4; i++)
			a[i] = f16_to_f32((u16)(w >> 16 * i));
	}
	// The hardware's NaN is not ours.
	RL_DEVICE u64 narrow(float v) { return v == v ? f32_to_f16(v) : 0x7e00; }
	RL_DEVICE u64 pack(const Acc *a) { return narrow(a[0]) | narrow(a[1]) << 16 | narrow(a[2]) << 32 | narrow(a[3]) << 48; }
};

struct BF16 {
	typedef float Acc;
	static constexpr int per_word = 4;
	RL_DEVICE void unpack(u64 w, Acc *a)
	{
		a[0] = bits_f32((u32)w << 16);
		a[1] = bits_f32((u32)w & 0xffff0000u);
		a[2] = bits_f32((u32)(w >> 32) << 16);
		a[3] = bits_f32((u32)(w >> 32) & 0xffff0000u);
	}
	// Rounds to nearest, ties to even. finish has left no NaN but the one.
	RL_DEVICE u32 narrow(float v)
	{
		u32 bits = f32_bits(v);
		return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
	}
	RL_DEVICE u64 pack(const Acc *a)
	{
		u32 lo = narrow(a[0]) | narrow(a[1]) << 16, hi = narrow(a[2]) | narrow(a[3]) << 16;
		return lo | (u64)hi << 32;
	}
};

// Integer is any integer type: combined in 32 or 64 bits, which wraps to the
// same value, and cut to its own width before it is divided.
template <class T, class A> struct Integer {
	typedef A Acc;
	static constexpr int per_word = 8 / sizeof(T);
	static constexpr int bits = 8 * sizeof(T);
	RL_DEVICE void unpack(u64 w, Acc *a)
	{
#pragma unroll
		for (int i = 0; i < per_word; i++)
			a[i] = (T)(w >> bits * i);
	}
	RL_DEVICE u64 pack(const Acc *a)
	{
		u64 w = 0;
#pragma unroll
		for (int i = 0; i < per_word; i++)
			w |= ((u64)a[i] & (~0ull >> (64 - bits))) << bits * i;
		return w;
	}
};
typedef Integer<i8, i32> I8;
typedef Integer<u8, i32> U8;
typedef Integer<i32, i32> I32;
typedef Integer<i64, i64> I64;

// wrapped is what the element type holds of an accumulator.
template <class T> struct Wrapped {
	template <class A> RL_DEVICE A of(A v) { return v; }
};
template <class N, class A> struct Wrapped<Integer<N, A>> {
	RL_DEVICE A of(A v) { return (A)(N)v; }
};

template <u32 op> struct Combine;
template <> struct Combine<op_sum> {
	RL_DEVICE float of(float a, float b) { return a + b; }
	RL_DEVICE double of(double a, double b) { return a + b; }
	RL_DEVICE i32 of(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
	RL_DEVICE i64 of(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
};
template <> struct Combine<op_prod> {
	RL_DEVICE float of(float a, float b) { return a * b; }
	RL_DEVICE double of(double a, double b) { return a * b; }
	RL_DEVICE i32 of(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
	RL_DEVICE i64 of(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
};
// Zeros compare equal whatever their sign; min of them is -0, max is +0.
template <> struct Combine<op_min> {
	RL_DEVICE float of(float a, float b)
	{
		return a < b || a != a ? a : a == b ? bits_f32(f32_bits(a) | f32_bits(b)) : b;
	}
	RL_DEVICE double of(double a, double b)
	{
		return a < b || a != a ? a : a == b ? bits_f64(f64_bits(a) | f64_bits(b)) : b;
	}
	template <class A> RL_DEVICE A of(A a, A b) { return a < b ? a : b; }
};
template <> struct Combine<op_max> {
	RL_DEVICE float of(float a, float b)
	{
		return a > b || a != a ? a : a == b ? bits_f32(f32_bits(a) & f32_bits(b)) : b;
	}
	RL_DEVICE double of(double a, double b)
	{
		return a > b || a != a ? a : a == b ? bits_f64(f64_bits(a) & f64_bits(b)) : b;
	}
	template <class A> RL_DEVICE A of(A a, A b) { return a > b ? a : b; }
};

// combine adds the word of one more term to the accumulators of a word.
template <class T, u32 op> RL_DEVICE void combine(typename T::Acc *a, u64 w)
{
	typename T::Acc b[T::per_word];
	T::unpack(w, b);
#pragma unroll
	for (int i = 0; i < T::per_word; i++)
		a[i] = Combine<op>::of(a[i], b[i]);
}

// add_terms adds the n words of one more term to their accumulators; the first
// term sets them. op is the same in all threads, so the branch costs little.
template <class T, int n> RL_DEVICE void add_terms(u32 op, bool first, typename T::Acc (&a)[n][T::per_word], const u64 (&w)[n])
{
	if (first) {
#pragma unroll
		for (int i = 0; i < n; i++)
			T::unpack(w[i], a[i]);
		return;
	}
	if (op <= op_avg) { // most often
#pragma unroll
		for (int i = 0; i < n; i++)
			combine<T, op_sum>(a[i], w[i]);
		return;
	}
#define RL_CASE(op)                                                                                                   \
	case op:                                                                                                      \
		_Pragma("unroll") for (int i = 0; i < n; i++) combine<T, op>(a[i], w[i]);                            \
		break;
	switch (op) {
		RL_CASE(op_min)
		RL_CASE(op_max)
		RL_CASE(op_prod)
	}
#undef RL_CASE
}

// result is the word that accumulators come to, divided if divisor is over 1.
template <class T> RL_DEVICE u64 result(typename T::Acc *a, u32 divisor)
{
#pragma unroll
	for (int i = 0; i < T::per_word; i++)
		a[i] = finish(Wrapped<T>::of(a[i]), divisor);
	return T::pack(a);
}
