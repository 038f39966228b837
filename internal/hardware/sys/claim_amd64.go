package sys

import "golang.org/x/sys/cpu"

// claim claims the lines of the n > 0 bytes from p.
func claim(p *byte, n int) {
	if storesNothing {
		claimByStore(p, n)
	} else {
		claimByPrefetch(p, n)
	}
}

// storesNothing: AMD's processors treat PREFETCHW like any prefetch of a line
// that another core has modified (seen on Zen 4), but get hold of the line for
// a store whose mask is empty. Intel's heed PREFETCHW, and such a store may take
// a detour through microcode there.
var storesNothing = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && vendorIsAMD()

// A prefetch does not wait for its line, and stores do once there are as many as the
// processor holds.
var claimsTell = storesNothing

// A prefetch waits for nothing. What AMD's do not bring is for stores to fetch.
var fetches = !vendorIsAMD()

func vendorIsAMD() bool {
	b, c, d := vendor()
	return b == 0x68747541 && d == 0x69746e65 && c == 0x444d4163 // "AuthenticAMD"
}

func vendor() (b, c, d uint32)

//go:noescape
func claimByStore(p *byte, n int)

//go:noescape
func claimByPrefetch(p *byte, n int)
