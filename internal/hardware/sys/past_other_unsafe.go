//go:build !amd64

package sys

import "unsafe"

// Elsewhere stores past the caches were not tried, and ClaimsTell is false.

func copyPast(dst, src *byte, lines int) {
	copy(unsafe.Slice(dst, 64*lines), unsafe.Slice(src, 64*lines))
}

func fence() {}
