package sys

import "unsafe"

// CopyPast copies src to dst, which is as long, past the caches where the processor
// can: it does not fetch the lines of dst first, from wherever they are. Only after
// Fence do others see it before what this one stores then.
func CopyPast(dst, src []byte) {
	const line = 64
	if head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) % line); head > 0 {
		n := copy(dst[:min(head, len(dst))], src)
		dst, src = dst[n:], src[n:]
	}
	if n := len(src) / line; n > 0 {
		copyPast(&dst[0], &src[0], n)
		dst, src = dst[n*line:], src[n*line:]
	}
	copy(dst, src)
}

// Fence lets no store pass those before it, not even those of CopyPast.
func Fence() { fence() }
