package reduce

import "math"

// The conversions below round to nearest, ties to even, overflow to infinity,
// and know subnormals of the 16-bit types. They use no operation on a subnormal
// f32, so that a thread that flushes those to zero converts like any other.

// F16ToF32 returns the value of the binary16 bit pattern h. It is exact; a NaN
// keeps its sign and payload and becomes quiet.
func F16ToF32(h uint16) float32 {
	m := uint32(h & 0x7fff)
	v := m<<13 + (127-15)<<23
	// Below the normal range: put m at the bottom of 0.5 (whose unit in the last
	// place is 2^-24, as that of binary16 subnormals) and take 0.5 away again.
	sub := math.Float32bits(math.Float32frombits(0x3f000000|m) - 0.5)
	if m < 0x0400 {
		v = sub
	}
	if m >= 0x7c00 {
		v = specialF16(m)
	}
	return math.Float32frombits(v | uint32(h&0x8000)<<16)
}

// specialF16 is the f32 bit pattern of a binary16 infinity or NaN.
func specialF16(m uint32) uint32 {
	if m > 0x7c00 {
		m |= 0x0200
	}
	return m<<13 | 0x7f800000
}

// f16Limit is the f32 bit pattern of 2^16, from where on nothing but its sign
// remains of a number in binary16.
const f16Limit = 0x47800000

// F32ToF16 returns the binary16 bit pattern nearest to f, 0x7e00 for every NaN.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	switch m := b & 0x7fffffff; {
	case m > 0x7f800000:
		return 0x7e00
	case m >= f16Limit:
		return uint16(b>>16&0x8000 | 0x7c00)
	}
	return uint16(roundF16(b))
}

// roundF16 is F32ToF16 for the bit pattern of an f32 below 2^16 in magnitude. It
// has no branch, since small gradients fall on both sides of the normal range.
func roundF16(b uint32) uint64 {
	m := b & 0x7fffffff
	v := (m - (127-15)<<23 + 0x0fff + m>>13&1) >> 13
	// Below the normal range the addition does the rounding: see F16ToF32.
	sub := math.Float32bits(math.Float32frombits(m)+0.5) - 0x3f000000
	below := uint32(int32(m-0x38800000) >> 31)
	return uint64(v ^ (v^sub)&below | b>>16&0x8000)
}

// BF16ToF32 returns the value of the bfloat16 bit pattern h. It is exact; a NaN
// keeps its sign and payload and becomes quiet.
func BF16ToF32(h uint16) float32 {
	v := uint32(h) << 16
	if h&0x7fff > 0x7f80 {
		v |= 0x00400000
	}
	return math.Float32frombits(v)
}

// F32ToBF16 returns the bfloat16 bit pattern nearest to f, 0x7fc0 for every NaN.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	v := (b + 0x7fff + b>>16&1) >> 16
	if f != f {
		v = 0x7fc0
	}
	return uint16(v)
}
