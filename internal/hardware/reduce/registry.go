package reduce

import (
	"fmt"
	"strings"

	"ringlane/internal/model/dtype"
)

// implementation is one way to reduce.
type implementation struct {
	name      string
	available func() bool
	kernel    func(t dtype.Type, op dtype.Op) Kernel // nil where it has none
}

// implementations stands in order of preference. The last one has a kernel for
// everything, everywhere.
var implementations = append(vectors, implementation{"go", func() bool { return true }, goKernel})

// Implementation says what the registry knows about one way to reduce.
type Implementation struct {
	Name      string
	Available bool // on this machine
}

// Implementations lists the registry in order of preference.
func Implementations() []Implementation {
	var list []Implementation
	for _, im := range implementations {
		list = append(list, Implementation{im.name, im.available()})
	}
	return list
}

// Lookup returns the kernel for op over t. It returns nil for an invalid t or op
// and for nothing else.
type Lookup func(t dtype.Type, op dtype.Op) Kernel

// Select returns the lookup that prefers the implementation called name. Where
// that one has no kernel, those that follow it in the registry are asked. Empty
// or "auto" is For.
func Select(name string) (Lookup, error) {
	if name == "" || name == "auto" {
		return For, nil
	}
	names := []string{"auto"}
	for i, im := range implementations {
		if !im.available() {
			continue
		}
		if im.name == name {
			return func(t dtype.Type, op dtype.Op) Kernel { return first(implementations[i:], t, op) }, nil
		}
		names = append(names, im.name)
	}
	return nil, fmt.Errorf("reduce by %q: this machine has no such implementation (take one of %s)", name, strings.Join(names, " "))
}

// For returns the preferred kernel for op over t on this machine: a Lookup.
func For(t dtype.Type, op dtype.Op) Kernel { return first(implementations, t, op) }

// first returns the kernel of the first of the list that runs here and has one.
func first(list []implementation, t dtype.Type, op dtype.Op) Kernel {
	for _, im := range list {
		if im.available() {
			if k := im.kernel(t, op); k != nil {
				return k
			}
		}
	}
	return nil
}

// ForImpl returns the kernel of the implementation called name, nil where it is
// unknown, cannot run on this machine, or has no kernel for op over t.
func ForImpl(name string, t dtype.Type, op dtype.Op) Kernel {
	for _, im := range implementations {
		if im.name == name && im.available() {
			return im.kernel(t, op)
		}
	}
	return nil
}

// goKernel is the implementation that all others are measured against.
func goKernel(t dtype.Type, op dtype.Op) Kernel {
	if !op.Valid() {
		return nil
	}
	switch t {
	case dtype.F32:
		return nativeKernel[float32](op)
	case dtype.F64:
		return nativeKernel[float64](op)
	case dtype.F16, dtype.BF16:
		return halfKernel(t, op)
	case dtype.I8:
		return nativeKernel[int8](op)
	case dtype.U8:
		return nativeKernel[uint8](op)
	case dtype.I32:
		return nativeKernel[int32](op)
	case dtype.I64:
		return nativeKernel[int64](op)
	}
	return nil
}
