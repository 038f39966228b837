package cuda

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Params is the parameter of a kernel: one struct, as C lays it out. It lies
// outside Go's heap, where the driver finds it without the collector's help,
// and is good for any number of launches, one after the other: a launch copies
// it.
type Params struct {
	mapped []byte // the driver's array of pointers to parameters, an early launch, the parameter
	size   int
}

// Where in mapped things are, each aligned for whatever is in it.
const (
	launchAt = 64
	paramsAt = 256
)

// early is an early launch as cuLaunchKernelEx takes it: a CUlaunchConfig and its one
// attribute.
type early struct {
	grid, block [3]uint32
	shared      uint32
	stream      uintptr
	attributes  uintptr
	count       uint32
	_           uint32

	attribute uint32
	_         uint32
	value     [16]uint32
}

// programmaticSerialization is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
const programmaticSerialization = 6

// NewParams makes a zeroed parameter of size bytes.
func NewParams(size int) (*Params, error) {
	mapped, err := unix.Mmap(-1, 0, paramsAt+size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for a kernel's parameter: %w", size, err)
	}
	start := unsafe.Pointer(&mapped[0])
	*(*uintptr)(start) = uintptr(unsafe.Add(start, paramsAt))
	return &Params{mapped, size}, nil
}

// Bytes is the struct, to be filled.
func (p *Params) Bytes() []byte { return p.mapped[paramsAt : paramsAt+p.size] }

// View is the parameter as the Go twin of its struct, which holds no pointers.
// It panics where the sizes differ.
func View[T any](p *Params) *T {
	if size := unsafe.Sizeof(*new(T)); int(size) != p.size {
		panic(fmt.Sprintf("cuda: a parameter of %d bytes seen as %T of %d", p.size, *new(T), size))
	}
	return (*T)(unsafe.Pointer(&p.mapped[paramsAt]))
}

// Free ends p, which no launch uses any more.
func (p *Params) Free() error { return unix.Munmap(p.mapped) }

// early writes down an early launch and returns where it is.
func (p *Params) early(grid, block, shared uint32, s Stream) uintptr {
	launch := (*early)(unsafe.Pointer(&p.mapped[launchAt]))
	*launch = early{
		grid: [3]uint32{grid, 1, 1}, block: [3]uint32{block, 1, 1}, shared: shared, stream: uintptr(s),
		attributes: uintptr(unsafe.Pointer(&launch.attribute)), count: 1,
		attribute: programmaticSerialization, value: [16]uint32{1},
	}
	return uintptr(unsafe.Pointer(launch))
}

// array is cuLaunchKernel's kernelParams.
func (p *Params) array() uintptr {
	if p == nil {
		return 0
	}
	return uintptr(unsafe.Pointer(&p.mapped[0]))
}
