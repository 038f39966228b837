//go:build !amd64 && !arm64

package sys

// Pause does nothing on this architecture.
func Pause() {}
