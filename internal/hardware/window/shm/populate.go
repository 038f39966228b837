package shm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/sys"
)

// Populate backs the whole window with memory now, where the kernel would
// otherwise do it page by page at the first touch. A page comes from the NUMA
// node of whoever touches it first, so the owner calls it, on the cores that it
// is bound to and before its peers know of the window. What the window holds
// stays as it is, also while peers write to it.
func (m *Window) Populate() error {
	return populate(m.Bytes[:cap(m.Bytes)])
}

func populate(mem []byte) error {
	err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.14
		touch(mem)
		return nil
	}
	if err != nil {
		return fmt.Errorf("back %d bytes of a window with memory: %w (is memory, or the pool of huge pages, used up?)", len(mem), err)
	}
	return nil
}

// touch writes to every page without changing it.
func touch(mem []byte) {
	for at := 0; at+8 <= len(mem); at += os.Getpagesize() {
		sys.Word64(mem, at).Add(0)
	}
}
