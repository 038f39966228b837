package cuda

import "slices"

// Exported are the names under which the driver's calls are looked up, and
// Called those of errors, call by call.
func Exported() (names [][]string, called []string) {
	for s := range exported {
		called = append(called, symbol(s).name())
	}
	return exported[:], called
}

// Look is what Open says where it can learn nothing of a GPU.
func Look(ordinal int) error {
	_, err := newDevice(ordinal)
	return err
}

// Lack takes a call out of the driver until the function that it returns puts
// it back.
func Lack(name string) (restore func()) {
	s := slices.IndexFunc(exported[:], func(names []string) bool { return names[0] == name })
	address := addresses[s]
	addresses[s] = 0
	return func() { addresses[s] = address }
}

// Current is the context that is current on this thread, 0 for none.
func Current() uintptr {
	r := newResults()
	defer r.free()
	if call(cuCtxPopCurrent, r.address(0)) != nil || r[0] == 0 {
		return 0
	}
	if err := call(cuCtxPushCurrent, r[0]); err != nil {
		panic(err)
	}
	return r[0]
}

// Number is what Current returns for c.
func (c *Context) Number() uintptr { return c.handle }

// CaptureMode is what this thread may do while captures go on: 0 where nobody
// has changed it.
func CaptureMode() uintptr {
	r := newResults()
	defer r.free()
	exchange := func() {
		if err := call(cuThreadExchangeStreamCaptureMode, r.address(0)); err != nil {
			panic(err)
		}
	}
	exchange()
	mode := r[0]
	exchange()
	return mode
}
