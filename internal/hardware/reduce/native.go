package reduce

import "ringlane/internal/model/dtype"

// number is an element type that is its own accumulator.
type number interface {
	float32 | float64 | int8 | uint8 | int32 | int64
}

const (
	// block is the number of elements that are combined at a time where an
	// accumulator on the stack is needed: small enough to stay in the first
	// level of cache and to be cleared quickly for a short message.
	block = 512
	// stride is the same where terms go straight to dst.
	stride = 2048
	// fanIn is the most terms that one loop combines.
	fanIn = 4
)

// nativeKernel returns the kernel for op over T.
func nativeKernel[T number](op dtype.Op) Kernel {
	return func(dst, also []byte, wide bool, srcs []Source, ranks int) {
		size := sizeOf[T]()
		elements(dst, also, wide, srcs, size, size)
		div := divisor(op, wide, ranks)
		inPlace := aligned[T](dst)
		for i := range srcs {
			inPlace = inPlace && aligned[T](srcs[i].Data)
		}
		switch {
		case !inPlace:
			foldUnaligned[T](op, dst, srcs, div)
		case len(srcs) <= 2 || len(srcs) <= fanIn && sums(op):
			foldDirect[T](op, dst, srcs, div)
		default:
			foldBlocks[T](op, dst, srcs, div)
		}
		copy(also, dst)
	}
}

// sums reports whether op combines by addition, the one combination that has
// loops over more than two terms.
func sums(op dtype.Op) bool { return op == dtype.Sum || op == dtype.Avg }

// foldDirect combines terms that one loop can take straight into dst.
func foldDirect[T number](op dtype.Op, dst []byte, srcs []Source, div int) {
	out := View[T](dst)
	for lo := 0; lo < len(out); lo += stride {
		hi := min(lo+stride, len(out))
		var terms [fanIn][]T
		for i := range srcs {
			terms[i] = View[T](srcs[i].Data)[lo:hi]
		}
		combine(op, out[lo:hi], terms[:len(srcs)])
		divide(out[lo:hi], div)
	}
}

// foldBlocks combines any number of terms, as many at a time as a loop takes.
// What they make is kept in an accumulator until the last of them, since dst may
// be one of the sources.
func foldBlocks[T number](op dtype.Op, dst []byte, srcs []Source, div int) {
	var acc [block]T
	out := View[T](dst)
	width := 2
	if sums(op) {
		width = fanIn
	}
	for lo := 0; lo < len(out); lo += block {
		hi := min(lo+block, len(out))
		var terms [fanIn][]T
		n := 0
		for i := range srcs {
			if n == width {
				combine(op, acc[:hi-lo], terms[:n])
				terms[0], n = acc[:hi-lo], 1
			}
			terms[n] = View[T](srcs[i].Data)[lo:hi]
			n++
		}
		combine(op, out[lo:hi], terms[:n])
		divide(out[lo:hi], div)
	}
}

// foldUnaligned combines any number of terms by way of aligned copies.
func foldUnaligned[T number](op dtype.Op, dst []byte, srcs []Source, div int) {
	var acc, term [block]T
	size := sizeOf[T]()
	for lo := 0; lo < len(dst); lo += block * size {
		hi := min(lo+block*size, len(dst))
		a, t := acc[:(hi-lo)/size], term[:(hi-lo)/size]
		copy(Bytes(a), srcs[0].Data[lo:hi])
		if len(srcs) == 1 {
			combine(op, a, [][]T{a})
		}
		for i := 1; i < len(srcs); i++ {
			copy(Bytes(t), srcs[i].Data[lo:hi])
			combine(op, a, [][]T{a, t})
		}
		divide(a, div)
		copy(dst[lo:hi], Bytes(a))
	}
}

// combine folds the terms, at most two or, where sums(op), fanIn, into dst.
func combine[T number](op dtype.Op, dst []T, terms [][]T) {
	nan := quietNaN[T]()
	switch {
	case len(terms) == 1:
		copy(dst, terms[0])
		quiet(dst, nan)
	case op == dtype.Min:
		min2(dst, terms[0], terms[1], nan)
	case op == dtype.Max:
		max2(dst, terms[0], terms[1], nan)
	case op == dtype.Prod:
		prod2(dst, terms[0], terms[1], nan)
	case len(terms) == 2:
		sum2(dst, terms[0], terms[1], nan)
	case len(terms) == 3:
		sum3(dst, terms[0], terms[1], terms[2], nan)
	default:
		sum4(dst, terms[0], terms[1], terms[2], terms[3], nan)
	}
}
