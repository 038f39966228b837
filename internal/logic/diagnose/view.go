package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
	"ringlane/internal/model/topology"
)

// view is one machine as the rules look at it: its devices as links, its log
// by device.
type view struct {
	m      *machine.Machine
	graph  *topology.Graph
	log    []kernlog.Entry
	limits Thresholds
	rules  []Rule

	devices  map[pcie.BDF]*machine.Device // those of the document, and those of which only the log speaks
	children map[pcie.BDF][]*machine.Device
	links    []*link
	above    map[pcie.BDF]*link // by every function at the lower end
	below    map[pcie.BDF]*link // by the port at the upper end

	slots     []slotEvent   // removals and insertions
	contained []containment // by DPC
	records   []*errorGroup // AER records, by link

	recoveries []recovery
	jams       []congestedSwitch
	jamsKnown  bool
	bars       map[*machine.Device][]kernlog.Resource // memory BARs of which the log speaks
}

// link is a PCI Express link. Either end may be nil: a slot that is empty, a
// port that no input shows.
type link struct {
	up, down  *machine.Device
	functions []*machine.Device // all those at the lower end
}

func newView(m *machine.Machine, limits Thresholds) *view {
	v := &view{
		m: m, graph: topology.New(m), log: oneOrder(m), limits: limits,
		devices:  make(map[pcie.BDF]*machine.Device, len(m.Devices)),
		children: map[pcie.BDF][]*machine.Device{},
		above:    map[pcie.BDF]*link{},
		below:    map[pcie.BDF]*link{},
	}
	for _, d := range m.Devices {
		v.devices[d.BDF] = d
		if d.Parent != nil {
			v.children[*d.Parent] = append(v.children[*d.Parent], d)
		}
	}
	for _, d := range m.Devices {
		if d.IsBridge() && v.looksDown(d) {
			v.addLink(d)
		}
	}
	for _, d := range m.Devices {
		if v.above[d.BDF] == nil && v.below[d.BDF] == nil && v.hasOwnLink(d) {
			v.addHalf(d)
		}
	}
	v.readSlots()
	v.readRecords()
	return v
}

// oneOrder is the log in the order of its lines (long records are handed on
// late), with lines and boots numbered through all its texts, so that any two
// entries can be compared.
func oneOrder(m *machine.Machine) []kernlog.Entry {
	log := slices.Clone(m.Log)
	slices.SortStableFunc(log, func(a, b kernlog.Entry) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Line, b.Line))
	})
	boots := map[[2]int]int{} // by part and number
	for i := range log {
		e := &log[i]
		e.Line = i + 1
		b := [2]int{e.Part, e.Time.Boot}
		if _, seen := boots[b]; !seen {
			boots[b] = len(boots)
		}
		e.Time.Boot = boots[b]
	}
	return log
}

// looksDown reports whether a link hangs below the bridge d. Where no
// register tells, the ports of a tree alternate: root port, upstream port of a
// switch, downstream port, and so on.
func (v *view) looksDown(d *machine.Device) bool {
	if x := d.Registers.Express; x != nil && x.Port != pcie.PortUnknown {
		return x.Port.Downward()
	}
	depth := 0
	for p := d.Parent; p != nil && depth < maxDepth; depth++ {
		parent := v.devices[*p]
		if parent == nil {
			break
		}
		if x := parent.Registers.Express; x != nil {
			switch {
			case x.Port.Downward():
				return depth%2 == 1
			case x.Port == pcie.UpstreamPort:
				return depth%2 == 0
			}
		}
		p = parent.Parent
	}
	return depth%2 == 0
}

// maxDepth bounds walks along parents: there are 256 buses.
const maxDepth = 256

// hasOwnLink reports whether d is the lower end of a link whose upper end no
// input shows.
func (v *view) hasOwnLink(d *machine.Device) bool {
	if d.PhysicalFunction != nil || d.BDF.Function != 0 && v.devices[functionZero(d.BDF)] != nil {
		return false
	}
	if x := d.Registers.Express; x != nil {
		return x.Port.Upward() && (d.Parent == nil || v.devices[*d.Parent] == nil || !v.devices[*d.Parent].IsBridge())
	}
	_, known := d.Current()
	return known && d.Parent == nil && !d.ParentKnown
}

func functionZero(b pcie.BDF) pcie.BDF { b.Function = 0; return b }

func (v *view) addLink(up *machine.Device) *link {
	l := &link{up: up}
	for _, c := range v.children[up.BDF] {
		if c.PhysicalFunction != nil {
			continue
		}
		if l.down == nil {
			l.down = c
		}
		l.functions = append(l.functions, c)
		v.above[c.BDF] = l
	}
	v.below[up.BDF] = l
	v.links = append(v.links, l)
	return l
}

func (v *view) addHalf(down *machine.Device) *link {
	l := &link{down: down}
	for _, d := range v.m.Devices {
		if d.BDF.SameDevice(down.BDF) && d.PhysicalFunction == nil {
			l.functions = append(l.functions, d)
			v.above[d.BDF] = l
		}
	}
	if len(l.functions) == 0 {
		l.functions = []*machine.Device{down}
		v.above[down.BDF] = l
	}
	v.links = append(v.links, l)
	return l
}

