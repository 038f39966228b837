package shm

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/sys"
)

// Arena is a window that a process hands out in blocks, for buffers that its
// peers read where they lie. It is address space first: a page takes memory
// when a block on it is handed out, and gives it back with the block.
//
// A child that the process forks sees the blocks as they are, like any shared
// mapping.
type Arena struct {
	window *Window
	mu     sync.Mutex
	used   map[int]int  // offset to length of the blocks handed out
	kept   map[int]bool // of which those that are handed out to nobody else
	free   []gap        // in order of offset, never adjacent
}

type gap struct{ at, len int }

const page = 4096

// NewArena sets size bytes of address space aside.
func NewArena(size int) (*Arena, error) {
	size = size / page * page
	w, err := create("ringlane arena", size, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(w.Bytes, unix.MADV_DOFORK); err != nil {
		w.Close()
		return nil, fmt.Errorf("madvise(DOFORK): %w", err)
	}
	_ = unix.Madvise(w.Bytes, unix.MADV_HUGEPAGE) // where shmem_enabled allows it
	return &Arena{window: w, used: map[int]int{}, kept: map[int]bool{}, free: []gap{{0, size}}}, nil
}

// Window is the whole arena, for peers to map.
func (a *Arena) Window() *Window { return a.window }

// Alloc hands out size zeroed bytes on pages of their own, which are made
// present by the calling thread, so near its core.
func (a *Arena) Alloc(size int) ([]byte, error) {
	if size <= 0 || size > len(a.window.Bytes) {
		return nil, fmt.Errorf("%d bytes of %d", size, len(a.window.Bytes))
	}
	need := (size + page - 1) / page * page
	if left := (sys.Grants{}).Memory(); int64(need) > left.Available {
		by := "this machine"
		if left.Group != "" {
			by = "the memory control group " + left.Group
		}
		return nil, fmt.Errorf("%d bytes are needed and %s grants %d more", need, by, left.Available)
	}
	at, ok := a.take(need)
	if !ok {
		return nil, fmt.Errorf("no %d bytes in a row are free of %d", need, len(a.window.Bytes))
	}
	block := a.window.Bytes[at : at+size : at+size]
	if err := populate(a.window.Bytes[at : at+need]); err != nil {
		a.give(at, need)
		return nil, err
	}
	return block, nil
}

func (a *Arena) take(need int) (at int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, g := range a.free {
		if g.len < need {
			continue
		}
		if g.len == need {
			a.free = append(a.free[:i], a.free[i+1:]...)
		} else {
			a.free[i] = gap{g.at + need, g.len - need}
		}
		a.used[g.at] = need
		return g.at, true
	}
	return 0, false
}

// Keep has the block at an offset handed out to nobody else, ever: a peer may still
// write there.
func (a *Arena) Keep(at int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for first, need := range a.used {
		if first <= at && at < first+need {
			a.kept[first] = true
		}
	}
}

// Free takes a block back, which nobody may use any more. The memory goes back
// to the machine.
func (a *Arena) Free(block []byte) error {
	at, ok := a.Offset(block)
	a.mu.Lock()
	need, kept := a.used[at], a.kept[at]
	if ok {
		delete(a.used, at)
	}
	a.mu.Unlock()
	if !ok || need == 0 {
		return fmt.Errorf("the memory is no block of the arena, or was freed before")
	}
	if err := unix.Fallocate(a.window.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), int64(need)); err != nil {
		clear(a.window.Bytes[at : at+need]) // a sandbox may not have it: the memory stays, for the next block
	}
	if !kept {
		a.give(at, need)
	}
	return nil
}

// give makes pages free that are in use no more.
func (a *Arena) give(at, need int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, at)
	i := 0
	for i < len(a.free) && a.free[i].at < at {
		i++
	}
	a.free = append(a.free, gap{})
	copy(a.free[i+1:], a.free[i:])
	a.free[i] = gap{at, need}
	if i+1 < len(a.free) && at+need == a.free[i+1].at {
		a.free[i].len += a.free[i+1].len
		a.free = append(a.free[:i+1], a.free[i+2:]...)
	}
	if i > 0 && a.free[i-1].at+a.free[i-1].len == at {
		a.free[i-1].len += a.free[i].len
		a.free = append(a.free[:i], a.free[i+1:]...)
	}
}

// Offset says where in the arena mem lies, if it does.
func (a *Arena) Offset(mem []byte) (at int, ok bool) {
	return sys.Within(mem, a.window.Bytes)
}
