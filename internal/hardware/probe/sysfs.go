package probe

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// root reads a root directory: sys and proc below it. It reports whether
// there is a PCI bus.
func (b *builder) root(dir string) bool {
	if !b.sys(filepath.Join(dir, "sys")) {
		return false
	}
	if line, ok := attribute(filepath.Join(dir, "proc/cmdline")); ok {
		b.saw(machine.KindCmdline)
		b.setCommandLine(0, line)
	}
	if v, ok := attribute(filepath.Join(dir, "proc/sys/kernel/osrelease")); ok {
		fill(&b.m.Kernel, v)
	}
	if v, ok := attribute(filepath.Join(dir, "proc/sys/kernel/hostname")); ok {
		fill(&b.m.Host, v)
	}
	if v, ok := attribute(filepath.Join(dir, "proc/uptime")); ok {
		if s, err := strconv.ParseFloat(firstWord(v), 64); err == nil {
			b.m.UptimeSeconds = &s
		}
	}
	return true
}

// sys reads a /sys tree, or a directory of devices alone. It reports whether
// there is a PCI bus.
func (b *builder) sys(dir string) bool {
	devices := filepath.Join(dir, "bus/pci/devices")
	entries, err := os.ReadDir(devices)
	if err != nil {
		devices = dir
		if entries, err = os.ReadDir(dir); err != nil {
			return false
		}
	}
	n := 0
	for _, e := range entries {
		at, err := pcie.ParseBDF(e.Name())
		if err != nil || !strings.Contains(e.Name(), ".") {
			continue
		}
		d := filepath.Join(devices, e.Name())
		if _, err := os.Stat(filepath.Join(d, "vendor")); err != nil && !exists(filepath.Join(d, "config")) {
			continue
		}
		b.sysDevice(at, d)
		n++
	}
	if n == 0 && devices == dir {
		return false
	}
	b.saw(machine.KindSysfs)
	b.sysNodes(filepath.Join(dir, "devices/system"))
	b.sysIOMMU(filepath.Join(dir, "class/iommu"))
	dmi := filepath.Join(dir, "class/dmi/id")
	vendor, _ := attribute(filepath.Join(dmi, "sys_vendor"))
	product, _ := attribute(filepath.Join(dmi, "product_name"))
	fill(&b.m.Product, strings.TrimSpace(vendor+" "+product))
	if by := hypervisorOf(vendor, product); by != "" {
		fill(&b.m.Virtual.Hypervisor, by)
	}
	return true
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hypervisorOf names the hypervisor that DMI strings give away.
func hypervisorOf(vendor, product string) string {
	for _, h := range []struct{ mark, name string }{
		{"QEMU", "QEMU"}, {"KVM", "KVM"}, {"VMware", "VMware"}, {"VirtualBox", "VirtualBox"}, {"Xen", "Xen"},
		{"Amazon EC2", "Amazon EC2"}, {"Google Compute Engine", "Google Compute Engine"}, {"OpenStack", "OpenStack"},
		{"Firecracker", "Firecracker"}, {"Alibaba Cloud", "Alibaba Cloud"},
	} {
		if strings.Contains(vendor+" "+product, h.mark) && !strings.Contains(product, ".metal") {
			return h.name
		}
	}
	if strings.HasPrefix(vendor, "Microsoft") && strings.HasPrefix(product, "Virtual Machine") {
		return "Hyper-V"
	}
	return ""
}

// maxAttribute bounds a file of sysfs: real ones are one page.
const maxAttribute = 64 << 10

func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fs.ErrInvalid // a pipe in a copied tree would hang us
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxAttribute))
}

// attribute returns the trimmed text of a file, ok only if it is there and
// not empty.
func attribute(path string) (string, bool) {
	data, err := readSmall(path)
	s := strings.TrimSpace(string(bytes.ToValidUTF8(data, nil)))
	return s, err == nil && s != ""
}

