package main

import "github.com/mmcloughlin/avo/operand"

func f16Kernels(a *assembler) []kernel {
	widen := func(s span, m operand.Mem, x vec) { a.VCVTPH2PS(a.halves(s, m), x) }
	narrow := func(s span, x vec, m operand.Mem) {
		nearest := operand.Imm(0)
		if s.mask == nil && s.lanes >= 4 {
			a.VCVTPS2PH(nearest, x, m)
			return
		}
		h := a.vector(2 * s.lanes)
		a.VCVTPS2PH(nearest, x, h)
		a.store(s, 2, h, m)
	}
	return append(a.arithmetic("F16", 2, a.single(), widen, narrow), a.halfExtremes("F16", 0x7c00, 0x7e00)...)
}

// bf16Kernels rounds with integers, because VCVTNEPS2BF16 takes subnormals for
// zeros.
func bf16Kernels(a *assembler) []kernel {
	var one, half, odd vec
	// round adds one less than a half of the last place that is kept, and one more
	// if that place is odd: ties go to even.
	round := func(x vec) {
		last := a.vector(int(x.Size()))
		a.VPSRLD(operand.Imm(16), x, last)
		a.VANDPS(as(one, x), last, last)
		a.VPADDD(as(half, x), x, x)
		a.VPADDD(last, x, x)
	}
	widen := func(s span, m operand.Mem, x vec) {
		a.VPMOVZXWD(a.halves(s, m), x)
		a.VPSLLD(operand.Imm(16), x, x)
	}
	narrow := func(s span, x vec, m operand.Mem) {
		round(x)
		a.VPSRLD(operand.Imm(16), x, x)
		switch x.Size() {
		case 64:
			h := a.YMM()
			a.VPMOVDW(x, h)
			a.store(s, 2, h, m)
		case 32:
			upper := a.XMM()
			a.VEXTRACTI128(operand.Imm(1), x, upper)
			a.VPACKUSDW(upper, x.AsX(), x.AsX())
			a.store(s, 2, x.AsX(), m)
		default:
			a.VPACKUSDW(x, x, x)
			a.store(s, 2, x, m)
		}
	}
	// split makes f32 of the elements at even places, in x, and at odd ones. In one
	// 32-bit lane with two elements, the odd one is where it belongs.
	split := func(x, upper vec) {
		a.VANDPS(as(odd, x), x, upper)
		a.VPSLLD(operand.Imm(16), x, x)
	}
	kernels := a.arithmetic("BF16", 2, a.single(), widen, narrow)
	for i := range kernels {
		k := kernels[i]
		kernels[i].prepare = func() {
			k.prepare()
			one, half, odd = a.constant(4, 1), a.constant(4, 0x7fff), a.constant(4, 0xffff0000)
		}
		kernels[i].plain = &kernel{
			elem: 2, lane: 2, accs: 2,
			first: func(acc []vec) { split(acc[0], acc[1]) },
			next: func(acc []vec, x vec) {
				upper := a.vector(int(x.Size()))
				split(x, upper)
				k.next(acc[:1], x)
				k.next(acc[1:], upper)
			},
			finish: func(acc []vec) {
				even, upper := acc[0], acc[1]
				for _, x := range acc {
					k.finish([]vec{x})
					round(x)
				}
				a.VPSRLD(operand.Imm(16), even, even)
				a.VANDPS(as(odd, upper), upper, upper)
				a.VORPS(upper, even, even)
			},
		}
	}
	return append(kernels, a.halfExtremes("BF16", 0x7f80, 0x7fc0)...)
}

// halves returns the operand from which the narrow elements of a span are
// widened: memory where that has the size of an operand.
func (a *assembler) halves(s span, m operand.Mem) operand.Op {
	if s.mask == nil && s.lanes >= 4 {
		return m
	}
	h := a.vector(2 * s.lanes)
	a.load(s, 2, m, h)
	return h
}

// halfExtremes returns Min and Max for 16-bit floats, compared as integers of 16
// bits: of the bit pattern of a negative number all bits but the sign are
// inverted, which orders them as the numbers are, -0 before +0. That the largest
// magnitude among the terms is beyond infinity tells of a NaN.
func (a *assembler) halfExtremes(typ string, infinity, nan uint64) []kernel {
	var inf, quiet, magnitude vec
	twice := func(bits uint64) vec { return a.constant(2, bits|bits<<16) }
	order := func(x vec) { // its own inverse
		flip := a.vector(int(x.Size()))
		a.VPSRAW(operand.Imm(15), x, flip)
		a.VPSRLW(operand.Imm(1), flip, flip)
		a.VXORPS(flip, x, x)
	}
	k := kernel{
		elem: 2, lane: 2, accs: 2,
		prepare: func() { inf, quiet, magnitude = twice(infinity), twice(nan), twice(0x7fff) },
		first: func(acc []vec) {
			a.VANDPS(as(magnitude, acc[0]), acc[0], acc[1])
			order(acc[0])
		},
		finish: func(acc []vec) {
			order(acc[0])
			if a.avx512 {
				is := a.K()
				a.VPCMPGTW(as(inf, acc[0]), acc[1], is)
				a.VMOVDQU16(as(quiet, acc[0]), is, acc[0])
				return
			}
			a.VPCMPGTW(as(inf, acc[0]), acc[1], acc[1])
			a.VPBLENDVB(acc[1], as(quiet, acc[0]), acc[0], acc[0])
		},
	}
	pick := func(name string, op instruction) kernel {
		k := k
		k.name = name + typ
		k.next = func(acc []vec, x vec) {
			m := a.vector(int(x.Size()))
			a.VANDPS(as(magnitude, x), x, m)
			a.VPMAXUW(m, acc[1], acc[1])
			order(x)
			op(x, acc[0], acc[0])
		}
		return k
	}
	return []kernel{pick("Min", a.VPMINSW), pick("Max", a.VPMAXSW)}
}
