package sys

// claim claims the lines of the n > 0 bytes from p.
//
//go:noescape
func claim(p *byte, n int)

const claimsTell, fetches = false, false
