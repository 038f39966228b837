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
	Shared     int // bytes of shared memory of a block that the kernel declares
	Local      int // bytes of memory of a thread for what registers do not hold

	context *Context
	handle  uintptr
}

// Numbers of CUfunction_attribute.
const (
	functionMaxThreads = 0
	functionShared     = 1
	functionLocal      = 3
	functionRegisters  = 4
	functionMaxDynamic = 8
)

// SetMaxShared lets launches ask for up to bytes of shared memory, which is
// needed above 48 KiB.
func (f *Function) SetMaxShared(bytes int) error {
	return f.context.within(func() error { return call(cuFuncSetAttribute, f.handle, functionMaxDynamic, uintptr(bytes)) })
}

// Occupancy is how many blocks of that many threads and bytes of shared memory
// run on one multiprocessor at once: 0 where none can, or the driver cannot say.
func (f *Function) Occupancy(block, shared int) int {
	n, err := f.context.result(cuOccupancyMaxActiveBlocksPerMultiprocessor, f.handle, uintptr(block), uintptr(shared))
	if err != nil {
		return 0
	}
	return int(int32(n))
}

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
