package machine

import (
	"strings"

	"ringlane/internal/model/pcie"
)

// emulated are devices that exist only in virtual machines.
var emulated = map[[2]uint16]string{
	{0x1b36, 0x000c}: "QEMU", {0x1b36, 0x0001}: "QEMU", {0x1b36, 0x0008}: "QEMU", {0x1b36, 0x000b}: "QEMU",
	{0x1b36, 0x000d}: "QEMU", {0x1b36, 0x000e}: "QEMU", {0x1b36, 0x0010}: "QEMU", {0x1b36, 0x0100}: "QEMU",
	{0x1234, 0x1111}: "QEMU",
	{0x1414, 0x5353}: "Hyper-V", {0x1414, 0x00ba}: "Hyper-V", {0x1414, 0x008e}: "Hyper-V",
	{0x15ad, 0x0405}: "VMware", {0x15ad, 0x07a0}: "VMware", {0x15ad, 0x0740}: "VMware", {0x15ad, 0x0790}: "VMware",
	{0x15ad, 0x07b0}: "VMware", {0x5853, 0x0001}: "Xen", {0x80ee, 0xbeef}: "VirtualBox", {0x80ee, 0xcafe}: "VirtualBox",
	{0x1d0f, 0x1111}: "Amazon EC2", {0x1d0f, 0x8061}: "Amazon EC2", {0x1d0f, 0xec20}: "Amazon EC2",
	{0x1ae0, 0x0042}: "Google Compute Engine",
}

// emulatedNames are marks of such devices in the names that lspci prints, which
// without -nn are all there is. The first that fits counts.
var emulatedNames = []struct{ mark, by string }{
	{"QEMU", "QEMU"}, {"Bochs", "QEMU"}, {"Red Hat, Inc", "virtio"}, {"Virtio", "virtio"},
	{"Hyper-V", "Hyper-V"}, {"VMware", "VMware"}, {"VirtualBox", "VirtualBox"}, {"InnoTek", "VirtualBox"}, {"XenSource", "Xen"},
	{"NVMe EBS Controller", "Amazon EC2"}, {"Elastic Network Adapter (ENA)", "Amazon EC2"}, {"[gVNIC]", "Google Compute Engine"},
}

const (
	redHat      = 0x1af4 // virtio, and the subsystem that QEMU gives its chips
	qemuChipset = 0x1100
)

// Emulated names the hypervisor that made the device up, "" for hardware, as
// far as its identifiers and names tell: a root port of QEMU, a virtio device.
// Its link registers prove nothing.
func (d *Device) Emulated() string {
	if d.Vendor.Known && d.Model.Known {
		if by := emulated[[2]uint16{d.Vendor.Code, d.Model.Code}]; by != "" {
			return by
		}
		if d.Vendor.Code == redHat {
			return "virtio"
		}
	}
	// QEMU's copies of real chips carry its subsystem identifier.
	if d.SubsystemVendor.Code == redHat && d.SubsystemModel.Code == qemuChipset {
		return "QEMU"
	}
	for _, name := range [...]string{d.Vendor.Name + " " + d.Model.Name, d.SubsystemVendor.Name + " " + d.SubsystemModel.Name} {
		for _, e := range emulatedNames {
			if strings.Contains(name, e.mark) {
				return e.by
			}
		}
	}
	return ""
}

// EmulatedLink reports whether the device, or the port above it, is emulated.
func (m *Machine) EmulatedLink(at pcie.BDF) bool {
	d := m.Device(at)
	if d == nil {
		return false
	}
	if d.Emulated() != "" {
		return true
	}
	if d.Parent == nil {
		return false
	}
	above := m.Device(*d.Parent)
	return above != nil && above.Emulated() != ""
}
