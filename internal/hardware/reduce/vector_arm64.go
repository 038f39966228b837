package reduce

import "ringlane/internal/model/dtype"

// vectors are the implementations in assembly. Every arm64 has NEON.
var vectors = []implementation{
	{"neon", func() bool { return true }, neon.kernel},
}

var neon = routines{
	dtype.F32: {
		dtype.Sum:  neonSumF32,
		divided:    neonDivideF32,
		multiplied: neonMultiplyF32,
		dtype.Min:  neonMinF32,
		dtype.Max:  neonMaxF32,
		dtype.Prod: neonProdF32,
	},
	dtype.F64: {
		dtype.Sum:  neonSumF64,
		divided:    neonDivideF64,
		multiplied: neonMultiplyF64,
		dtype.Min:  neonMinF64,
		dtype.Max:  neonMaxF64,
		dtype.Prod: neonProdF64,
	},
	dtype.F16: {
		dtype.Sum:  neonSumF16,
		divided:    neonDivideF16,
		multiplied: neonMultiplyF16,
		dtype.Min:  neonMinF16,
		dtype.Max:  neonMaxF16,
		dtype.Prod: neonProdF16,
	},
	dtype.BF16: {
		dtype.Sum:  neonSumBF16,
		divided:    neonDivideBF16,
		multiplied: neonMultiplyBF16,
		dtype.Min:  neonMinBF16,
		dtype.Max:  neonMaxBF16,
		dtype.Prod: neonProdBF16,
	},
	dtype.I8: {
		dtype.Sum:  neonSumI8,
		dtype.Min:  neonMinI8,
		dtype.Max:  neonMaxI8,
		dtype.Prod: neonProdI8,
	},
	dtype.U8: {
		dtype.Sum:  neonSumU8,
		dtype.Min:  neonMinU8,
		dtype.Max:  neonMaxU8,
		dtype.Prod: neonProdU8,
	},
	dtype.I32: {
		dtype.Sum:  neonSumI32,
		dtype.Min:  neonMinI32,
		dtype.Max:  neonMaxI32,
		dtype.Prod: neonProdI32,
	},
	dtype.I64: {
		dtype.Sum: neonSumI64,
	},
}
