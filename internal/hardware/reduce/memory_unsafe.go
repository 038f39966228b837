package reduce

import (
	"fmt"
	"unsafe"
)

// Element is a Go type that holds one element. f16 and bf16 travel as their bit
// patterns in a uint16.
type Element interface {
	~float32 | ~float64 | ~uint16 | ~int8 | ~uint8 | ~int32 | ~int64
}

// Bytes returns the memory of s, unchanged and shared.
func Bytes[T Element](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// View returns the memory of b, unchanged and shared, as elements. It panics if
// b is not aligned to T or ends within an element.
func View[T Element](b []byte) []T {
	var zero T
	size := int(unsafe.Sizeof(zero))
	n := len(b) / size
	if n*size != len(b) {
		panic(fmt.Sprintf("view %d bytes as %T: an element has %d (pass whole elements)", len(b), zero, size))
	}
	if !aligned[T](b) {
		panic(fmt.Sprintf("view bytes at %p as %T: not a multiple of %d (copy them to aligned memory)", b, zero, unsafe.Alignof(zero)))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// aligned reports whether b may be viewed as elements of type T in place.
func aligned[T Element](b []byte) bool {
	var zero T
	return len(b) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%unsafe.Alignof(zero) == 0
}

// sizeOf returns the size of a T in bytes.
func sizeOf[T Element]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}
