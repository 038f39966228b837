package reduce

import (
	"encoding/binary"
	"math"
	"math/bits"

	"ringlane/internal/model/dtype"
)

//go:generate go -C avo run . ..

// routine combines elements lo to hi of the sources into the same elements of
// dst and, unless it is nil, of also, in one pass, in assembly. What scale means
// depends on the routine: see scales. It keeps within the elements, and needs no
// alignment.
type routine func(dst, also *byte, srcs *Source, terms, lo, hi int, wide bool, scale uint64)

// routines is what one instruction set has, nil where it has nothing: for each
// operator but Avg, and for the sum with something done to it.
type routines [dtype.I64 + 1][multiplied + 1]routine

const (
	divided    = dtype.Avg      // sum, divided
	multiplied = dtype.Prod + 1 // sum, times a reciprocal that is exact; for floats
)

// turn is the number of bytes of narrow elements that a routine is called for at
// a time. A goroutine cannot be interrupted in assembly, and the collector must
// not wait long; besides, what has just been combined is still in cache.
const turn = 32 << 10

// vector calls routines for op over t.
type vector struct {
	op           dtype.Op
	narrow, wide int                  // sizes of elements
	whole        routine              // for a divisor of 1
	divide       routine              // for others; nil for I64, which is divided here
	multiply     routine              // for powers of two, which is faster; nil for integers
	divisor      func(div int) uint64 // scale for divide
	reciprocal   func(div int) uint64 // scale for multiply
}

// scales says how routines want to know the divisor.
var scales = [...]struct{ divisor, reciprocal func(div int) uint64 }{
	dtype.F32:  {divisorF32, reciprocalF32},
	dtype.F64:  {divisorF64, reciprocalF64},
	dtype.F16:  {divisorF32, reciprocalF32},
	dtype.BF16: {divisorF32, reciprocalF32},
	dtype.I8:   {divisor: byteScale},
	dtype.U8:   {divisor: byteScale},
	// The reciprocal is never too small, so that whole quotients stay whole, and
	// too large by so little that no other one of an i32 gets there.
	dtype.I32: {divisor: func(div int) uint64 { return math.Float64bits(math.Nextafter(1/float64(div), 1)) }},
	dtype.I64: {},
}

func divisorF32(div int) uint64    { return uint64(math.Float32bits(float32(div))) }
func reciprocalF32(div int) uint64 { return uint64(math.Float32bits(1 / float32(div))) }
func divisorF64(div int) uint64    { return math.Float64bits(float64(div)) }
func reciprocalF64(div int) uint64 { return math.Float64bits(1 / float64(div)) }

// byteScale is 2^16/div, rounded up, twice: the upper half of its product with x
// is x/div for every x below 2^16/div. With any larger div nothing is left of a
// byte, and nothing of this product.
func byteScale(div int) uint64 {
	div = min(div, 1<<16)
	m := uint64((1<<16 + div - 1) / div)
	return m | m<<16
}

// kernel returns the kernel for op over t, nil if it takes a routine that is not
// there.
func (r *routines) kernel(t dtype.Type, op dtype.Op) Kernel {
	if !t.Valid() || !op.Valid() {
		return nil
	}
	v := vector{op: op, narrow: t.Size(), wide: dtype.Accumulator(t, op).Size(), whole: r[t][op]}
	if op == dtype.Avg {
		v.whole, v.divide, v.multiply = r[t][dtype.Sum], r[t][divided], r[t][multiplied]
		v.divisor, v.reciprocal = scales[t].divisor, scales[t].reciprocal
		if v.divide == nil && t != dtype.I64 {
			return nil
		}
	}
	if v.whole == nil {
		return nil
	}
	return v.reduce
}

func (v *vector) reduce(dst, also []byte, wide bool, srcs []Source, ranks int) {
	n := elements(dst, also, wide, srcs, v.narrow, v.wide)
	run, scale := v.whole, uint64(0)
	div := divisor(v.op, wide, ranks)
	switch {
	case div == 1:
	case v.multiply != nil && div&(div-1) == 0:
		run, scale = v.multiply, v.reciprocal(div)
	case v.divide != nil:
		run, scale = v.divide, v.divisor(div)
	}
	var second *byte
	if len(also) > 0 {
		second = &also[0]
	}
	step := turn >> bits.TrailingZeros(uint(v.narrow))
	for lo := 0; lo < n; lo += step {
		hi := min(lo+step, n)
		if div != 1 && v.divide == nil {
			run(&dst[0], nil, &srcs[0], len(srcs), lo, hi, wide, scale)
			divideI64(dst[8*lo:8*hi], div)
			if second != nil {
				copy(also[8*lo:8*hi], dst[8*lo:8*hi])
			}
			continue
		}
		run(&dst[0], second, &srcs[0], len(srcs), lo, hi, wide, scale)
	}
}

// divideI64 divides the elements of b, at any alignment, truncating.
func divideI64(b []byte, div int) {
	d := int64(div)
	if d&(d-1) == 0 {
		shift := bits.TrailingZeros64(uint64(d))
		for ; len(b) >= 8; b = b[8:] {
			x := int64(binary.LittleEndian.Uint64(b))
			x += x >> 63 & (d - 1) // towards zero
			binary.LittleEndian.PutUint64(b, uint64(x>>shift))
		}
		return
	}
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, uint64(int64(binary.LittleEndian.Uint64(b))/d))
	}
}
