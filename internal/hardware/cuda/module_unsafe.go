package cuda

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// Load compiles PTX for the GPU, or loads a cubin or fatbin. What the compiler
// of the driver has against the image is part of the error.
func (c *Context) Load(image []byte) (*Module, error) {
	text := append(bytes.Clone(image), 0) // PTX ends with a zero byte
	log := make([]byte, 4096)
	options := [2]uint32{5, 6} // CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
	var pinned runtime.Pinner
	pinned.Pin(&log[0])
	defer pinned.Unpin()
	values := [2]uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	r := newResults()
	defer r.free()
	err := c.within(func() error {
		return callWith(cuModuleLoadDataEx, r.address(0), uintptr(unsafe.Pointer(&text[0])),
			uintptr(len(options)), uintptr(unsafe.Pointer(&options)), uintptr(unsafe.Pointer(&values)))
	})
	if err != nil {
		said, _, _ := bytes.Cut(log, []byte{0})
		if s := strings.Join(strings.Fields(string(said)), " "); s != "" {
			err = fmt.Errorf("%w: %s", err, s)
		}
		return nil, err
	}
	return &Module{context: c, handle: r[0]}, nil
}

// Function finds a kernel by name. Asking for its attributes makes the driver
// load it now: where it does so at the first launch it first waits for all
// other kernels, for ever if one of them waits for this one.
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{Name: name, context: m.context}
	r := newResults()
	defer r.free()
	err := m.context.within(func() error {
		text := append([]byte(name), 0)
		if err := callWith(cuModuleGetFunction, r.address(0), m.handle, uintptr(unsafe.Pointer(&text[0]))); err != nil {
			return err
		}
		f.handle = r[0]
		if err := call(cuFuncGetAttribute, r.address(1), functionMaxThreads, f.handle); err != nil {
			return err
		}
		if err := call(cuFuncGetAttribute, r.address(2), functionRegisters, f.handle); err != nil {
			return err
		}
		f.MaxThreads, f.Registers = r.int(1), r.int(2)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	return f, nil
}