// sysDevice reads one device. Whatever is missing or broken is left out and
// said; the listing goes on.
func (b *builder) sysDevice(at pcie.BDF, dir string) {
	d := b.device(at, machine.KindSysfs)
	get := func(name string) (string, bool) {
		data, err := readSmall(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) {
			class := machine.Unreadable
			if errors.Is(err, fs.ErrPermission) {
				class = machine.Denied
			}
			b.problem(0, class, "%v: %s: %v", at, name, reason(err))
		}
		s := strings.TrimSpace(string(bytes.ToValidUTF8(data, nil)))
		return s, err == nil && s != ""
	}
	code := func(name string) (uint64, bool) {
		s, ok := get(name)
		if !ok {
			return 0, false
		}
		v, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 32)
		if err != nil {
			b.problem(0, machine.Malformed, "%v: %s holds %.40q", at, name, s)
		}
		return v, err == nil
	}
	b.sysConfig(d, dir)
	if v, ok := code("vendor"); ok && v != 0xffff {
		b.setVendor(d, 0, uint16(v), fromRegisters)
	}
	if v, ok := code("device"); ok && v != 0xffff {
		b.setModel(d, 0, uint16(v), fromRegisters)
	}
	if v, ok := code("class"); ok {
		b.setClass(d, 0, uint32(v)&0xffffff, fromRegisters)
	}
	if v, ok := code("subsystem_vendor"); ok && v != 0 {
		d.SubsystemVendor.Code, d.SubsystemVendor.Known = uint16(v), true
	}
	if v, ok := code("subsystem_device"); ok && v != 0 {
		d.SubsystemModel.Code, d.SubsystemModel.Known = uint16(v), true
	}
	if v, ok := code("revision"); ok {
		r := uint8(v)
		d.Revision = &r
	}
	if s, ok := get("numa_node"); ok {
		if n, err := strconv.Atoi(s); err == nil {
			b.setNUMA(d, 0, n, fromRegisters)
		}
	}
	if s, ok := get("label"); ok {
		d.Label = s
	}
	if s, ok := get("power_state"); ok {
		d.PowerState = s
	}
	b.sysLinks(d, dir)
	b.sysBuses(d, get)
	b.sysLink(d, get)
	if s, ok := get("resource"); ok {
		b.sysResources(d, s)
	}
	b.sysCounters(d, get)
	for _, class := range []string{"net", "infiniband", "nvme"} {
		names, err := os.ReadDir(filepath.Join(dir, class))
		for i := range names {
			if err == nil && class != "nvme" {
				addName(&d.Interfaces, names[i].Name())
			}
		}
	}
}

// sysConfig decodes configuration space. Without privilege the kernel gives 64
// bytes of it.
func (b *builder) sysConfig(d *machine.Device, dir string) {
	config, err := readSmall(filepath.Join(dir, "config"))
	if err != nil && len(config) == 0 {
		if !errors.Is(err, fs.ErrNotExist) {
			b.problem(0, machine.Unreadable, "%v: config: %v", d.BDF, reason(err))
		}
		return
	}
	r := pcie.Decode(config)
	b.addRegisters(d, 0, &r, fromRegisters)
	b.setIdentity(d, 0, r.ID)
}

// sysLinks follows the links of a device: parent, driver, group, slot.
func (b *builder) sysLinks(d *machine.Device, dir string) {
	if target, err := os.Readlink(dir); err == nil {
		b.sysParent(d, target)
	}
	if target, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
		d.Driver = filepath.Base(target)
	}
	if target, err := os.Readlink(filepath.Join(dir, "physfn")); err == nil {
		if pf, err := pcie.ParseBDF(filepath.Base(target)); err == nil {
			d.PhysicalFunction = &pf
		}
	}
	if target, err := os.Readlink(filepath.Join(dir, "iommu_group")); err == nil {
		d.IOMMUGroup = integer(filepath.Base(target))
		if t, ok := attribute(filepath.Join(dir, "iommu_group/type")); ok {
			d.IOMMUDomain = t
		}
	}
}