// device returns the device at an address of the log; one that the document
// does not know is made up, so that it can be named.
func (v *view) device(a kernlog.Address) *machine.Device {
	b, err := pcie.ParseBDF(string(a))
	if a == "" || err != nil {
		return nil
	}
	if !a.HasFunction() { // a card: the driver of GPUs names no function
		for _, d := range v.m.Devices {
			if d.BDF.SameDevice(b) && d.IsGPU() {
				return d
			}
		}
	}
	if d := v.devices[b]; d != nil {
		return d
	}
	d := &machine.Device{BDF: b}
	v.devices[b] = d
	return d
}

// linkOf returns the link that an error of d speaks of: the one below a port
// that looks down, otherwise the one above.
func (v *view) linkOf(d *machine.Device, port bool) *link {
	if l := v.below[d.BDF]; l != nil {
		return l
	}
	if l := v.above[d.BDF]; l != nil {
		return l
	}
	if l := v.above[functionZero(d.BDF)]; l != nil {
		return l
	}
	if d.PhysicalFunction != nil && v.above[*d.PhysicalFunction] != nil {
		return v.above[*d.PhysicalFunction]
	}
	if port || d.IsBridge() && v.looksDown(d) {
		return v.addLink(d)
	}
	return v.addHalf(d)
}

// component names a link: the upstream end first, one end where the other is
// not known.
func (l *link) component() string {
	switch {
	case l.up == nil:
		return l.down.BDF.String()
	case l.down == nil:
		return l.up.BDF.String()
	}
	return l.up.BDF.String() + separator + l.down.BDF.String()
}

const separator = "<->"

// ends are the addresses in a component.
func ends(component string) []string { return strings.Split(component, separator) }

// others names the further functions at the lower end.
func (l *link) others() []string {
	var out []string
	for _, d := range l.functions {
		if d != l.down {
			out = append(out, d.BDF.String())
		}
	}
	return out
}

// isInside reports whether the link runs inside one card or chip: GPUs of AMD
// carry a small switch, whose ports are theirs too.
func (l *link) isInside() bool {
	return l.up != nil && l.up.Of(machine.VendorAMD) && l.up.IsBridge()
}

// isVirtual reports whether the link is emulated.
func (v *view) isVirtual(l *link) bool {
	return v.m.Virtual.Likely() || l.up != nil && isEmulated(l.up) || l.down != nil && l.down.Emulated() != ""
}

func isEmulated(d *machine.Device) bool {
	return (d.IsBridge() || d.IsHostBridge()) && d.Emulated() != ""
}

// matters reports whether a device is what people put into such a machine.
func matters(d *machine.Device) bool {
	return d.IsGPU() || (d.IsNIC() || d.IsNVMe()) && d.PhysicalFunction == nil
}

// affected names the GPUs, NICs and drives at and below the devices, and the
// ranks on them.
func (v *view) affected(roots ...*machine.Device) []string {
	var found []*machine.Device
	seen := map[*machine.Device]bool{}
	var walk func(d *machine.Device)
	walk = func(d *machine.Device) {
		if d == nil || seen[d] {
			return
		}
		seen[d] = true
		if matters(d) {
			found = append(found, d)
		}
		for _, c := range v.children[d.BDF] {
			walk(c)
		}
	}
	for _, d := range roots {
		walk(d)
	}
	slices.SortStableFunc(found, func(a, b *machine.Device) int {
		return cmp.Or(cmp.Compare(kindRank(a), kindRank(b)), a.BDF.Compare(b.BDF))
	})
	var out []string
	for _, d := range found {
		out = append(out, d.BDF.String())
	}
	if v.m.NCCL != nil {
		for _, r := range v.m.NCCL.Ranks {
			if r.BDF != nil && seen[v.devices[*r.BDF]] {
				out = append(out, fmt.Sprintf("rank %d", r.Rank))
			}
		}
	}
	return out
}

func kindRank(d *machine.Device) int {
	switch {
	case d.IsGPU():
		return 0
	case d.IsNIC():
		return 1
	}
	return 2
}

// affectedBy names what sits below the link.
func (v *view) affectedBy(l *link) []string {
	if len(l.functions) == 0 {
		return nil
	}
	return v.affected(l.functions...)
}

// each calls f with every event of one type in the log.
func each[E kernlog.Event](v *view, f func(i int, e *kernlog.Entry, event E)) {
	for i := range v.log {
		if event, ok := v.log[i].Event.(E); ok {
			f(i, &v.log[i], event)
		}
	}
}

// lines are the evidence of entries: their text, the first and last few of
// many.
func lines(entries ...*kernlog.Entry) []string {
	const head, tail = 2, 1
	var out []string
	for i, e := range entries {
		if len(entries) > head+tail && i >= head && i < len(entries)-tail {
			if i == head {
				out = append(out, fmt.Sprintf("… %d more like these …", len(entries)-head-tail))
			}
			continue
		}
		out = append(out, e.Raw...)
	}
	return slices.Compact(out)
}
