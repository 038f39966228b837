package cuda

import "fmt"

// Module is loaded kernels.
type Module struct {
	context *Context
	handle  uintptr
}

// Unload ends the module and its functions.
func (m *Module) Unload() error {
	return m.context.within(func() error { return call(cuModuleUnload, m.handle) })
}

// Function is one kernel.
type Function struct {
	Name       string
	Registers  int // of a thread
	MaxThreads int // of a block

	// Early says that a launch may put the kernel's blocks in place before what
	// comes before it in the stream has ended, for which it waits itself.
	Early bool

	context *Context
	handle  uintptr
}

// Numbers of CUfunction_attribute.
const (
	functionMaxThreads = 0
	functionRegisters  = 4
)

func (f *Function) String() string {
	return fmt.Sprintf("%s (%d registers, %d threads at most)", f.Name, f.Registers, f.MaxThreads)
}

// Launch puts grid blocks of block threads into s, each block with shared bytes
// of memory beyond what the kernel declares. The kernel's one parameter is what
// params holds now; nil, where it has none. It allocates nothing.
func (f *Function) Launch(grid, block, shared uint32, s Stream, params *Params) error {
	if err := f.context.Enter(); err != nil {
		return err
	}
	defer f.context.Leave()
	return s.Launch(f, grid, block, shared, params)
}

// Launch is [Function.Launch] for callers that have entered the function's
// context: one driver call.
func (s Stream) Launch(f *Function, grid, block, shared uint32, params *Params) error {
	return call(cuLaunchKernel, f.handle, uintptr(grid), 1, 1, uintptr(block), 1, 1, uintptr(shared), uintptr(s), params.array(), 0)
}

// earlySince is the driver from which on graphs can hold early launches: 12.3.
const earlySince = 12030

// EarlyLaunches reports whether the driver knows [Stream.LaunchEarly].
func (d *Driver) EarlyLaunches() bool {
	return addresses[cuLaunchKernelEx] != 0 && d.version >= earlySince
}

// LaunchEarly is [Stream.Launch] of a function that may be launched early. params
// is not nil.
func (s Stream) LaunchEarly(f *Function, grid, block, shared uint32, params *Params) error {
	return call(cuLaunchKernelEx, params.early(grid, block, shared, s), f.handle, params.array(), 0)
}
