// Package sys holds the Linux calls and memory words that windows, channels and
// waiting are made of: words in shared mappings, futexes, process handles, and
// what the kernel grants this process.
package sys

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Word64 is the 8-byte word at off of mapped memory. It panics if off is not a
// multiple of 8 or lies outside.
func Word64(mem []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(word(mem, off, 8))
}

// Word32 is the 4-byte word at off of mapped memory.
func Word32(mem []byte, off int) *atomic.Uint32 {
	return (*atomic.Uint32)(word(mem, off, 4))
}

// Words64 views mapped memory as 8-byte words, for plain loads and stores. A
// plain aligned access of a machine word is not torn (Go memory model), but is
// not ordered either.
func Words64(mem []byte) []uint64 {
	return unsafe.Slice((*uint64)(word(mem, 0, 8)), len(mem)/8)
}

// plain is the word itself.
func plain(w *atomic.Uint64) *uint64 { return (*uint64)(unsafe.Pointer(w)) }

func word(mem []byte, off, size int) unsafe.Pointer {
	if off < 0 || off+size > len(mem) {
		panic(fmt.Sprintf("sys: word at %d of %d bytes", off, len(mem)))
	}
	p := unsafe.Pointer(&mem[off])
	if uintptr(p)%uintptr(size) != 0 {
		panic(fmt.Sprintf("sys: word at %d is not aligned to %d", off, size))
	}
	return p
}

// Same reports whether two slices start at the same address.
func Same(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// Overlap reports whether two slices share any byte.
func Overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	pa, pb := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return pa < pb+uintptr(len(b)) && pb < pa+uintptr(len(a))
}

// Within says at which offset of outer all of inner lies, if it does.
func Within(inner, outer []byte) (at int, ok bool) {
	if len(inner) == 0 || len(outer) == 0 {
		return 0, false
	}
	at = int(uintptr(unsafe.Pointer(&inner[0])) - uintptr(unsafe.Pointer(&outer[0])))
	return at, at >= 0 && at <= len(outer)-len(inner)
}
