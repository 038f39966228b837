//go:build !amd64 || race

package sys

import "sync/atomic"

// Publish stores v so that whoever loads it sees all that was stored before
// (release).
func Publish(w *atomic.Uint64, v uint64) { w.Store(v) }
