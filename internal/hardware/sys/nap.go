package sys

import (
	"time"

	"golang.org/x/sys/unix"
)

// Nap sleeps for d, or less if a signal comes, on the calling thread. Goroutines that
// sleep are woken by threads of the Go runtime, which in a C program may be 5 ms late
// (capi/monitor.c); the caller's own thread is not.
func Nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil)
}
