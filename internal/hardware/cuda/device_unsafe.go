package cuda

import (
	"fmt"
	"strings"
	"unsafe"

	"ringlane/internal/model/pcie"
)

// Numbers of CUdevice_attribute.
const (
	attributeMaxThreads        = 1
	attributeMultiprocessors   = 16
	attributeMapsHost          = 19
	attributeBus               = 33
	attributeSlot              = 34
	attributeUnifiedAddressing = 41
	attributeDomain            = 50
	attributeMajor             = 75
	attributeMinor             = 76
)

func newDevice(ordinal int) (*Device, error) {
	d := &Device{Ordinal: ordinal}
	if err := d.describe(); err != nil {
		return nil, fmt.Errorf("GPU %d: %w", ordinal, err)
	}
	return d, nil
}

// describe asks the driver for all else of d.
func (d *Device) describe() error {
	r := newResults()
	defer r.free()
	if err := call(cuDeviceGet, r.address(0), uintptr(d.Ordinal)); err != nil {
		return err
	}
	d.handle = uintptr(r.int(0))
	var name [256]byte
	if err := callWith(cuDeviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)), d.handle); err != nil {
		return err
	}
	d.Name, _, _ = strings.Cut(string(name[:]), "\x00")
	d.MIG = strings.Contains(d.Name, "MIG")
	if err := callWith(cuDeviceGetUuid, uintptr(unsafe.Pointer(&d.UUID)), d.handle); err != nil {
		return err
	}
	if err := call(cuDeviceTotalMem, r.address(0), d.handle); err != nil {
		return err
	}
	d.Memory = uint64(r[0])

	var first error
	attribute := func(number uintptr) int {
		if err := call(cuDeviceGetAttribute, r.address(0), number, d.handle); err != nil && first == nil {
			first = err
		}
		return r.int(0)
	}
	d.Address = pcie.BDF{
		Domain: uint32(attribute(attributeDomain)),
		Bus:    uint8(attribute(attributeBus)),
		Device: uint8(attribute(attributeSlot)),
	}
	d.Capability = [2]int{attribute(attributeMajor), attribute(attributeMinor)}
	d.Multiprocessors = attribute(attributeMultiprocessors)
	d.MaxThreads = attribute(attributeMaxThreads)
	d.UnifiedAddressing = attribute(attributeUnifiedAddressing) != 0
	d.MapsHost = attribute(attributeMapsHost) != 0
	return first
}
