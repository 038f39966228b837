package communicator

import (
	"encoding/binary"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/sys"
	"ringlane/internal/hardware/window/shm"
	"ringlane/internal/model/bytesize"
)

// A message can be a reference: the place in the sender's arena where the data
// lies, instead of the data. Its readers take the data from there, and the
// sender's call ends only when they have acknowledged the message. Each sender
// decides for itself, so that ranks with ordinary buffers and ranks with
// buffers in a window work together.
//
// Where results are answers, whoever lends its input offers the place for the result
// too: there the rank that reduces the chunk puts it, and not into the slot.
const (
	// lent is the bit of a tag that says reference.
	lent           = 1
	referenceBytes = 24 // offset, length, offset of the offer or noOffer
	noOffer        = 1<<64 - 1
	// lendFrom is the size from which on a reference pays for the wait for its
	// acknowledgement (AllReduce of 1 to 64 KiB, 2 ranks, 2-core EPYC).
	lendFrom = 4 << 10
	// answeredFrom is the same where the answer acknowledges: less than this comes as fast
	// in the slot.
	answeredFrom = 1 << 10
)

// arena is where buffers in a window come from: one for the process, since a
// buffer serves every communicator. It is nil, with an error, where the
// machine does not grant the address space.
var arena = sync.OnceValues(func() (*shm.Arena, error) {
	size := 0
	if text := os.Getenv("RINGLANE_WINDOW"); text != "" {
		n, err := bytesize.Parse(text)
		if err != nil {
			return nil, failf(Argument, "RINGLANE_WINDOW: %v", err)
		}
		if size = n; n == 0 {
			return nil, failf(Memory, "RINGLANE_WINDOW is 0 (unset it to have buffers in a window)")
		}
	} else {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return nil, failf(System, "sysinfo: %v", err)
		}
		size = int(info.Totalram) * int(info.Unit)
	}
	a, err := shm.NewArena(size)
	if err != nil {
		return nil, failf(Memory, "%s of address space for buffers in a window: %v (lower RINGLANE_WINDOW, or raise the limit that ulimit -v shows)", mebibytes(int64(size)), err)
	}
	return a, nil
})

// Alloc returns size zeroed bytes, aligned to a page, in a window of this
// process: peers read them where they lie, so that a collective on them copies
// less. Every communicator can use them, until Free.
func Alloc(size int) ([]byte, error) {
	a, err := arena()
	if err != nil {
		return nil, failf(codeOf(err), "alloc: %v", err)
	}
	if size == 0 {
		return nil, nil
	}
	b, err := a.Alloc(size)
	if err != nil {
		return nil, failf(Memory, "alloc: %v (free other buffers, or use ordinary memory)", err)
	}
	return b, nil
}

// Free gives memory from Alloc back. No operation may be under way on it.
func Free(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	a, err := arena()
	if err == nil {
		err = a.Free(b)
	}
	if err != nil {
		return failf(Argument, "free: %v", err)
	}
	return nil
}

// loan is where in this rank's arena a buffer lies, if it may be referred to.
type loan struct {
	at int
	ok bool
}

func (c *Comm) loanOf(buffer []byte) loan {
	if c.arena == nil || len(buffer) < lendFrom {
		return loan{}
	}
	at, ok := c.arena.Offset(buffer)
	return loan{at, ok}
}

// loans are those of a call's buffers.
func (c *Comm) loans(call *Call, p *plan) (in, out loan) {
	if !p.lends {
		return in, out
	}
	in, out = c.loanOf(call.In), c.loanOf(call.Out)
	if p.route.exposed && sys.Overlap(call.In, call.Out) {
		in.ok = false
	}
	return in, out
}

func (l loan) from(offset int) loan { return loan{l.at + offset, l.ok} }

// write makes room a reference to size bytes, with the offer of as many bytes
// for the result if there is one.
func (l loan) write(room []byte, size int, offer loan) {
	binary.LittleEndian.PutUint64(room, uint64(l.at))
	binary.LittleEndian.PutUint64(room[8:], uint64(size))
	binary.LittleEndian.PutUint64(room[16:], noOffer)
	if offer.ok {
		binary.LittleEndian.PutUint64(room[16:], uint64(offer.at))
	}
}

// borrow is the memory that peer's reference means, and that it offers for the
// result; nil where it means none.
func (c *Comm) borrow(peer int, reference []byte) (data, offer []byte) {
	if len(reference) != referenceBytes || c.peers[peer].arena == nil {
		return nil, nil
	}
	mem := c.peers[peer].arena.Bytes
	size := binary.LittleEndian.Uint64(reference[8:])
	part := func(at uint64) []byte {
		if at > uint64(len(mem)) || size > uint64(len(mem))-at {
			return nil
		}
		return mem[at : at+size]
	}
	return part(binary.LittleEndian.Uint64(reference)), part(binary.LittleEndian.Uint64(reference[16:]))
}
