package reduce

import (
	"encoding/binary"
	"math"
	"sync"

	"ringlane/internal/model/dtype"
)

// half combines terms of a 16-bit float type in f32.
type half struct {
	op dtype.Op
	// f16 holds the value of every binary16 bit pattern; it is nil for bf16.
	f16 *[1 << 16]float32
	// wide is the size of a wide element. It is 2 for min and max, which round
	// nothing: there f32 is merely the type in which terms are compared.
	wide int
}

// f16Values is a table because a look-up takes half the time of F16ToF32. It is
// made when first needed.
var f16Values = sync.OnceValue(func() *[1 << 16]float32 {
	var values [1 << 16]float32
	for i := range values {
		values[i] = F16ToF32(uint16(i))
	}
	return &values
})

// halfKernel returns the kernel for op over t, F16 or BF16.
func halfKernel(t dtype.Type, op dtype.Op) Kernel {
	h := half{op: op, wide: dtype.Accumulator(t, op).Size()}
	if t == dtype.F16 {
		h.f16 = f16Values()
	}
	return h.reduce
}

func (h half) reduce(dst, also []byte, wide bool, srcs []Source, ranks int) {
	n := elements(dst, also, wide, srcs, 2, h.wide)
	div := divisor(h.op, wide, ranks)
	nan := quietNaN[float32]()
	var acc, term [block]float32
	for lo := 0; lo < n; lo += block {
		hi := min(lo+block, n)
		a, t := acc[:hi-lo], term[:hi-lo]
		h.load(a, srcs[0], lo)
		if len(srcs) == 1 {
			quiet(a, nan)
		}
		for _, src := range srcs[1:] {
			h.load(t, src, lo)
			combine(h.op, a, [][]float32{a, t})
		}
		divide(a, div)
		h.store(dst, wide, a, lo)
	}
	copy(also, dst)
}

// load sets dst to the elements of src from index lo on.
func (h half) load(dst []float32, src Source, lo int) {
	hi := lo + len(dst)
	switch {
	case src.Wide && h.wide == 4:
		copy(Bytes(dst), src.Data[4*lo:4*hi])
	case h.f16 != nil:
		widenF16(dst, src.Data[2*lo:2*hi], h.f16)
	default:
		widenBF16(dst, src.Data[2*lo:2*hi])
	}
}

// store sets the elements of dst from index lo on to src, in which every NaN is
// the quiet one.
func (h half) store(dst []byte, wide bool, src []float32, lo int) {
	hi := lo + len(src)
	switch {
	case wide && h.wide == 4:
		copy(dst[4*lo:4*hi], Bytes(src))
	case h.f16 != nil:
		narrowF16(dst[2*lo:2*hi], src)
	default:
		narrowBF16(dst[2*lo:2*hi], src)
	}
}

// The loops below move four elements at a time through one 64-bit word, which
// needs no alignment of the bytes.

func widenF16(dst []float32, src []byte, values *[1 << 16]float32) {
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0] = values[uint16(w)]
		dst[1] = values[uint16(w>>16)]
		dst[2] = values[uint16(w>>32)]
		dst[3] = values[uint16(w>>48)]
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = values[binary.LittleEndian.Uint16(src[2*i:])]
	}
}

func narrowF16(dst []byte, src []float32) {
	for len(src) >= 4 && len(dst) >= 8 {
		b0, b1 := math.Float32bits(src[0]), math.Float32bits(src[1])
		b2, b3 := math.Float32bits(src[2]), math.Float32bits(src[3])
		if max(b0&0x7fffffff, b1&0x7fffffff, b2&0x7fffffff, b3&0x7fffffff) >= f16Limit {
			for i, f := range src[:4] {
				binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(f))
			}
		} else {
			binary.LittleEndian.PutUint64(dst, roundF16(b0)|roundF16(b1)<<16|roundF16(b2)<<32|roundF16(b3)<<48)
		}
		dst, src = dst[8:], src[4:]
	}
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(f))
	}
}

// widenBF16 leaves a signalling NaN as it is: whatever is computed with it is
// made quiet in any case.
func widenBF16(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(w) << 16)
		dst[1] = math.Float32frombits(uint32(w) & 0xffff0000)
		dst[2] = math.Float32frombits(uint32(w>>32) << 16)
		dst[3] = math.Float32frombits(uint32(w>>32) & 0xffff0000)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func narrowBF16(dst []byte, src []float32) {
	in := Bytes(src)
	for len(in) >= 16 && len(dst) >= 8 {
		lo := roundBF16(binary.LittleEndian.Uint64(in))
		hi := roundBF16(binary.LittleEndian.Uint64(in[8:]))
		binary.LittleEndian.PutUint64(dst, lo|hi<<32)
		dst, in = dst[8:], in[16:]
	}
	for i, f := range src[len(src)-len(in)/4:] {
		binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(f))
	}
}

// roundBF16 narrows the two f32 in w at once. Neither addition carries into the
// other element, because the one NaN allowed here is far from the largest
// pattern.
func roundBF16(w uint64) uint64 {
	w += 0x00007fff_00007fff + w>>16&0x00000001_00000001
	return w>>16&0xffff | w>>32&0xffff0000
}
