package main

import (
	"bytes"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
)

// avo knows no arm64, and Go's assembler few of its vector instructions. So the
// NEON routines are written as text, such instructions as words of machine code.
// Their loops run like those in loop.go, their tails like those of AVX2.

// Vector registers of one use throughout. Accumulators are V0 to V3.
const (
	neonTerm  = 16
	neonMask  = 17
	neonNaN   = 24
	neonScale = 25
	neonOne   = 26
	neonHalf  = 27
)

// neonOp is an instruction on 16 bytes, with register 0 for all operands.
type neonOp struct {
	word uint32
	name string
}

// neonKernel is what distinguishes one NEON routine from another.
type neonKernel struct {
	name    string
	elem    int // bytes of an element in memory
	lane    int // bytes of an element in a register, and of a wide one in memory
	partial bool
	next    neonOp // combines two registers
	scale   neonOp // for Avg: applies the scale
	equal   neonOp // for floats: tells NaN, which nan replaces
	nan     uint64
	widen   neonOp // for narrow elements that are not computed with as they are
	narrow  func(n *neon, x int)
}

// floatOps are the instructions for one type of float.
type floatOps struct{ add, divide, min, max, multiply neonOp }

// neonKernels returns the kernels for one type.
func neonKernels(typ string) []neonKernel {
	single := neonKernel{elem: 4, lane: 4, equal: neonOp{0x4e20e400, "FCMEQ.4S"}, nan: quietF32}
	singleOps := floatOps{
		neonOp{0x4e20d400, "FADD.4S"}, neonOp{0x6e20fc00, "FDIV.4S"}, neonOp{0x4ea0f400, "FMIN.4S"},
		neonOp{0x4e20f400, "FMAX.4S"}, neonOp{0x6e20dc00, "FMUL.4S"},
	}
	half := single
	half.elem = 2
	switch typ {
	case "F32":
		return neonFloats(typ, single, singleOps)
	case "F64":
		double := neonKernel{elem: 8, lane: 8, equal: neonOp{0x4e60e400, "FCMEQ.2D"}, nan: quietF64}
		return neonFloats(typ, double, floatOps{
			neonOp{0x4e60d400, "FADD.2D"}, neonOp{0x6e60fc00, "FDIV.2D"}, neonOp{0x4ee0f400, "FMIN.2D"},
			neonOp{0x4e60f400, "FMAX.2D"}, neonOp{0x6e60dc00, "FMUL.2D"},
		})
	case "F16":
		half.widen = neonOp{0x0e217800, "FCVTL.4S.4H"}
		half.narrow = func(n *neon, x int) { n.op(neonOp{0x0e216800, "FCVTN.4H.4S"}, x, x) }
		return neonFloats(typ, half, singleOps)
	case "BF16":
		half.widen = neonOp{0x2e613800, "SHLL16.4S.4H"}
		half.narrow = func(n *neon, x int) { // see bf16Kernels
			n.line("VUSHR $16, V%d.S4, V%d.S4", x, neonMask)
			n.line("VAND V%d.B16, V%d.B16, V%d.B16", neonOne, neonMask, neonMask)
			n.line("VADD V%d.S4, V%d.S4, V%d.S4", neonHalf, x, x)
			n.line("VADD V%d.S4, V%d.S4, V%d.S4", neonMask, x, x)
			n.op(neonOp{0x0f108400, "SHRN16.4H.4S"}, x, x)
		}
		return neonFloats(typ, half, singleOps)
	case "I8":
		return neonIntegers(typ, 1, map[string]neonOp{
			"Sum": {0x4e208400, "ADD.16B"}, "Min": {0x4e206c00, "SMIN.16B"},
			"Max": {0x4e206400, "SMAX.16B"}, "Prod": {0x4e209c00, "MUL.16B"},
		})
	case "U8":
		return neonIntegers(typ, 1, map[string]neonOp{
			"Sum": {0x4e208400, "ADD.16B"}, "Min": {0x6e206c00, "UMIN.16B"},
			"Max": {0x6e206400, "UMAX.16B"}, "Prod": {0x4e209c00, "MUL.16B"},
		})
	case "I32":
		return neonIntegers(typ, 4, map[string]neonOp{
			"Sum": {0x4ea08400, "ADD.4S"}, "Min": {0x4ea06c00, "SMIN.4S"},
			"Max": {0x4ea06400, "SMAX.4S"}, "Prod": {0x4ea09c00, "MUL.4S"},
		})
	case "I64":
		return neonIntegers(typ, 8, map[string]neonOp{"Sum": {0x4ee08400, "ADD.2D"}})
	}
	panic("no NEON for type " + typ)
}

