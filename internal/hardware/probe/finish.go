package probe

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// finish draws what only the whole of the inputs tells.
func (b *builder) finish() {
	b.input = nil
	b.fromLog()
	b.markRanks()
	b.parents()
	b.nodesOfRoots()
	b.indexGPUs()
	b.virtualFunctions()
	b.virtualHints()
	b.denied()
}

// fromLog takes from the kernel log what describes the machine. Facts from
// other inputs stand.
func (b *builder) fromLog() {
	listed := b.m.Saw(machine.KindLspci, machine.KindLspciTree, machine.KindSysfs, machine.KindCapture)
	for i := range b.m.Log {
		switch e := b.m.Log[i].Event.(type) {
		case kernlog.CommandLine:
			if b.m.CommandLine == "" {
				b.m.CommandLine = e.Text
			}
		case kernlog.KernelVersion:
			fill(&b.m.Kernel, e.Version)
		case kernlog.Platform:
			fill(&b.m.Product, e.Text)
		case kernlog.Hypervisor:
			if e.Name != "" {
				fill(&b.m.Virtual.Hypervisor, e.Name)
			}
		case kernlog.DeviceFound:
			if !listed {
				b.found(&b.m.Log[i], e)
			}
		case kernlog.BusNumbers:
			if e.Change == kernlog.BusesAssigned {
				b.bridgeTo(&b.m.Log[i], e)
			}
		case kernlog.IOMMUGroup:
			if d := b.logDevice(&b.m.Log[i]); d != nil && !e.Left && d.IOMMUGroup == nil {
				group := e.Group
				d.IOMMUGroup = &group
			}
		}
	}
}

// found adds a device that the kernel enumerated: where there is no listing,
// the log at least tells what there is.
func (b *builder) found(at *kernlog.Entry, e kernlog.DeviceFound) {
	address, err := pcie.ParseBDF(string(at.Device))
	if err != nil {
		return
	}
	d := b.device(address, machine.KindKernelLog)
	b.setVendor(d, at.Line, e.Vendor, fromLog)
	b.setModel(d, at.Line, e.ID, fromLog)
	b.setClass(d, at.Line, e.Class, fromLog)
}

func (b *builder) bridgeTo(at *kernlog.Entry, e kernlog.BusNumbers) {
	d := b.logDevice(at)
	if d == nil || e.Buses.Start < 0 || e.Buses.End > 255 || e.Buses.Start > e.Buses.End {
		return
	}
	// The last such line counts, if nothing but the log tells the numbers.
	if by := &b.by(d).bridge; d.Registers.Bridge == nil || *by == fromLog {
		*by = fromLog
		d.Registers.Bridge = &pcie.Bridge{
			Primary: d.BDF.Bus, Secondary: uint8(e.Buses.Start), Subordinate: uint8(e.Buses.End),
		}
	}
}

// logDevice returns the device that a log entry is about, nil if it is not in
// the document.
func (b *builder) logDevice(at *kernlog.Entry) *machine.Device {
	if !at.Device.HasFunction() {
		return nil
	}
	address, err := pcie.ParseBDF(string(at.Device))
	if err != nil {
		return nil
	}
	return b.m.Device(address)
}

// nodesOfRoots gives devices without a NUMA node the one that the kernel
// printed for their root bus.
func (b *builder) nodesOfRoots() {
	nodes := map[string]int{}
	for i := range b.m.Log {
		if e, ok := b.m.Log[i].Event.(kernlog.NUMANode); ok && e.Node >= 0 {
			nodes[e.Bus] = e.Node
		}
	}
	if len(nodes) == 0 {
		return
	}
	for _, d := range b.m.Devices {
		if d.NUMA != nil || d.RootBus == nil {
			continue
		}
		if node, ok := nodes[fmt.Sprintf("%04x:%02x", d.BDF.Domain, *d.RootBus)]; ok {
			d.NUMA = &node
		}
	}
}

// indexGPUs gives the GPUs of the matrix their addresses: nvidia-smi numbers
// them in the order of their addresses. What the matrix tells of NUMA nodes
// fills gaps.
func (b *builder) indexGPUs() {
	x := b.m.Matrix
	if x == nil {
		return
	}
	var gpus []*machine.Device
	numbered := false
	for _, d := range b.m.GPUs() {
		if d.Of(machine.VendorNVIDIA) {
			gpus = append(gpus, d)
			numbered = numbered || d.GPU != nil && d.GPU.Index != nil
		}
	}
	names := 0
	for _, n := range x.Names {
		if strings.HasPrefix(n, "GPU") {
			names++
		}
	}
	if !numbered && names == len(gpus) {
		for i, d := range gpus {
			index := i
			made(&d.GPU).Index = &index
		}
	}
	for _, d := range gpus {
		if d.NUMA != nil || d.GPU == nil || d.GPU.Index == nil {
			continue
		}
		for i := range x.Rows {
			if x.Rows[i].Name == fmt.Sprintf("GPU%d", *d.GPU.Index) {
				d.NUMA = x.Rows[i].NUMA
			}
		}
	}
}

// denied says once what lspci could not show without privilege.
func (b *builder) denied() {
	n := 0
	for _, d := range b.m.Devices {
		if d.Registers.CapabilitiesDenied {
			n++
		}
	}
	if n > 0 {
		b.problem(0, machine.Denied, "the capabilities of %d devices were not readable (run as root)", n)
	}
}

// markRanks makes GPUs of the addresses in NCCL's log, if it is of one host.
func (b *builder) markRanks() {
	if b.m.NCCL == nil || len(b.m.NCCL.Ranks) == 0 {
		return
	}
	hosts := map[string]bool{}
	for _, r := range b.m.NCCL.Ranks {
		hosts[r.Host] = true
	}
	if len(hosts) > 1 {
		return
	}
	for _, r := range b.m.NCCL.Ranks {
		if r.BDF != nil {
			made(&b.device(*r.BDF, machine.KindNCCLLog).GPU)
		}
	}
}

