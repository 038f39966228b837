// Package reduce combines n buffers of elements into one.
//
// The plain Go kernels of this package are the law: any other implementation
// in the registry must produce the same bits. For every element:
//
//   - Terms are combined strictly in the order of the sources, as a left fold,
//     in the accumulator type (dtype.Accumulator), and are rounded to the
//     element type once, when the result is finished.
//   - A NaN in the result is always the one positive quiet NaN with an empty
//     payload. Which of two payloads an addition keeps depends on the order of
//     operands in the machine code, and ranks must agree on every bit.
//   - The result depends on the terms alone: not on where a segment begins or
//     ends, not on alignment, not on whether dst is one of the sources.
//
// Elements lie in memory in little-endian order, as on every machine that
// Ringlane runs on.
package reduce

import (
	"fmt"
	"math/bits"

	"ringlane/internal/model/dtype"
)

// Source is one term of a reduction.
type Source struct {
	Data []byte
	Wide bool // elements are of the accumulator type, else of the element type
}

// Kernel combines srcs, one or more, in order into dst and, unless it is nil, into also,
// which gets the same bytes in the same pass.
//
// With wide set, dst is a partial result in the accumulator type and is never
// scaled. Otherwise it is finished: narrowed to the element type and, for Avg,
// divided by ranks, which must then be at least 1.
//
// All buffers hold the same number of elements, at any alignment. dst may be
// the very memory of one source (which then has dst's width), and so may also; any other
// overlap is an error of the caller that goes unnoticed. A kernel allocates nothing. It
// panics where sizes or ranks make no sense.
type Kernel func(dst, also []byte, wide bool, srcs []Source, ranks int)

// elements checks the arguments of a kernel against the sizes of a narrow and
// of a wide element, and returns the number of elements in each buffer.
func elements(dst, also []byte, wide bool, srcs []Source, narrowSize, wideSize int) int {
	size := narrowSize
	if wide {
		size = wideSize
	}
	n := len(dst) >> bits.TrailingZeros(uint(size)) // a division takes longer than a short message
	if n*size != len(dst) {
		panic(fmt.Sprintf("reduce into %d bytes: an element has %d (pass whole elements)", len(dst), size))
	}
	if also != nil && len(also) != len(dst) {
		panic(fmt.Sprintf("reduce into %d bytes and also into %d (pass equal counts)", len(dst), len(also)))
	}
	if len(srcs) == 0 {
		panic("reduce: no sources (pass at least one)")
	}
	for i := range srcs {
		size := narrowSize
		if srcs[i].Wide {
			size = wideSize
		}
		if len(srcs[i].Data) != n*size {
			panic(fmt.Sprintf("reduce source %d of %d bytes: dst holds %d elements, here %d bytes (pass equal counts)",
				i, len(srcs[i].Data), n, n*size))
		}
	}
	return n
}

// divisor returns what a finished result is divided by: ranks for Avg, else 1.
func divisor(op dtype.Op, wide bool, ranks int) int {
	if op != dtype.Avg || wide {
		return 1
	}
	if ranks < 1 {
		panic(fmt.Sprintf("reduce avg over %d ranks: nothing to divide by (pass the size of the communicator)", ranks))
	}
	return ranks
}