// neonFloats returns the kernels that compute with ops. FMIN and FMAX propagate
// NaN and order -0 before +0.
func neonFloats(typ string, k neonKernel, ops floatOps) []neonKernel {
	half := k.elem != k.lane
	sum, divide, multiply, minimum, maximum, prod := k, k, k, k, k, k
	sum.name, sum.next, sum.partial = "Sum"+typ, ops.add, half
	divide.name, divide.next, divide.partial, divide.scale = "Divide"+typ, ops.add, half, ops.divide
	multiply.name, multiply.next, multiply.partial, multiply.scale = "Multiply"+typ, ops.add, half, ops.multiply
	minimum.name, minimum.next = "Min"+typ, ops.min
	maximum.name, maximum.next = "Max"+typ, ops.max
	prod.name, prod.next, prod.partial = "Prod"+typ, ops.multiply, half
	return []neonKernel{sum, divide, multiply, minimum, maximum, prod}
}

func neonIntegers(typ string, size int, ops map[string]neonOp) []neonKernel {
	var kernels []neonKernel
	for _, name := range []string{"Sum", "Min", "Max", "Prod"} {
		if op, ok := ops[name]; ok {
			kernels = append(kernels, neonKernel{name: name + typ, elem: size, lane: size, next: op})
		}
	}
	return kernels
}

// neon is the text of a file.
type neon struct {
	bytes.Buffer
	labels int
}

func (n *neon) line(format string, args ...any) { fmt.Fprintf(n, "\t"+format+"\n", args...) }

func (n *neon) label(name string) string {
	n.labels++
	return fmt.Sprintf("%s%d", name, n.labels)
}

func (n *neon) mark(label string) { fmt.Fprintf(n, "\n%s:\n", label) }

// op writes an instruction with its destination and one or two operands.
func (n *neon) op(op neonOp, d int, from ...int) {
	word := op.word | uint32(d)
	text := fmt.Sprintf("%s V%d", op.name, d)
	for i, v := range from {
		word |= uint32(v) << []int{5, 16}[i]
		text += fmt.Sprintf(", V%d", v)
	}
	n.line("WORD $%#08x // %s", word, text)
}

// dup fills register v from R9, for lanes of a size.
func (n *neon) dup(v, lane int) {
	n.line("VDUP R9, V%d.%s", v, map[int]string{4: "S4", 8: "D2"}[lane])
}

// routine writes one routine. R0 is dst, R1 srcs, R2 their end, R3 the index, R4
// its end, R5 where a span ends, R6 the source, R7 the memory, R8 is wide, R10 also.
func (n *neon) routine(k neonKernel) {
	fmt.Fprintf(n, "\n// func neon%s%s\nTEXT ·neon%s(SB), NOSPLIT, $0-64\n", k.name, parameters, k.name)
	n.line("MOVD dst+0(FP), R0")
	n.line("MOVD also+8(FP), R10")
	n.line("MOVD srcs+16(FP), R1")
	n.line("MOVD terms+24(FP), R2")
	n.line("ADD R2<<5, R1, R2")
	n.line("MOVD lo+32(FP), R3")
	n.line("MOVD hi+40(FP), R4")
	if k.partial {
		n.line("MOVBU wide+48(FP), R8")
	}
	if k.equal.word != 0 {
		n.line("MOVD $%#x, R9", k.nan)
		n.dup(neonNaN, k.lane)
	}
	if k.scale.word != 0 {
		n.line("MOVD scale+56(FP), R9")
		n.dup(neonScale, k.lane)
	}
	if k.narrow != nil {
		n.line("MOVD $1, R9")
		n.dup(neonOne, 4)
		n.line("MOVD $0x7fff, R9")
		n.dup(neonHalf, 4)
	}
	full := 16 / k.lane
	n.span(k, full, 4)
	for lanes := full; lanes > 0; lanes /= 2 {
		n.span(k, lanes, 1)
	}
	n.line("RET")
}