// parents finds the bridge above each device by bus numbers, where no input
// has told it. Without the bridge itself, the nearest one that passes the bus
// on is taken.
func (b *builder) parents() {
	bridges := map[uint32][]*machine.Device{}
	roots := map[[2]uint32]bool{} // domain and bus with a host bridge or root port
	for _, d := range b.m.Devices {
		// A bridge that has not been given numbers reads zeros, or its own bus.
		if r := d.Registers.Bridge; r != nil && r.Secondary > d.BDF.Bus && r.Subordinate >= r.Secondary {
			bridges[d.BDF.Domain] = append(bridges[d.BDF.Domain], d)
		}
		if d.IsHostBridge() || d.Registers.Express != nil && isRoot(d.Registers.Express.Port) {
			roots[[2]uint32{d.BDF.Domain, uint32(d.BDF.Bus)}] = true
		}
	}
	for _, list := range bridges {
		sort.SliceStable(list, func(i, j int) bool {
			return list[i].Registers.Bridge.Secondary > list[j].Registers.Bridge.Secondary
		})
	}
	for _, d := range b.m.Devices {
		if d.ParentKnown && b.by(d).parent > fromXML {
			continue
		}
		for _, p := range bridges[d.BDF.Domain] {
			r := p.Registers.Bridge
			if p == d || r.Secondary > d.BDF.Bus || r.Subordinate < d.BDF.Bus || p.BDF.Bus >= d.BDF.Bus {
				continue
			}
			at := p.BDF
			d.Parent, d.ParentKnown = &at, r.Secondary == d.BDF.Bus
			break
		}
		if d.Parent == nil && roots[[2]uint32{d.BDF.Domain, uint32(d.BDF.Bus)}] {
			d.ParentKnown = true
			bus := d.BDF.Bus
			d.RootBus = &bus
		}
	}
	b.rootBuses()
}

func isRoot(p pcie.PortType) bool {
	return p == pcie.RootPort || p == pcie.IntegratedEndpoint || p == pcie.EventCollector
}

// maxDepth is the most levels that a tree can have: each takes a bus number.
// It also ends a circle of parents.
const maxDepth = 256

// rootBuses passes the root bus down the tree.
func (b *builder) rootBuses() {
	for _, d := range b.m.Devices {
		top := d
		for range maxDepth {
			if top.Parent == nil {
				break
			}
			above := b.m.Device(*top.Parent)
			if above == nil {
				break
			}
			top = above
		}
		if d.RootBus == nil && top.RootBus != nil {
			bus := *top.RootBus
			d.RootBus = &bus
		}
	}
}

// virtualFunctions names the physical function of each VF: the one whose
// SR-IOV capability places it or, where no capability was readable, the one
// that its name and address tell. The BARs of a VF are regions of its physical
// function: that it has none of its own is no failure.
func (b *builder) virtualFunctions() {
	for _, d := range b.m.Devices {
		s := d.Registers.SRIOV
		if s == nil || !s.Enabled || s.Stride == 0 && s.VFs > 1 {
			continue
		}
		for n := range int(s.VFs) {
			if vf := b.m.Device(s.VF(d.BDF, n)); vf != nil && vf != d && vf.PhysicalFunction == nil {
				at := d.BDF
				vf.PhysicalFunction = &at
			}
		}
	}
	for i, d := range b.m.Devices {
		named := strings.Contains(d.Model.Name, "Virtual Function")
		if named && d.PhysicalFunction == nil {
			d.PhysicalFunction = b.physicalFunction(i)
		}
		if named || d.PhysicalFunction != nil {
			d.Resources = slices.DeleteFunc(d.Resources, func(r machine.Resource) bool {
				return r.Kind == machine.BAR && r.State == machine.Unassigned
			})
		}
	}
}

// physicalFunction is the nearest function before a VF that may be its own:
// of the same maker, class and bus, and no VF itself.
func (b *builder) physicalFunction(vf int) *pcie.BDF {
	d := b.m.Devices[vf]
	for i := vf - 1; i >= 0; i-- {
		p := b.m.Devices[i]
		if p.BDF.Domain != d.BDF.Domain || p.BDF.Bus != d.BDF.Bus {
			break
		}
		if p.Vendor == d.Vendor && p.Class.Code == d.Class.Code && p.PhysicalFunction == nil &&
			!strings.Contains(p.Model.Name, "Virtual Function") {
			at := p.BDF
			return &at
		}
	}
	return nil
}

// virtualHints looks for what only a virtual machine has.
func (b *builder) virtualHints() {
	v := &b.m.Virtual
	if by := hypervisorOf(b.m.Product, ""); by != "" {
		fill(&v.Hypervisor, by)
	}
	hint := func(d *machine.Device, what, by string) {
		if by != "virtio" && by != "" {
			fill(&v.Hypervisor, by)
		}
		if text := fmt.Sprintf("%v %s", d.BDF, what); !slices.Contains(v.Hints, text) && len(v.Hints) < 20 {
			v.Hints = append(v.Hints, text)
		}
	}
	for _, d := range b.m.Devices {
		switch by := d.Emulated(); {
		case by != "":
			hint(d, "is emulated", by)
		case d.Virtual:
			hint(d, "stands for bridges that cannot be seen", "")
		}
		if d.GPU != nil && (d.GPU.Virtualization == "Pass-Through" || d.GPU.Virtualization == "VGPU") {
			hint(d, "is passed through, says nvidia-smi", "")
		}
	}
}