// sysParent reads ".../pci0000:00/0000:00:01.0/0000:01:00.0".
func (b *builder) sysParent(d *machine.Device, target string) {
	parts := strings.Split(filepath.ToSlash(target), "/")
	if len(parts) < 2 {
		return
	}
	above := parts[len(parts)-2]
	if root, ok := strings.CutPrefix(above, "pci"); ok {
		_, bus, _ := strings.Cut(root, ":")
		if v, err := strconv.ParseUint(bus, 16, 8); err == nil {
			n := uint8(v)
			d.RootBus = &n
			b.setParent(d, 0, nil, fromRegisters)
		}
		return
	}
	if p, err := pcie.ParseBDF(above); err == nil && strings.Contains(above, ".") {
		b.setParent(d, 0, &p, fromRegisters)
	}
}

// sysBuses reads the bus numbers of a bridge, which the kernel prints beside
// config. In a copy without links they alone tell what is below it.
func (b *builder) sysBuses(d *machine.Device, get func(string) (string, bool)) {
	number := func(name string) (uint8, bool) {
		s, _ := get(name)
		v, err := strconv.ParseUint(s, 10, 8)
		return uint8(v), err == nil
	}
	secondary, ok := number("secondary_bus_number")
	subordinate, ok2 := number("subordinate_bus_number")
	if !ok || !ok2 || d.Registers.Bridge != nil && b.by(d).bridge != fromLog {
		return
	}
	b.by(d).bridge = fromRegisters
	d.Registers.Bridge = &pcie.Bridge{Primary: d.BDF.Bus, Secondary: secondary, Subordinate: subordinate}
}

// allOnesWidth is the width that the kernel reads from a link status register
// of all ones: no device answered.
const allOnesWidth = 63

// sysLink reads current_link_* and max_link_*. The kernel prints 255 and
// "Unknown" where it cannot tell.
func (b *builder) sysLink(d *machine.Device, get func(string) (string, bool)) {
	link := func(prefix string) (l pcie.Link) {
		if s, ok := get(prefix + "_speed"); ok {
			l.Speed = speed(s)
		}
		if s, ok := get(prefix + "_width"); ok {
			if v, err := strconv.ParseUint(s, 10, 8); err == nil && v != 255 {
				l.Width = uint8(v)
			}
		}
		return l
	}
	l := machine.KernelLink{Current: link("current_link"), Max: link("max_link")}
	if l.Current.Width == allOnesWidth {
		d.Lost = true
		return
	}
	if l != (machine.KernelLink{}) {
		d.Link = &l
	}
}

// Flags of a resource, from the kernel's include/linux/ioport.h.
const (
	resourceIO       = 0x100
	resourceMemory   = 0x200
	resourcePrefetch = 0x2000
	resourceWide     = 0x100000
	resourceUnset    = 0x20000000
	resourceDisabled = 0x10000000
)

// sysResources reads "resource": a line of start, end and flags for each BAR,
// the ROM, the VF BARs and the windows of a bridge.
func (b *builder) sysResources(d *machine.Device, text string) {
	var out []machine.Resource
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		start, end, flags := hexWord(f[0]), hexWord(f[1]), hexWord(f[2])
		if flags&(resourceIO|resourceMemory) == 0 || end < start {
			continue
		}
		r := machine.Resource{
			Address: start, Size: end - start + 1, IO: flags&resourceIO != 0,
			Prefetchable: flags&resourcePrefetch != 0, Wide: flags&resourceWide != 0, State: machine.Assigned,
		}
		switch {
		case i < 6:
			r.Kind, r.Index = machine.BAR, i
		case i == 6:
			r.Kind, r.Index = machine.ROM, 6
		case i < 13 && (len(lines) > 13 || d.Registers.Bridge == nil):
			r.Kind, r.Index = machine.VFRegion, i-7
		default:
			r.Kind, r.Index = machine.Window, (i-7)%6
		}
		switch {
		case flags&resourceUnset != 0 || start == 0 && r.Kind != machine.ROM:
			r.State, r.Address = machine.Unassigned, 0
		case flags&resourceDisabled != 0:
			r.State = machine.Disabled
		}
		out = append(out, r)
	}
	if len(out) > 0 {
		d.Resources = out
	}
}