// span writes the loop over spans of so many registers with so many lanes.
func (n *neon) span(k neonKernel, lanes, regs int) {
	loop, terms, finish, done := n.label("loop"), n.label("terms"), n.label("finish"), n.label("done")
	n.mark(loop)
	n.line("ADD $%d, R3, R5", lanes*regs)
	n.line("CMP R4, R5")
	n.line("BGT %s", done)
	n.line("MOVD R1, R6")
	n.term(k, lanes, regs, func(r int) int { return r }, func(r int) {})
	n.mark(terms)
	n.line("ADD $%d, R6, R6", sourceSize)
	n.line("CMP R2, R6")
	n.line("BEQ %s", finish)
	n.term(k, lanes, regs, func(int) int { return neonTerm }, func(r int) { n.op(k.next, r, r, neonTerm) })
	n.line("B %s", terms)
	n.mark(finish)
	for x := range regs {
		if k.scale.word != 0 {
			n.op(k.scale, x, x, neonScale)
		}
		if k.equal.word != 0 {
			n.op(k.equal, neonMask, x, x)
			n.line("VBIF V%d.B16, V%d.B16, V%d.B16", neonMask, neonNaN, x)
		}
	}
	narrow, stored := n.label("narrow"), n.label("stored")
	// store writes the registers to dst and, if there is one, to also.
	store := func(elem int) {
		shift := bits.TrailingZeros(uint(elem))
		n.line("ADD R3<<%d, R0, R7", shift)
		for x := range regs {
			n.store(lanes*elem, x, x*lanes*elem)
		}
		n.line("CBZ R10, %s", stored)
		n.line("ADD R3<<%d, R10, R7", shift)
		for x := range regs {
			n.store(lanes*elem, x, x*lanes*elem)
		}
	}
	if k.partial {
		n.line("CBZ R8, %s", narrow)
		store(4)
		n.line("B %s", stored)
		n.mark(narrow)
	}
	if k.narrow != nil {
		for x := range regs {
			k.narrow(n, x)
		}
	}
	store(k.elem)
	n.mark(stored)
	n.line("MOVD R5, R3")
	n.line("B %s", loop)
	n.mark(done)
}

// term loads the span of one source, each register into the one that to gives,
// and uses it.
func (n *neon) term(k neonKernel, lanes, regs int, to func(r int) int, use func(r int)) {
	wide, done := n.label("wide"), n.label("done")
	n.line("MOVD (R6), R7")
	if k.partial {
		n.line("MOVBU %d(R6), R9", sourceWide)
		n.line("CBNZ R9, %s", wide)
	}
	n.line("ADD R3<<%d, R7, R7", bits.TrailingZeros(uint(k.elem)))
	for r := range regs {
		n.load(lanes*k.elem, to(r), r*lanes*k.elem)
		if k.widen.word != 0 {
			n.op(k.widen, to(r), to(r))
		}
		use(r)
	}
	if !k.partial {
		return
	}
	n.line("B %s", done)
	n.mark(wide)
	n.line("ADD R3<<2, R7, R7")
	for r := range regs {
		n.load(lanes*4, to(r), r*16)
		use(r)
	}
	n.mark(done)
}

// scalar is the suffix of a move of so many bytes.
var scalar = map[int]string{4: "S", 8: "D", 16: "Q"}

// load loads so many bytes at an offset from R7 into register x, and zeros.
func (n *neon) load(size, x, offset int) {
	switch size {
	case 1, 2:
		n.line("VEOR V%d.B16, V%d.B16, V%d.B16", x, x, x)
		n.line("VLD1 (R7), V%d.%s[0]", x, "BH"[size-1:size])
	default:
		n.line("FMOV%s %d(R7), F%d", scalar[size], offset, x)
	}
}

func (n *neon) store(size, x, offset int) {
	switch size {
	case 1, 2:
		n.line("VST1 V%d.%s[0], (R7)", x, "BH"[size-1:size])
	default:
		n.line("FMOV%s F%d, %d(R7)", scalar[size], x, offset)
	}
}

// writeNEON writes the routines for one type, and what declares them.
func writeNEON(folder, typ string) error {
	const head = "// Code generated by reduce/avo. DO NOT EDIT.\n\n//go:build arm64\n\n"
	n := &neon{}
	n.WriteString(head + "#include \"textflag.h\"\n")
	stubs := bytes.NewBufferString(head + "package reduce\n")
	for _, k := range neonKernels(strings.ToUpper(typ)) {
		n.routine(k)
		fmt.Fprintf(stubs, "\n//go:noescape\nfunc neon%s%s\n", k.name, parameters)
	}
	name := filepath.Join(folder, typ+"_neon_arm64")
	if err := os.WriteFile(name+".s", n.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(name+".go", stubs.Bytes(), 0o644)
}
