// Package shm makes windows of shared memory between processes of one machine.
package shm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// Window is a sealed memfd and its mapping: cache-coherent memory in which
// aligned 8-byte stores are atomic and atomics order as the Go memory model
// says. The file has no name in any file
// system, so nothing is left behind however the processes end; its size is
// sealed, so that no holder can make another one fault by shrinking it.
type Window struct {
	Bytes []byte
	Huge  bool // backed by pages of the hugetlb pool
	fd    int
}

// Create makes size bytes of zeroed memory that can be handed to other
// processes by its descriptor. Huge pages are used where the pool has enough and
// rounding up to them does not exceed most bytes; otherwise transparent ones are
// asked for.
func Create(name string, size, most int) (*Window, error) {
	if rounded := (size + hugePage - 1) / hugePage * hugePage; rounded <= most {
		if m, err := create(name, rounded, unix.MFD_HUGETLB|unix.MFD_HUGE_2MB); err == nil {
			m.Bytes = m.Bytes[:size:rounded]
			m.Huge = true
			return m, nil
		}
	}
	m, err := create(name, size, 0)
	if err != nil {
		return nil, err
	}
	// The kernel refuses where shmem_enabled says so; small pages are correct too.
	_ = unix.Madvise(m.Bytes, unix.MADV_HUGEPAGE)
	return m, nil
}

func create(name string, size int, flags int) (*Window, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("ftruncate to %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("seal memfd: %w", err)
	}
	m, err := mapShared(fd, size)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return m, nil
}

// Open maps a descriptor that another process made with Create. It
// takes the descriptor over, also when it fails. Memory that is not sealed
// against shrinking, or smaller than size, is refused: touching it could fault.
func Open(fd, size int) (*Window, error) {
	m, err := open(fd, size)
	if err != nil {
		unix.Close(fd)
	}
	return m, err
}

func open(fd, size int) (*Window, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("read seals of a peer's memory: %w", err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("a peer's memory is not sealed against shrinking")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("fstat of a peer's memory: %w", err)
	}
	if st.Size < int64(size) {
		return nil, fmt.Errorf("a peer's memory has %d bytes, %d are needed", st.Size, size)
	}
	m, err := mapShared(fd, int(st.Size))
	if err != nil {
		return nil, err
	}
	m.Bytes = m.Bytes[:size:st.Size]
	return m, nil
}

func mapShared(fd, size int) (*Window, error) {
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap %d bytes: %w", size, err)
	}
	// A forked child has no business in a communicator; without the mapping a
	// stray access there faults in the child and cannot reach the job.
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		unix.Munmap(mem)
		return nil, fmt.Errorf("madvise(DONTFORK): %w", err)
	}
	return &Window{Bytes: mem, fd: fd}, nil
}

// FD is the descriptor to hand to another process.
func (m *Window) FD() int { return m.fd }

// Close unmaps the memory and closes its descriptor. Bytes must not be used
// afterwards.
func (m *Window) Close() error {
	if m.Bytes == nil {
		return nil
	}
	err := unix.Munmap(m.Bytes[:cap(m.Bytes)])
	m.Bytes = nil
	if cerr := unix.Close(m.fd); err == nil {
		err = cerr
	}
	return err
}
