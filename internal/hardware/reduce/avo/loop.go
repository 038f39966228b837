package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// assembler writes routines for one instruction set: AVX2 with F16C, or
// AVX-512 with its extensions BW, DQ and VL.
type assembler struct {
	*build.Context
	avx512 bool
	labels int
}

type vec = reg.VecVirtual

// kernel is what distinguishes one routine from another. Operations work in
// place, on registers that hold one element in each lane.
type kernel struct {
	name    string
	elem    int     // bytes of an element in memory
	lane    int     // bytes of an element in a register, and of a wide one in memory
	partial bool    // terms and result may be wide
	accs    int     // registers that an accumulator takes
	plain   *kernel // a faster one for when nothing is wide, after the same prepare

	prepare func()                             // put constants into registers
	widen   func(s span, m operand.Mem, x vec) // load narrow elements, nil for a plain load
	first   func(acc []vec)                    // make an accumulator of the term in acc[0]
	next    func(acc []vec, x vec)             // combine one more term
	finish  func(acc []vec)                    // make the result in acc[0]
	narrow  func(s span, x vec, m operand.Mem) // store narrow elements, nil for a plain store
}

// span is what one turn of a loop covers: registers of so many lanes.
type span struct {
	lanes int
	regs  int
	mask  reg.Register // AVX-512: the lanes in use, nil for all
}

// The layout of a Source (package reduce checks it).
const (
	sourceSize = 32
	sourceWide = 24
)

// routine writes the body of a routine. It goes over the elements once: for a
// few registers full at a time it takes all terms, one after another, and
// stores the result, in also too if there is one. Since it does so only when all
// terms are loaded, both may be among them. After the spans of full registers
// AVX-512 has one with a mask, AVX2 one of each smaller power of two, so that
// nothing beyond the last element is touched.
func (a *assembler) routine(k kernel) {
	dst := a.Load(a.Param("dst"), a.GP64())
	also := a.Load(a.Param("also"), a.GP64())
	srcs := a.Load(a.Param("srcs"), a.GP64())
	end := a.Load(a.Param("terms"), a.GP64())
	a.SHLQ(operand.Imm(5), end) // × sourceSize
	a.ADDQ(srcs, end)
	i := a.Load(a.Param("lo"), a.GP64())
	hi := a.Load(a.Param("hi"), a.GP64())
	if k.prepare != nil {
		k.prepare()
	}
	if k.plain != nil {
		a.unlessWide(srcs, end, func() { a.spans(*k.plain, dst, also, srcs, end, i, hi) })
	}
	a.spans(k, dst, also, srcs, end, i, hi)
}

// spans writes the loops over the elements from i to hi, and the return.
func (a *assembler) spans(k kernel, dst, also, srcs, end, i, hi reg.Register) {
	full := a.width() / k.lane
	spans := []span{{lanes: full, regs: 4}, {lanes: full, regs: 1}}
	if !a.avx512 {
		for lanes := full / 2; lanes > 0; lanes /= 2 {
			spans = append(spans, span{lanes: lanes, regs: 1})
		}
	}
	for _, s := range spans {
		loop, done := a.label("loop"), a.label("done")
		stop := a.GP64()
		a.Label(loop)
		a.LEAQ(operand.Mem{Base: i, Disp: s.lanes * s.regs}, stop)
		a.CMPQ(stop, hi)
		a.JGT(operand.LabelRef(done))
		a.turn(k, s, dst, also, srcs, end, i)
		a.MOVQ(stop, i)
		a.JMP(operand.LabelRef(loop))
		a.Label(done)
	}
	if a.avx512 {
		done := a.label("done")
		bits, mask := a.GP64(), a.K()
		a.MOVQ(hi, bits)
		a.SUBQ(i, bits)
		a.JEQ(operand.LabelRef(done))
		ones := a.GP64()
		a.MOVQ(operand.I32(-1), ones)
		a.BZHIQ(bits, ones, ones)
		a.KMOVQ(ones, mask)
		a.turn(k, span{lanes: full, regs: 1, mask: mask}, dst, also, srcs, end, i)
		a.Label(done)
	}
	a.VZEROUPPER()
	a.RET()
}

