package cuda

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// addresses are those of the driver's calls, 0 where the driver has none.
// Written once, by load.
var addresses [len(exported)]uintptr

// load opens the driver's library and looks its calls up.
func load() error {
	path := os.Getenv(Variable)
	switch path {
	case "off":
		return fmt.Errorf("%s is off", Variable)
	case "":
		path = "libcuda.so.1"
	}
	runtime.LockOSThread() // dlerror speaks of the calling thread
	defer runtime.UnlockOSThread()
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return fmt.Errorf("load the driver: %w (install the NVIDIA driver; a container is given it with --gpus)", err)
	}
	for s, names := range exported {
		for _, name := range names {
			if addresses[s], _ = purego.Dlsym(library, name); addresses[s] != 0 {
				break
			}
		}
	}
	if addresses[cuInit] == 0 {
		return fmt.Errorf("load the driver: %s has no cuInit (is %s the path of a libcuda.so?)", path, Variable)
	}
	return nil
}

// arguments is what a call of the driver is given: at most the 14 words of
// cuIpcOpenMemHandle. SyscallN would put its arguments on the heap each time;
// here they are there already.
type arguments [14]uintptr

var argumentsPool = sync.Pool{New: func() any { return new(arguments) }}

// call makes one call of the driver and allocates nothing. No argument is the
// address of Go memory, but for that of results.
func call(s symbol, args ...uintptr) error {
	address := addresses[s]
	if address == 0 {
		return missing(s)
	}
	a := argumentsPool.Get().(*arguments)
	status, _, _ := purego.SyscallN(address, a[:copy(a[:], args)]...)
	argumentsPool.Put(a)
	if int32(status) != 0 {
		return &Error{Call: s.name(), Status: int(int32(status))}
	}
	return nil
}

// callWith is call with addresses of Go memory, converted in the argument list
// itself: what they point to stays where it is until callWith returns.
//
//go:uintptrescapes
func callWith(s symbol, args ...uintptr) error { return call(s, args...) }

func missing(s symbol) error {
	if addresses[cuInit] == 0 {
		return fmt.Errorf("%s: no driver is loaded: %w (cuda.Open comes first)", s.name(), errors.ErrUnsupported)
	}
	return fmt.Errorf("%s: the NVIDIA driver has no %s: %w (it is too old: update it)",
		s.name(), strings.Join(exported[s], " or "), errors.ErrUnsupported)
}

// results is where the driver puts what a call answers. It lies on the heap,
// where nothing moves, and is used again, so that calls allocate nothing.
type results [8]uintptr

var resultsPool = sync.Pool{New: func() any { return new(results) }}

func newResults() *results {
	r := resultsPool.Get().(*results)
	clear(r[:])
	return r
}

func (r *results) free() { resultsPool.Put(r) }

// address is where word i of r lies. r is alive until it is freed.
func (r *results) address(i int) uintptr { return uintptr(unsafe.Pointer(&r[i])) }

// int is word i as the C int that the driver stored in its lower half.
func (r *results) int(i int) int { return int(int32(r[i])) }

// text asks the driver for its name (cuGetErrorName) or its words
// (cuGetErrorString) for a status.
func text(s symbol, status int) string {
	if addresses[s] == 0 {
		return ""
	}
	r := newResults()
	defer r.free()
	if code, _, _ := purego.SyscallN(addresses[s], uintptr(status), r.address(0)); int32(code) != 0 || r[0] == 0 {
		return ""
	}
	start := *(*unsafe.Pointer)(unsafe.Pointer(&r[0])) // memory of the driver, which stays
	n := 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(start), n))
}
