package cuda

// Pointer is an address as kernels use it.
type Pointer uint64

// result is the first answer of one call that prepares something.
func (c *Context) result(s symbol, args ...uintptr) (uintptr, error) {
	r := newResults()
	defer r.free()
	err := c.within(func() error { return call(s, append([]uintptr{r.address(0)}, args...)...) })
	return r[0], err
}

// Alloc gives bytes of GPU memory, aligned to 256 bytes at least, which hold
// anything.
func (c *Context) Alloc(bytes uint64) (Pointer, error) {
	p, err := c.result(cuMemAlloc, uintptr(bytes))
	return Pointer(p), err
}

// Free gives memory of Alloc back. The driver first waits for all that the GPU
// runs.
func (c *Context) Free(p Pointer) error {
	return c.within(func() error { return call(cuMemFree, uintptr(p)) })
}

// MemoryInfo says how many bytes of GPU memory are free, of how many.
func (c *Context) MemoryInfo() (free, total uint64, err error) {
	r := newResults()
	defer r.free()
	err = c.within(func() error { return call(cuMemGetInfo, r.address(0), r.address(1)) })
	return uint64(r[0]), uint64(r[1]), err
}

// MemoryType is where memory lies.
type MemoryType uint8

// Unknown is memory that the driver has no record of, such as that of malloc.
const (
	Unknown MemoryType = iota
	HostMemory
	DeviceMemory
	ManagedMemory // moves between both
)

// Attributes is what the driver knows of the memory at a pointer.
type Attributes struct {
	Type   MemoryType
	Device int // ordinal of the GPU that it belongs to, -1 where Type is Unknown
	// Buffer names the allocation in this process: where memory is freed and
	// allocated again the pointer may be the same, this number is not.
	Buffer uint64
}

// Attributes looks the memory at p up.
func (c *Context) Attributes(p Pointer) (Attributes, error) {
	r := newResults()
	defer r.free()
	// Words 0 to 3 are the answers, for each of these CUpointer_attributes:
	// MEMORY_TYPE, BUFFER_ID, IS_MANAGED, DEVICE_ORDINAL.
	q := newResults()
	defer q.free()
	q[0], q[1] = 2|7<<32, 8|9<<32
	for i := range 4 {
		q[2+i] = r.address(i)
	}
	err := c.entered(func() error { return call(cuPointerGetAttributes, 4, q.address(0), q.address(2), uintptr(p)) })
	if err != nil {
		return Attributes{}, err
	}
	a := Attributes{Buffer: uint64(r[1]), Device: r.int(3)}
	switch {
	case r[2]&0xff != 0: // IS_MANAGED is a bool
		a.Type = ManagedMemory
	case r.int(0) == 1: // CU_MEMORYTYPE_HOST
		a.Type = HostMemory
	case r.int(0) == 2: // CU_MEMORYTYPE_DEVICE
		a.Type = DeviceMemory
	default:
		a.Device = -1
	}
	return a, nil
}

// CopyAsync copies n bytes in the order of s, between any two places that the
// GPU reaches.
func (c *Context) CopyAsync(dst, src Pointer, n uint64, s Stream) error {
	return c.entered(func() error { return s.Copy(dst, src, n) })
}

// Set writes value into n bytes and returns when they are there.
func (c *Context) Set(p Pointer, value byte, n uint64) error {
	return c.within(func() error {
		if err := c.setup.Set(p, value, n); err != nil {
			return err
		}
		return c.setup.Synchronize()
	})
}
