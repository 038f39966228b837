//go:build amd64 || arm64

package sys

// Pause tells the core that this is a spin loop, so that its sibling thread
// gets the execution units and leaving the loop costs no pipeline flush.
func Pause()
