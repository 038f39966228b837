package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A Watcher tells when it is worth looking at this machine again: the kernel
// announced something about a PCI device, or wrote to its log.
type Watcher struct {
	fds    []unix.PollFd
	buffer []byte
}

// uevent is the multicast group of the kernel's own announcements.
const uevent = 1

// NewWatcher begins to listen. Without the right to read the kernel log it
// hears announcements alone, and problem says so.
func NewWatcher() (w *Watcher, problem, err error) {
	w = &Watcher{buffer: make([]byte, 64<<10)}
	netlink, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err == nil {
		if err = unix.Bind(netlink, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: uevent}); err != nil {
			unix.Close(netlink)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen to the kernel's announcements: %w", err)
	}
	w.fds = append(w.fds, unix.PollFd{Fd: int32(netlink), Events: unix.POLLIN})
	log, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		if _, err = unix.Seek(log, 0, io.SeekEnd); err != nil {
			unix.Close(log)
		}
	}
	if err != nil {
		return w, &os.PathError{Op: "read the kernel log", Path: "/dev/kmsg", Err: err}, nil
	}
	w.fds = append(w.fds, unix.PollFd{Fd: int32(log), Events: unix.POLLIN})
	return w, nil, nil
}

// Wait returns when something has happened, or, with false, when limit has
// passed.
func (w *Watcher) Wait(limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		n, err := unix.Poll(w.fds, int(left/time.Millisecond)+1)
		if err != nil && !errors.Is(err, unix.EINTR) || n > 0 && w.drain() {
			return true
		}
	}
}

// drain reads what has come and reports whether any of it may matter.
func (w *Watcher) drain() (matters bool) {
	for i, f := range w.fds {
		if f.Revents == 0 {
			continue
		}
		for {
			n, err := unix.Read(int(f.Fd), w.buffer)
			if errors.Is(err, unix.EPIPE) { // the log has overtaken its reader
				matters = true
				continue
			}
			if err != nil || n <= 0 {
				// ENOBUFS too: announcements were lost.
				matters = matters || err != nil && !errors.Is(err, unix.EAGAIN)
				break
			}
			matters = matters || i > 0 || bytes.Contains(w.buffer[:n], []byte("\x00SUBSYSTEM=pci\x00"))
		}
	}
	return matters
}

// Close stops listening.
func (w *Watcher) Close() error {
	var first error
	for _, f := range w.fds {
		if err := unix.Close(int(f.Fd)); first == nil {
			first = err
		}
	}
	return first
}
