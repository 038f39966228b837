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
	early   bool // the driver can launch kernels early
	users   int  // guarded by gpus.mu

	mu        sync.Mutex
	modules   map[string]module
	functions map[string]*cuda.Function
}

type module struct {
	*cuda.Module
	ptx []byte
}

var gpus struct {
	mu   sync.Mutex
	open map[*cuda.Device]*gpu
}

// retain begins the use of a GPU.
func retain(driver *cuda.Driver, device *cuda.Device) (*gpu, error) {
	gpus.mu.Lock()
	defer gpus.mu.Unlock()
	g := gpus.open[device]
	if g == nil {
		context, err := device.Retain()
		if err != nil {
			return nil, fmt.Errorf("%v: %w", device, err)
		}
		g = &gpu{device: device, context: context, early: driver.EarlyLaunches(), modules: map[string]module{}, functions: map[string]*cuda.Function{}}
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
func (g *gpu) function(from, name string) (*cuda.Function, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.functions[name]; f != nil {
		return f, nil
	}
	m, loaded := g.modules[from]
	if !loaded {
		var err error
		if m.ptx, err = kernels.PTX(from, g.device.Capability); err == nil {
			m.Module, err = g.context.Load(m.ptx)
		}
		if err != nil {
			return nil, fmt.Errorf("load kernels %s on %v: %w", from, g.device, err)
		}
		g.modules[from] = m
	}
	f, err := m.Function(name)
	if err != nil {
		return nil, err
	}
	f.Early = g.early && kernels.Follows(m.ptx, name)
	g.functions[name] = f
	return f, nil
}
