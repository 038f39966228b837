package sys

// copyPast copies lines of 64 bytes from src to dst, which is aligned to 64.
//
//go:noescape
func copyPast(dst, src *byte, lines int)

func fence()
