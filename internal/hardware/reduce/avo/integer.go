package main

import "github.com/mmcloughlin/avo/operand"

// integer returns a kernel that combines by one instruction.
func (a *assembler) integer(name string, size int, op instruction) kernel {
	return kernel{
		name: name, elem: size, lane: size, accs: 1,
		next: func(acc []vec, x vec) { op(x, acc[0], acc[0]) },
	}
}

// i8Kernels divides magnitudes as u8Kernels does, and restores the signs.
func i8Kernels(a *assembler) []kernel {
	avg := a.integer("DivideI8", 1, a.VPADDB)
	var scale, low vec
	avg.prepare = func() { scale, low = a.scale(2), a.constant(2, 0x00ff00ff) }
	avg.finish = func(acc []vec) {
		x := acc[0]
		size := int(x.Size())
		even := a.vector(size)
		a.VPSLLW(operand.Imm(8), x, even)
		for _, word := range []vec{even, x} {
			sign := a.vector(size)
			a.VPSRAW(operand.Imm(15), word, sign)
			a.VPSRAW(operand.Imm(8), word, word)
			a.VPABSW(word, word)
			a.VPMULHUW(as(scale, x), word, word)
			a.VXORPS(sign, word, word)
			a.VPSUBW(sign, word, word)
		}
		a.VANDPS(as(low, x), even, even)
		a.VPSLLW(operand.Imm(8), x, x)
		a.VORPS(even, x, x)
	}
	return []kernel{
		a.integer("SumI8", 1, a.VPADDB), avg,
		a.integer("MinI8", 1, a.VPMINSB), a.integer("MaxI8", 1, a.VPMAXSB),
	}
}

// u8Kernels divides words that hold a byte each: of a product of 16 bits by 16 the
// upper half is the quotient if the factor is 2^16/ranks, rounded up. The bytes at
// even places and those at odd ones take turns.
func u8Kernels(a *assembler) []kernel {
	avg := a.integer("DivideU8", 1, a.VPADDB)
	var scale, low vec
	avg.prepare = func() { scale, low = a.scale(2), a.constant(2, 0x00ff00ff) }
	avg.finish = func(acc []vec) {
		x := acc[0]
		even := a.vector(int(x.Size()))
		a.VANDPS(as(low, x), x, even)
		a.VPSRLW(operand.Imm(8), x, x)
		a.VPMULHUW(as(scale, x), even, even)
		a.VPMULHUW(as(scale, x), x, x)
		a.VPSLLW(operand.Imm(8), x, x)
		a.VORPS(even, x, x)
	}
	return []kernel{
		a.integer("SumU8", 1, a.VPADDB), avg,
		a.integer("MinU8", 1, a.VPMINUB), a.integer("MaxU8", 1, a.VPMAXUB),
	}
}

// i32Kernels divides by way of f64, which holds every i32 and a reciprocal of
// the ranks close enough that the quotient, truncated, is right.
func i32Kernels(a *assembler) []kernel {
	avg := a.integer("DivideI32", 4, a.VPADDD)
	var scale vec
	avg.prepare = func() { scale = a.scale(8) }
	avg.finish = func(acc []vec) {
		x := acc[0]
		if x.Size() == 16 {
			d := a.YMM()
			a.VCVTDQ2PD(x, d)
			a.VMULPD(scale.AsY(), d, d)
			a.VCVTTPD2DQY(d, x)
			return
		}
		lower, upper := a.vector(int(x.Size())), a.vector(int(x.Size()))
		half := a.vector(int(x.Size()) / 2)
		if a.avx512 {
			a.VCVTDQ2PD(x.AsY(), lower)
			a.VEXTRACTI64X4(operand.Imm(1), x, half)
			a.VCVTDQ2PD(half, upper)
			a.VMULPD(scale, lower, lower)
			a.VMULPD(scale, upper, upper)
			a.VCVTTPD2DQ(lower, x.AsY())
			a.VCVTTPD2DQ(upper, half)
			a.VINSERTI64X4(operand.Imm(1), half, x, x)
			return
		}
		a.VCVTDQ2PD(x.AsX(), lower)
		a.VEXTRACTI128(operand.Imm(1), x, half)
		a.VCVTDQ2PD(half, upper)
		a.VMULPD(scale, lower, lower)
		a.VMULPD(scale, upper, upper)
		a.VCVTTPD2DQY(lower, x.AsX())
		a.VCVTTPD2DQY(upper, half)
		a.VINSERTI128(operand.Imm(1), half, x, x)
	}
	return []kernel{
		a.integer("SumI32", 4, a.VPADDD), avg, a.integer("ProdI32", 4, a.VPMULLD),
		a.integer("MinI32", 4, a.VPMINSD), a.integer("MaxI32", 4, a.VPMAXSD),
	}
}

// i64Kernels has no Avg: there is no vector instruction that divides 64 bits.
func i64Kernels(a *assembler) []kernel {
	sum := a.integer("SumI64", 8, a.VPADDQ)
	if a.avx512 {
		return []kernel{
			sum, a.integer("ProdI64", 8, a.VPMULLQ),
			a.integer("MinI64", 8, a.VPMINSQ), a.integer("MaxI64", 8, a.VPMAXSQ),
		}
	}
	// VBLENDVPD takes its third operand where the mask is clear.
	minimum, maximum := sum, sum
	minimum.name, maximum.name = "MinI64", "MaxI64"
	minimum.next = func(acc []vec, x vec) {
		greater := a.vector(int(x.Size()))
		a.VPCMPGTQ(x, acc[0], greater)
		a.VBLENDVPD(greater, x, acc[0], acc[0])
	}
	maximum.next = func(acc []vec, x vec) {
		greater := a.vector(int(x.Size()))
		a.VPCMPGTQ(x, acc[0], greater)
		a.VBLENDVPD(greater, acc[0], x, acc[0])
	}
	return []kernel{sum, minimum, maximum}
}
