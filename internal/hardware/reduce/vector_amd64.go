package reduce

import (
	"golang.org/x/sys/cpu"

	"ringlane/internal/model/dtype"
)

// vectors are the implementations in assembly. That the CPU has a feature means
// here, too, that the operating system keeps its registers.
var vectors = []implementation{
	{"avx512", func() bool {
		x := &cpu.X86
		return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2
	}, avx512.kernel},
	{"avx2", func() bool { return cpu.X86.HasAVX2 && cpu.X86.HasF16C }, avx2.kernel},
}

var avx512 = routines{
	dtype.F32: {
		dtype.Sum:  avx512SumF32,
		divided:    avx512DivideF32,
		multiplied: avx512MultiplyF32,
		dtype.Min:  avx512MinF32,
		dtype.Max:  avx512MaxF32,
		dtype.Prod: avx512ProdF32,
	},
	dtype.F64: {
		dtype.Sum:  avx512SumF64,
		divided:    avx512DivideF64,
		multiplied: avx512MultiplyF64,
		dtype.Min:  avx512MinF64,
		dtype.Max:  avx512MaxF64,
		dtype.Prod: avx512ProdF64,
	},
	dtype.F16: {
		dtype.Sum:  avx512SumF16,
		divided:    avx512DivideF16,
		multiplied: avx512MultiplyF16,
		dtype.Min:  avx512MinF16,
		dtype.Max:  avx512MaxF16,
		dtype.Prod: avx512ProdF16,
	},
	dtype.BF16: {
		dtype.Sum:  avx512SumBF16,
		divided:    avx512DivideBF16,
		multiplied: avx512MultiplyBF16,
		dtype.Min:  avx512MinBF16,
		dtype.Max:  avx512MaxBF16,
		dtype.Prod: avx512ProdBF16,
	},
	dtype.I8: {
		dtype.Sum: avx512SumI8,
		divided:   avx512DivideI8,
		dtype.Min: avx512MinI8,
		dtype.Max: avx512MaxI8,
	},
	dtype.U8: {
		dtype.Sum: avx512SumU8,
		divided:   avx512DivideU8,
		dtype.Min: avx512MinU8,
		dtype.Max: avx512MaxU8,
	},
	dtype.I32: {
		dtype.Sum:  avx512SumI32,
		divided:    avx512DivideI32,
		dtype.Min:  avx512MinI32,
		dtype.Max:  avx512MaxI32,
		dtype.Prod: avx512ProdI32,
	},
	dtype.I64: {
		dtype.Sum:  avx512SumI64,
		dtype.Min:  avx512MinI64,
		dtype.Max:  avx512MaxI64,
		dtype.Prod: avx512ProdI64,
	},
}

var avx2 = routines{
	dtype.F32: {
		dtype.Sum:  avx2SumF32,
		divided:    avx2DivideF32,
		multiplied: avx2MultiplyF32,
		dtype.Min:  avx2MinF32,
		dtype.Max:  avx2MaxF32,
		dtype.Prod: avx2ProdF32,
	},
	dtype.F64: {
		dtype.Sum:  avx2SumF64,
		divided:    avx2DivideF64,
		multiplied: avx2MultiplyF64,
		dtype.Min:  avx2MinF64,
		dtype.Max:  avx2MaxF64,
		dtype.Prod: avx2ProdF64,
	},
	dtype.F16: {
		dtype.Sum:  avx2SumF16,
		divided:    avx2DivideF16,
		multiplied: avx2MultiplyF16,
		dtype.Min:  avx2MinF16,
		dtype.Max:  avx2MaxF16,
		dtype.Prod: avx2ProdF16,
	},
	dtype.BF16: {
		dtype.Sum:  avx2SumBF16,
		divided:    avx2DivideBF16,
		multiplied: avx2MultiplyBF16,
		dtype.Min:  avx2MinBF16,
		dtype.Max:  avx2MaxBF16,
		dtype.Prod: avx2ProdBF16,
	},
	dtype.I8: {
		dtype.Sum: avx2SumI8,
		divided:   avx2DivideI8,
		dtype.Min: avx2MinI8,
		dtype.Max: avx2MaxI8,
	},
	dtype.U8: {
		dtype.Sum: avx2SumU8,
		divided:   avx2DivideU8,
		dtype.Min: avx2MinU8,
		dtype.Max: avx2MaxU8,
	},
	dtype.I32: {
		dtype.Sum:  avx2SumI32,
		divided:    avx2DivideI32,
		dtype.Min:  avx2MinI32,
		dtype.Max:  avx2MaxI32,
		dtype.Prod: avx2ProdI32,
	},
	dtype.I64: {
		dtype.Sum: avx2SumI64,
		dtype.Min: avx2MinI64,
		dtype.Max: avx2MaxI64,
	},
}
