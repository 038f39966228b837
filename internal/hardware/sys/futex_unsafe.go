package sys

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait = 0 // FUTEX_WAIT, shared between processes
	futexWake = 1 // FUTEX_WAKE
)

// FutexWait sleeps while *w is val, at most for limit. It may wake early.
func FutexWait(w *atomic.Uint32, val uint32, limit time.Duration) {
	ts := unix.NsecToTimespec(int64(max(limit, 0)))
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(val), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// FutexWake wakes every sleeper on w.
func FutexWake(w *atomic.Uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, 1<<30, 0, 0, 0)
}

// Yield lets another runnable thread have this core. The Go scheduler is not
// told: where ranks outnumber cores a yield lasts as long as the others run,
// and the runtime's monitor, which takes the processor of a thread in a system
// call away after 20 us, would wake that often in every rank, on the same cores.
func Yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
