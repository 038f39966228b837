package reduce

import (
	"fmt"
	"testing"

	"ringlane/internal/model/dtype"
)

// BenchmarkKernel reports GB/s of bytes read and written. Values are small
// and of both signs, with zeros among them, as gradients are.
func BenchmarkKernel(b *testing.B) {
	for _, t := range dtype.Types {
		for _, op := range []dtype.Op{dtype.Sum, dtype.Avg, dtype.Max, dtype.Prod} {
			for _, terms := range []int{2, 3, 4, 8} {
				if op != dtype.Sum && terms != 2 {
					continue
				}
				for _, size := range []int{256, 16 << 10, 1 << 20} {
					b.Run(fmt.Sprintf("%v/%v/n=%d/%d", t, op, terms, size), func(b *testing.B) {
						benchmark(b, t, op, terms, size)
					})
				}
			}
		}
	}
}

func benchmark(b *testing.B, t dtype.Type, op dtype.Op, terms, size int) {
	dst := make([]byte, size)
	srcs := make([]Source, terms)
	for i := range srcs {
		srcs[i].Data = make([]byte, size)
		for j := range size / t.Size() {
			put(t, srcs[i].Data, j, float64((j*7+i*3)%11-5)/4)
		}
	}
	kernel := For(t, op)
	b.SetBytes(int64((terms + 1) * size))
	b.ReportAllocs()
	for b.Loop() {
		kernel(dst, false, srcs, terms)
	}
}

// put stores v as element i of b.
func put(t dtype.Type, b []byte, i int, v float64) {
	switch t {
	case dtype.F32:
		View[float32](b)[i] = float32(v)
	case dtype.F64:
		View[float64](b)[i] = v
	case dtype.F16:
		View[uint16](b)[i] = F32ToF16(float32(v))
	case dtype.BF16:
		View[uint16](b)[i] = F32ToBF16(float32(v))
	case dtype.I8:
		View[int8](b)[i] = int8(v)
	case dtype.U8:
		View[uint8](b)[i] = uint8(int8(v))
	case dtype.I32:
		View[int32](b)[i] = int32(v)
	case dtype.I64:
		View[int64](b)[i] = int64(v)
	}
}
