//go:build !race

package sys

import "sync/atomic"

// Publish stores v so that whoever loads it sees all that was stored before
// (release). Unlike w.Store it does not wait until others can see it, so a load
// that follows may be carried out first. On amd64 every store is a release.
func Publish(w *atomic.Uint64, v uint64) { *plain(w) = v }