// unlessWide writes body for when no source and not dst is wide.
func (a *assembler) unlessWide(srcs, end reg.Register, body func()) {
	check, wide := a.label("check"), a.label("wide")
	a.CMPB(a.wide(), operand.Imm(0))
	a.JNE(operand.LabelRef(wide))
	src := a.GP64()
	a.MOVQ(srcs, src)
	a.Label(check)
	a.CMPB(operand.Mem{Base: src, Disp: sourceWide}, operand.Imm(0))
	a.JNE(operand.LabelRef(wide))
	a.ADDQ(operand.Imm(sourceSize), src)
	a.CMPQ(src, end)
	a.JNE(operand.LabelRef(check))
	body()
	a.Label(wide)
}

// wide is the argument of that name.
func (a *assembler) wide() operand.Op {
	wide, err := a.Param("wide").Resolve()
	if err != nil {
		panic(err)
	}
	return wide.Addr
}

// turn combines the elements of one span, from index i on.
func (a *assembler) turn(k kernel, s span, dst, also, srcs, end, i reg.Register) {
	size := s.lanes * k.lane
	acc := make([][]vec, s.regs)
	for r := range acc {
		for range k.accs {
			acc[r] = append(acc[r], a.vector(size))
		}
	}
	src, p := a.GP64(), a.GP64()
	// eachTerm writes body for the term at src, for narrow and for wide elements.
	eachTerm := func(body func(load func(r int, x vec))) {
		wide, done := a.label("wide"), a.label("done")
		a.MOVQ(operand.Mem{Base: src}, p)
		if k.partial {
			a.CMPB(operand.Mem{Base: src, Disp: sourceWide}, operand.Imm(0))
			a.JNE(operand.LabelRef(wide))
		}
		a.LEAQ(operand.Mem{Base: p, Index: i, Scale: uint8(k.elem)}, p)
		body(func(r int, x vec) {
			m := operand.Mem{Base: p, Disp: r * s.lanes * k.elem}
			if k.widen != nil {
				k.widen(s, m, x)
			} else {
				a.load(s, k.elem, m, x)
			}
		})
		if k.partial {
			a.JMP(operand.LabelRef(done))
			a.Label(wide)
			a.LEAQ(operand.Mem{Base: p, Index: i, Scale: uint8(k.lane)}, p)
			body(func(r int, x vec) { a.load(s, k.lane, operand.Mem{Base: p, Disp: r * size}, x) })
			a.Label(done)
		}
	}

	a.MOVQ(srcs, src)
	eachTerm(func(load func(r int, x vec)) {
		for r := range acc {
			load(r, acc[r][0])
			if k.first != nil {
				k.first(acc[r])
			}
		}
	})
	terms, finish := a.label("terms"), a.label("finish")
	a.Label(terms)
	a.ADDQ(operand.Imm(sourceSize), src)
	a.CMPQ(src, end)
	a.JEQ(operand.LabelRef(finish))
	eachTerm(func(load func(r int, x vec)) {
		for r := range acc {
			x := a.vector(size)
			load(r, x)
			k.next(acc[r], x)
		}
	})
	a.JMP(operand.LabelRef(terms))
	a.Label(finish)

	for r := range acc {
		if k.finish != nil {
			k.finish(acc[r])
		}
	}
	// stored writes the results that are in registers to dst and, if there is one, to
	// also; those that are narrowed as they are stored are read back for that.
	stored := func(elem int, narrow func(s span, x vec, m operand.Mem), done string) {
		place := func(r int) operand.Mem { return operand.Mem{Base: p, Disp: r * s.lanes * elem} }
		a.LEAQ(operand.Mem{Base: dst, Index: i, Scale: uint8(elem)}, p)
		for r := range acc {
			if narrow != nil {
				narrow(s, acc[r][0], place(r))
			} else {
				a.store(s, elem, acc[r][0], place(r))
			}
		}
		a.TESTQ(also, also)
		a.JEQ(operand.LabelRef(done))
		results := make([]reg.Register, len(acc))
		for r := range acc {
			results[r] = acc[r][0]
			if narrow != nil {
				results[r] = a.vector(s.lanes * elem)
				a.load(s, elem, place(r), results[r])
			}
		}
		a.LEAQ(operand.Mem{Base: also, Index: i, Scale: uint8(elem)}, p)
		for r, x := range results {
			a.store(s, elem, x, place(r))
		}
	}
	narrow, done := a.label("narrow"), a.label("done")
	if k.partial {
		a.CMPB(a.wide(), operand.Imm(0))
		a.JEQ(operand.LabelRef(narrow))
		stored(k.lane, nil, done)
		a.JMP(operand.LabelRef(done))
		a.Label(narrow)
	}
	stored(k.elem, k.narrow, done)
	a.Label(done)
}

