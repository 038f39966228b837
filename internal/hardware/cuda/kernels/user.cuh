// Buffers of the user: any address, any length. They are read and written in
// words of 8 bytes counted from their start; the last one may be short.
#pragma once
#include "machine.cuh"

struct Span {
	u8 *base;
	u64 bytes;
	bool aligned; // to a word
};

RL_DEVICE Span span(u64 buffer, u64 at, u64 bytes)
{
	u64 base = buffer + at;
	return Span{(u8 *)base, bytes, (base & 7) == 0};
}

RL_DEVICE u64 words(u64 bytes) { return (bytes + 7) / 8; }

// gather puts a word together of pieces as large as the address allows.
RL_OUTLINE u64 gather_word(const u8 *at, u32 bytes)
{
	u64 w = 0;
	if (((u64)at & 3) == 0 && bytes == 8)
		return *(const u32 *)at | (u64) * (const u32 *)(at + 4) << 32;
	if ((((u64)at | bytes) & 1) == 0) {
		for (u32 i = 0; i < bytes; i += 2)
			w |= (u64) * (const u16 *)(at + i) << 8 * i;
		return w;
	}
	for (u32 i = 0; i < bytes; i++)
		w |= (u64)at[i] << 8 * i;
	return w;
}

RL_OUTLINE void scatter_word(u8 *at, u64 w, u32 bytes)
{
	if (((u64)at & 3) == 0 && bytes == 8) {
		*(u32 *)at = (u32)w;
		*(u32 *)(at + 4) = (u32)(w >> 32);
		return;
	}
	if ((((u64)at | bytes) & 1) == 0) {
		for (u32 i = 0; i < bytes; i += 2)
			*(u16 *)(at + i) = (u16)(w >> 8 * i);
		return;
	}
	for (u32 i = 0; i < bytes; i++)
		at[i] = (u8)(w >> 8 * i);
}

// load_word is word i, or 0 behind the end.
RL_DEVICE u64 load_word(const Span &s, u64 i)
{
	u64 at = 8 * i;
	if (s.aligned && at + 8 <= s.bytes)
		return *(const u64 *)(s.base + at);
	if (at >= s.bytes)
		return 0;
	return gather_word(s.base + at, s.bytes - at < 8 ? (u32)(s.bytes - at) : 8);
}

RL_DEVICE void store_word(const Span &s, u64 i, u64 w)
{
	u64 at = 8 * i;
	if (s.aligned && at + 8 <= s.bytes) {
		*(u64 *)(s.base + at) = w;
		return;
	}
	if (at < s.bytes)
		scatter_word(s.base + at, w, s.bytes - at < 8 ? (u32)(s.bytes - at) : 8);
}
