// Package cuda is the NVIDIA driver API, loaded when it is first asked for: a
// program that holds this package runs on machines without a GPU as well.
//
// The driver wants the context of a GPU to be current on the calling thread.
// Methods of [Context], [Module] and [Function] see to that themselves. Methods
// of [Stream], [Event], [Graph] and [Exec] are the fast half: one driver call
// each, for callers that are between [Context.Enter] and [Context.Leave].
//
// What fails says so in an [Error], which names the driver's call. All of it
// may be called from several goroutines at once.
package cuda

import (
	"errors"
	"fmt"
	"sync"

	"ringlane/internal/model/pcie"
)

// Variable names the environment variable with the path of the driver's
// library. "off" stands for a machine without a driver; where it is not set,
// the loader looks for libcuda.so.1.
const Variable = "RINGLANE_CUDA_DRIVER"

// ErrNone is what Open's error wraps where there is no driver, or no GPU that
// the driver lets this process use.
var ErrNone = errors.New("no usable NVIDIA GPU")

// Driver is the loaded driver with its GPUs.
type Driver struct {
	version int
	devices []*Device
}

var open = sync.OnceValues(func() (*Driver, error) {
	d, err := start()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	return d, nil
})

// Open loads and initialises the driver, once for the process: later calls
// answer what the first one did.
func Open() (*Driver, error) { return open() }

func start() (*Driver, error) {
	if err := load(); err != nil {
		return nil, err
	}
	if err := call(cuInit, 0); err != nil {
		return nil, err
	}
	r := newResults()
	defer r.free()
	if err := call(cuDriverGetVersion, r.address(0)); err != nil {
		return nil, err
	}
	d := &Driver{version: r.int(0)}
	if err := call(cuDeviceGetCount, r.address(0)); err != nil {
		return nil, err
	}
	for ordinal := range r.int(0) {
		device, err := newDevice(ordinal)
		if err != nil {
			return nil, err
		}
		d.devices = append(d.devices, device)
	}
	if len(d.devices) == 0 {
		return nil, errors.New("the driver sees no GPU (does CUDA_VISIBLE_DEVICES hide it?)")
	}
	return d, nil
}

// Version is the newest CUDA version that the driver supports: 12040 is 12.4.
func (d *Driver) Version() int { return d.version }

// Devices are the GPUs that this process may use, by ordinal.
func (d *Driver) Devices() []*Device { return d.devices }

// Device is one GPU, or one MIG instance of a GPU.
type Device struct {
	Ordinal int // as CUDA_VISIBLE_DEVICES leaves it
	Name    string
	UUID    [16]byte // of the MIG instance, where it is one
	Address pcie.BDF
	Memory  uint64 // bytes

	Capability      [2]int // {9, 0} is sm_90
	Multiprocessors int
	MaxThreads      int // of a block

	MIG               bool // a slice of a GPU: it has no peers
	UnifiedAddressing bool // one address space with the processor and the other GPUs
	MapsHost          bool // kernels can read and write host memory

	handle uintptr
}

func (d *Device) String() string {
	return fmt.Sprintf("GPU %d (%s, %v)", d.Ordinal, d.Name, d.Address)
}

// PeerLink is what the driver says of kernels on one GPU that reach the memory
// of another.
type PeerLink struct {
	Access  bool
	Atomics bool // the link carries atomic operations
	Rank    int  // 0 is the fastest kind of link of the machine
}

// CanAccess reports whether the driver lets kernels on d reach memory of peer.
// What it permits may still not work: that is for a probe to find out.
func (d *Device) CanAccess(peer *Device) (bool, error) {
	if d.handle == peer.handle {
		return true, nil
	}
	r := newResults()
	defer r.free()
	err := call(cuDeviceCanAccessPeer, r.address(0), d.handle, peer.handle)
	return r.int(0) != 0, err
}

// Link describes the way from d to peer, another GPU.
func (d *Device) Link(peer *Device) (PeerLink, error) {
	r := newResults()
	defer r.free()
	for i, attribute := range []uintptr{1, 2, 3} { // CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, ACCESS_SUPPORTED, NATIVE_ATOMIC_SUPPORTED
		if err := call(cuDeviceGetP2PAttribute, r.address(i), attribute, d.handle, peer.handle); err != nil {
			return PeerLink{}, err
		}
	}
	return PeerLink{Rank: r.int(0), Access: r.int(1) != 0, Atomics: r.int(2) != 0}, nil
}
