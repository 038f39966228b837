package launch

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watcher tells the ends of ranks in the order in which they came. When a rank
// dies, those that wait for it fail a moment later; a goroutine waiting for
// each would report them in the order in which it happens to run. An epoll set
// of pidfds queues them as the kernel ends them.
type watcher struct {
	epoll int
	ranks []*rank
}

func newWatcher() (*watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, failed(fmt.Errorf("cannot watch the ranks: %w (is the limit of open files, `ulimit -n`, too low?)", err))
	}
	return &watcher{epoll: epoll}, nil
}

// add must come before the next rank starts, to keep the order of their ends.
func (w *watcher) add(r *rank) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(len(w.ranks))}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, r.pidfd, &event); err != nil {
		return failed(fmt.Errorf("cannot watch rank %d: %w (Linux 5.4 or later is needed)", r.number, err))
	}
	w.ranks = append(w.ranks, r)
	return nil
}

// watch sends the end of every rank and releases what it watched with.
func (w *watcher) watch(exits chan<- exit) {
	defer unix.Close(w.epoll)
	events := make([]unix.EpollEvent, 16)
	for left := len(w.ranks); left > 0; {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err != nil { // a signal to this thread
			continue
		}
		for _, event := range events[:n] {
			r := w.ranks[event.Fd]
			after := time.Since(r.started)
			_ = r.process.Wait() // the state says it all
			unix.Close(r.pidfd)
			wait, _ := r.process.ProcessState.Sys().(syscall.WaitStatus)
			exits <- exit{rank: r, wait: wait, after: after}
		}
		left -= n
	}
}
