package reduce

import (
	"fmt"
	"testing"

	"ringlane/internal/model/dtype"
)

// workingSets are the bytes of all buffers together, so as to fit a level of the
// memory hierarchy.
var workingSets = []struct {
	level string
	bytes int
}{
	{"L1", 24 << 10}, {"L2", 384 << 10}, {"L3", 12 << 20}, {"DRAM", 256 << 20},
}

// BenchmarkKernel reports GB/s of bytes read and written, and of each
// implementation the time of a call for 8 bytes. Values are small and of both
// signs, with zeros among them, as gradients are.
func BenchmarkKernel(b *testing.B) {
	for _, im := range Implementations() {
		for _, t := range dtype.Types {
			for _, op := range []dtype.Op{dtype.Sum, dtype.Avg, dtype.Max, dtype.Prod} {
				kernel := ForImpl(im.Name, t, op)
				if kernel == nil {
					continue
				}
				b.Run(fmt.Sprintf("%s/%v/%v/n=2/8B", im.Name, t, op), func(b *testing.B) {
					benchmark(b, kernel, t, 2, 8)
				})
				for _, terms := range []int{2, 4, 8} {
					if op != dtype.Sum && terms != 2 {
						continue
					}
					for _, set := range workingSets {
						size := set.bytes / (terms + 1) &^ 63
						b.Run(fmt.Sprintf("%s/%v/%v/n=%d/%s", im.Name, t, op, terms, set.level), func(b *testing.B) {
							benchmark(b, kernel, t, terms, size)
						})
					}
				}
			}
		}
	}
}

func benchmark(b *testing.B, kernel Kernel, t dtype.Type, terms, size int) {
	dst := make([]byte, size)
	srcs := make([]Source, terms)
	for i := range srcs {
		srcs[i].Data = make([]byte, size)
		for j := range min(size, 64<<10) / t.Size() {
			put(t, srcs[i].Data, j, float64((j*7+i*3)%11-5)/4)
		}
		for done := 64 << 10; done < size; done *= 2 {
			copy(srcs[i].Data[done:], srcs[i].Data[:done])
		}
	}
	b.SetBytes(int64((terms + 1) * size))
	b.ReportAllocs()
	for b.Loop() {
		kernel(dst, nil, false, srcs, terms)
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
