package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	quietF32 = 0x7fc00000
	quietF64 = 0x7ff8000000000000
)

// unordered is the comparison that holds where an operand is NaN.
var unordered = operand.Imm(3)

type instruction = func(...operand.Op)

// float holds the instructions for one type.
type float struct {
	lane               int
	nan, sign          uint64
	add, mul, div, min instruction
	or, xor            instruction
	compare            instruction
	blend              func(mask, then, otherwise, x operand.Op) // for AVX2
	move               instruction                               // for AVX-512, with a mask
}

func (a *assembler) single() float {
	return float{4, quietF32, 1 << 31, a.VADDPS, a.VMULPS, a.VDIVPS, a.VMINPS, a.VORPS, a.VXORPS,
		a.VCMPPS, a.VBLENDVPS, a.VMOVAPS}
}

func (a *assembler) double() float {
	return float{8, quietF64, 1 << 63, a.VADDPD, a.VMULPD, a.VDIVPD, a.VMINPD, a.VORPD, a.VXORPD,
		a.VCMPPD, a.VBLENDVPD, a.VMOVAPD}
}

func f32Kernels(a *assembler) []kernel {
	return append(a.arithmetic("F32", 4, a.single(), nil, nil), a.extremes("F32", a.single())...)
}

func f64Kernels(a *assembler) []kernel {
	return append(a.arithmetic("F64", 8, a.double(), nil, nil), a.extremes("F64", a.double())...)
}

// arithmetic returns the kernels that compute in the type of f, whatever the
// type in memory is.
func (a *assembler) arithmetic(typ string, elem int, f float, widen func(span, operand.Mem, vec), narrow func(span, vec, operand.Mem)) []kernel {
	var nan, scale vec
	combine := func(op instruction) func(acc []vec, x vec) {
		return func(acc []vec, x vec) { op(x, acc[0], acc[0]) }
	}
	k := kernel{
		elem: elem, lane: f.lane, accs: 1, partial: elem != f.lane,
		prepare: func() { nan = a.constant(f.lane, f.nan) },
		widen:   widen,
		finish:  func(acc []vec) { a.quiet(f, acc[0], nan) },
		narrow:  narrow,
	}
	sum, prod, avg := k, k, k
	sum.name, sum.next = "Sum"+typ, combine(f.add)
	prod.name, prod.next = "Prod"+typ, combine(f.mul)
	avg.next = combine(f.add)
	avg.prepare = func() {
		k.prepare()
		scale = a.scale(f.lane)
	}
	by := func(name string, op instruction) kernel {
		avg := avg
		avg.name = name + typ
		avg.finish = func(acc []vec) {
			op(as(scale, acc[0]), acc[0], acc[0])
			k.finish(acc)
		}
		return avg
	}
	return []kernel{sum, by("Divide", f.div), by("Multiply", f.mul), prod}
}

// extremes returns Min and Max. The instruction MIN returns its second operand
// where one is NaN and where both are zeros. So it is taken both ways round, and
// the bitwise or of the two is -0 if one operand is, NaN if one operand is, and
// else the smaller one. Max is Min of what has the opposite sign.
func (a *assembler) extremes(typ string, f float) []kernel {
	var nan, sign vec
	minimum := kernel{
		name: "Min" + typ, elem: f.lane, lane: f.lane, accs: 1,
		prepare: func() { nan = a.constant(f.lane, f.nan) },
		next: func(acc []vec, x vec) {
			other := a.vector(int(x.Size()))
			f.min(x, acc[0], other)
			f.min(acc[0], x, acc[0])
			f.or(other, acc[0], acc[0])
		},
		finish: func(acc []vec) { a.quiet(f, acc[0], nan) },
	}
	maximum := minimum
	negate := func(x vec) { f.xor(as(sign, x), x, x) }
	maximum.name = "Max" + typ
	maximum.prepare = func() {
		minimum.prepare()
		sign = a.constant(f.lane, f.sign)
	}
	maximum.first = func(acc []vec) { negate(acc[0]) }
	maximum.next = func(acc []vec, x vec) {
		negate(x)
		minimum.next(acc, x)
	}
	maximum.finish = func(acc []vec) {
		negate(acc[0])
		minimum.finish(acc)
	}
	return []kernel{minimum, maximum}
}

// quiet replaces each NaN in x by nan.
func (a *assembler) quiet(f float, x, nan vec) {
	var is reg.Register
	if a.avx512 {
		is = a.K()
		f.compare(unordered, x, x, is)
		f.move(as(nan, x), is, x)
		return
	}
	is = a.vector(int(x.Size()))
	f.compare(unordered, x, x, is)
	f.blend(is, as(nan, x), x, x)
}