// width is the size of a full register.
func (a *assembler) width() int {
	if a.avx512 {
		return 64
	}
	return 32
}

// vector returns a new register for size bytes.
func (a *assembler) vector(size int) vec {
	switch {
	case size > 32:
		return a.ZMM()
	case size > 16:
		return a.YMM()
	}
	return a.XMM()
}

// as returns the part of constant c that is as wide as x.
func as(c, x vec) reg.Register {
	switch x.Size() {
	case 64:
		return c.AsZ()
	case 32:
		return c.AsY()
	}
	return c.AsX()
}

func (a *assembler) label(name string) string {
	a.labels++
	return fmt.Sprintf("%s%d", name, a.labels)
}

// load loads the elements of a span, size bytes each; other lanes are zero.
func (a *assembler) load(s span, size int, m operand.Mem, x reg.Register) {
	if s.mask != nil {
		switch size {
		case 1:
			a.VMOVDQU8_Z(m, s.mask, x)
		case 2:
			a.VMOVDQU16_Z(m, s.mask, x)
		case 4:
			a.VMOVDQU32_Z(m, s.mask, x)
		case 8:
			a.VMOVDQU64_Z(m, s.mask, x)
		}
		return
	}
	switch s.lanes * size {
	case 1:
		a.VPXOR(x, x, x)
		a.VPINSRB(operand.Imm(0), m, x, x)
	case 2:
		a.VPXOR(x, x, x)
		a.VPINSRW(operand.Imm(0), m, x, x)
	case 4:
		a.VMOVD(m, x)
	case 8:
		a.VMOVQ(m, x)
	default:
		a.VMOVUPS(m, x)
	}
}

// store stores the elements of a span, size bytes each.
func (a *assembler) store(s span, size int, x reg.Register, m operand.Mem) {
	if s.mask != nil {
		switch size {
		case 1:
			a.VMOVDQU8(x, s.mask, m)
		case 2:
			a.VMOVDQU16(x, s.mask, m)
		case 4:
			a.VMOVDQU32(x, s.mask, m)
		case 8:
			a.VMOVDQU64(x, s.mask, m)
		}
		return
	}
	switch s.lanes * size {
	case 1:
		a.VPEXTRB(operand.Imm(0), x, m)
	case 2:
		a.VPEXTRW(operand.Imm(0), x, m)
	case 4:
		a.VMOVD(x, m)
	case 8:
		a.VMOVQ(x, m)
	default:
		a.VMOVUPS(x, m)
	}
}

// constant returns a register with 32 bits repeated, or, for a lane of 8 bytes,
// 64 bits. 16-bit constants are given twice.
func (a *assembler) constant(lane int, bits uint64) vec {
	r := a.GP64()
	if lane == 8 {
		a.MOVQ(operand.U64(bits), r)
	} else {
		a.MOVL(operand.U32(bits), r.As32())
	}
	return a.broadcast(lane, r)
}

// scale returns a register with the argument of that name, like constant.
func (a *assembler) scale(lane int) vec {
	r := a.GP64()
	a.Load(a.Param("scale"), r)
	return a.broadcast(lane, r)
}

func (a *assembler) broadcast(lane int, r reg.GPVirtual) vec {
	c := a.vector(a.width())
	x := a.XMM()
	if lane == 8 {
		a.VMOVQ(r, x)
		a.VPBROADCASTQ(x, c)
	} else {
		a.VMOVD(r.As32(), x)
		a.VPBROADCASTD(x, c)
	}
	return c
}
