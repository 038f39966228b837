package device

import (
	"errors"
	"fmt"
	"sync"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/kernels"
)

// gpu is what the communicators of a process share of one GPU: its context, and
// the kernels loaded in it, which take seconds to compile.
type gpu struct {
	device  *cuda.Device
	context *cuda.Context
	users   int // guarded by gpus.mu

	mu        sync.Mutex
	modules   map[string]*cuda.Module
	functions map[string]*cuda.Function
}

var gpus struct {
	mu   sync.Mutex
	open map[*cuda.Device]*gpu
}

// retain begins the use of a GPU.
func retain(device *cuda.Device) (*gpu, error) {
	gpus.mu.Lock()
	defer gpus.mu.Unlock()
	g := gpus.open[device]
	if g == nil {
		context, err := device.Retain()
		if err != nil {
			return nil, fmt.Errorf("%v: %w", device, err)
		}
		g = &gpu{device: device, context: context, modules: map[string]*cuda.Module{}, functions: map[string]*cuda.Function{}}
		if gpus.open == nil {
			gpus.open = map[*cuda.Device]*gpu{}
		}
		gpus.open[device] = g
	}
	g.users++
	return g, nil
}

// release ends the use of the GPU.
func (g *gpu) release() error {
	gpus.mu.Lock()
	defer gpus.mu.Unlock()
	if g.users--; g.users > 0 {
		return nil
	}
	delete(gpus.open, g.device)
	var all error
	for _, m := range g.modules {
		all = errors.Join(all, m.Unload())
	}
	return errors.Join(all, g.context.Release())
}

// function is a kernel, whose module is loaded when it is first asked for.
func (g *gpu) function(module, name string) (*cuda.Function, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.functions[name]; f != nil {
		return f, nil
	}
	m := g.modules[module]
	if m == nil {
		image, err := kernels.PTX(module, g.device.Capability)
		if err == nil {
			m, err = g.context.Load(image)
		}
		if err != nil {
			return nil, fmt.Errorf("load kernels %s on %v: %w", module, g.device, err)
		}
		g.modules[module] = m
	}
	f, err := m.Function(name)
	if err != nil {
		return nil, err
	}
	g.functions[name] = f
	return f, nil
}
