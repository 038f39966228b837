package probe

import (
	"fmt"
	"slices"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// rank orders sources by how near they are to the hardware. Of two that
// disagree the higher one is believed; of two equal ones, the later.
type rank uint8

const (
	fromLog rank = 1 + iota
	fromXML
	fromText
	fromRegisters // configuration space or sysfs
)

// ranks says where the facts of one device come from.
type ranks struct {
	vendor, model, subsystem, class, parent, numa, registers, bridge rank
}

// builder fills a machine from inputs, one after the other.
type builder struct {
	m       *machine.Machine
	ranks   map[pcie.BDF]*ranks
	input   *machine.Input // the one being read
	entries counts         // of kernel log events kept
	surplus ranks          // of devices beyond maxDevices
}

// maxDevices bounds a listing that makes no sense: the largest machines have
// some thousands of functions, most of them virtual.
const maxDevices = 16 << 10

func newBuilder() *builder {
	return &builder{
		m:       &machine.Machine{Version: machine.Version},
		ranks:   map[pcie.BDF]*ranks{},
		entries: counts{},
	}
}

// maxProblems bounds what is said about one input: junk has many lines.
const maxProblems = 50

func (b *builder) problem(line int, class machine.ProblemClass, format string, args ...any) {
	name, n := "", 0
	if b.input != nil {
		name = b.input.Name
	}
	for i := range b.m.Problems {
		if b.m.Problems[i].Input == name {
			n++
		}
	}
	if n < maxProblems {
		b.m.Problems = append(b.m.Problems,
			machine.Problem{Input: name, Line: line, Class: class, Text: fmt.Sprintf(format, args...)})
	}
}

// saw notes that a kind was recognised in the input being read.
func (b *builder) saw(k machine.Kind) {
	if !slices.Contains(b.input.Kinds, k) {
		b.input.Kinds = append(b.input.Kinds, k)
	}
}

// device returns the device at an address, made if it is new, and notes that
// the kind of input spoke of it.
func (b *builder) device(at pcie.BDF, k machine.Kind) *machine.Device {
	if len(b.m.Devices) >= maxDevices && b.m.Device(at) == nil {
		b.problem(0, machine.Malformed, "it lists more than %d devices (the rest is left out)", maxDevices)
		return &machine.Device{BDF: at}
	}
	d := b.m.Add(at)
	if !slices.Contains(d.Sources, k) {
		d.Sources = append(d.Sources, k)
	}
	if b.ranks[at] == nil {
		b.ranks[at] = &ranks{}
	}
	return d
}

// by returns where the facts of a device come from.
func (b *builder) by(d *machine.Device) *ranks {
	if r := b.ranks[d.BDF]; r != nil {
		return r
	}
	b.surplus = ranks{}
	return &b.surplus
}

// put stores a fact if its source is at least as good as the one before.
// It reports whether two sources disagree.
func put[T comparable](have *T, known bool, by *rank, v T, from rank) (conflict bool) {
	conflict = known && *have != v
	if !known || from >= *by {
		*have, *by = v, from
	}
	return conflict
}

func (b *builder) setCode(d *machine.Device, line int, what string, id *machine.ID, by *rank, code uint16, from rank) {
	if old := id.Code; put(&id.Code, id.Known, by, code, from) {
		b.problem(line, machine.Contradiction, "%v: %s is %04x here and %04x elsewhere", d.BDF, what, code, old)
		if id.Code != old {
			id.Name = "" // the name was the other one's
		}
	}
	id.Known = true
}

func (b *builder) setVendor(d *machine.Device, line int, code uint16, from rank) {
	b.setCode(d, line, "the vendor", &d.Vendor, &b.by(d).vendor, code, from)
	if d.Vendor.Name == "" {
		d.Vendor.Name = pcie.VendorName(d.Vendor.Code)
	}
}

func (b *builder) setModel(d *machine.Device, line int, code uint16, from rank) {
	b.setCode(d, line, "the device identifier", &d.Model, &b.by(d).model, code, from)
}

// setClass leaves the programming interface alone where v has none and the
// rest agrees: text often leaves it out.
func (b *builder) setClass(d *machine.Device, line int, v uint32, from rank) {
	old := d.Class.Code
	if d.Class.Known && old>>8 == v>>8 {
		if v&0xff != 0 {
			d.Class.Code = v
		}
		return
	}
	if put(&d.Class.Code, d.Class.Known, &b.by(d).class, v, from) {
		b.problem(line, machine.Contradiction, "%v: the class is %06x here and %06x elsewhere", d.BDF, v, old)
		d.Class.Name = ""
	}
	d.Class.Known = true
	if d.Class.Name == "" {
		d.Class.Name = pcie.ClassName(d.Class.Code)
	}
}

func (b *builder) setNUMA(d *machine.Device, line, node int, from rank) {
	v := -2
	if d.NUMA != nil {
		v = *d.NUMA
	}
	old := v
	if put(&v, d.NUMA != nil, &b.by(d).numa, node, from) && old != -1 && node != -1 {
		b.problem(line, machine.Contradiction, "%v: the NUMA node is %d here and %d elsewhere", d.BDF, node, old)
	}
	if d.NUMA == nil || v != -1 || from == fromRegisters {
		d.NUMA = &v
	}
}

// setParent stores the upstream bridge; nil for a device on a root bus.
func (b *builder) setParent(d *machine.Device, line int, parent *pcie.BDF, from rank) {
	by := &b.by(d).parent
	if d.ParentKnown && !same(d.Parent, parent) {
		// NCCL leaves bridges out: its parent is an ancestor, no contradiction.
		if from != fromXML && *by != fromXML {
			b.problem(line, machine.Contradiction, "%v: the bridge above is %s here and %s elsewhere",
				d.BDF, parentName(parent), parentName(d.Parent))
		}
		if from < *by {
			return
		}
	}
	d.Parent, d.ParentKnown, *by = parent, true, from
}

func parentName(p *pcie.BDF) string {
	if p == nil {
		return "none (a root bus)"
	}
	return p.String()
}

func same[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// setIdentity takes what the header of configuration space says.
func (b *builder) setIdentity(d *machine.Device, line int, id *pcie.Identity) {
	if id == nil {
		return
	}
	// A virtual function reads ffff here; its physical function tells.
	if id.Vendor != 0xffff && id.Vendor != 0 {
		b.setVendor(d, line, id.Vendor, fromRegisters)
		b.setModel(d, line, id.Device, fromRegisters)
	}
	b.setClass(d, line, id.Class, fromRegisters)
	rev := id.Revision
	d.Revision = &rev
	if id.SubsystemVendor != 0 || id.SubsystemDevice != 0 {
		d.SubsystemVendor.Code, d.SubsystemVendor.Known = id.SubsystemVendor, true
		d.SubsystemModel.Code, d.SubsystemModel.Known = id.SubsystemDevice, true
		b.by(d).subsystem = fromRegisters
	}
}