// sysCounters reads aer_dev_* and aer_rootport_*.
func (b *builder) sysCounters(d *machine.Device, get func(string) (string, bool)) {
	var c machine.Counters
	seen := false
	read := func(name string) (map[string]uint64, uint64) {
		text, ok := get(name)
		if !ok {
			return nil, 0
		}
		seen = true
		return counters(text)
	}
	c.Correctable, c.TotalCorrectable = read("aer_dev_correctable")
	c.NonFatal, c.TotalNonFatal = read("aer_dev_nonfatal")
	c.Fatal, c.TotalFatal = read("aer_dev_fatal")
	root := func(name string, to *uint64) {
		if s, ok := get(name); ok {
			if v, err := strconv.ParseUint(s, 10, 64); err == nil {
				*to = v
				seen = true
			}
		}
	}
	if _, ok := get("aer_rootport_total_err_cor"); ok {
		c.Root = &machine.RootCounters{}
		root("aer_rootport_total_err_cor", &c.Root.Correctable)
		root("aer_rootport_total_err_nonfatal", &c.Root.NonFatal)
		root("aer_rootport_total_err_fatal", &c.Root.Fatal)
	}
	if seen {
		d.Counters = &c
	}
}

// counters reads "RxErr 0", "Bad TLP 3", "TOTAL_ERR_COR 3", line by line.
// Names of either length give the short one.
func counters(text string) (out map[string]uint64, total uint64) {
	var sum uint64
	hasTotal := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			continue
		}
		v, err := strconv.ParseUint(line[i+1:], 10, 64)
		if err != nil {
			continue
		}
		name := strings.TrimSpace(line[:i])
		if strings.HasPrefix(name, "TOTAL_ERR") {
			total, hasTotal = v, true
			continue
		}
		if v == 0 {
			continue
		}
		if bit, ok := pcie.CorrectableByName(name); ok {
			name = bit.Names()[0]
		} else if bit, ok := pcie.UncorrectableByName(name); ok {
			name = bit.Names()[0]
		}
		if out == nil {
			out = map[string]uint64{}
		}
		out[name] += v
		sum += v
	}
	if !hasTotal {
		total = sum
	}
	return out, total
}

// sysNodes reads the NUMA nodes, with their processors, distances and socket.
func (b *builder) sysNodes(system string) {
	entries, err := os.ReadDir(filepath.Join(system, "node"))
	if err != nil {
		return
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "node")
		id, err := strconv.Atoi(number)
		if !ok || err != nil || id < 0 {
			continue
		}
		dir := filepath.Join(system, "node", e.Name())
		n := b.node(id)
		if cpus, ok := attribute(filepath.Join(dir, "cpulist")); ok {
			n.CPUs = cpus
			first := firstOf(cpus, "-,")
			if s, ok := attribute(filepath.Join(system, "cpu/cpu"+first+"/topology/physical_package_id")); ok {
				n.Socket = integer(s)
			}
		}
		if text, ok := attribute(filepath.Join(dir, "distance")); ok {
			n.Distance = nil
			for w := range strings.FieldsSeq(text) {
				if v, err := strconv.Atoi(w); err == nil {
					n.Distance = append(n.Distance, v)
				}
			}
		}
	}
}

// sysIOMMU lists the IOMMUs that the kernel runs.
func (b *builder) sysIOMMU(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	b.m.IOMMU.UnitsSeen = true
	for _, e := range entries {
		addName(&b.m.IOMMU.Units, e.Name())
	}
}
