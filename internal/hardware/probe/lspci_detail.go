package probe

import (
	"strconv"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// capabilityNames are the starts of lspci's texts for the capabilities that
// package pcie names. Older versions print those they do not know as "#19".
var capabilityNames = []struct {
	text string
	id   pcie.CapabilityID
}{
	{"Express", pcie.CapExpress},
	{"Power Management", pcie.CapPower},
	{"MSI-X:", pcie.CapMSIX},
	{"MSI:", pcie.CapMSI},
	{"Subsystem:", pcie.CapSubsystem},
	{"Advanced Error Reporting", pcie.CapAER},
	{"Access Control Services", pcie.CapACS},
	{"Downstream Port Containment", pcie.CapDPC},
	{"Alternative Routing-ID", pcie.CapARI},
	{"Address Translation Service", pcie.CapATS},
	{"Single Root I/O Virtualization", pcie.CapSRIOV},
	{"Secondary PCI Express", pcie.CapSecondary},
	{"Physical Resizable BAR", pcie.CapReBAR},
	{"Resizable BAR", pcie.CapReBAR},
	{"Virtual Resizable BAR", pcie.CapVFReBAR},
	{"L1 PM Substates", pcie.CapL1SS},
	{"Device Serial Number", pcie.CapSerial},
}

// detail takes a line below a device. Lines that are not indented are taken
// only if their key is one of lspci's: other text may follow.
func (l *lspci) detail(no int, t string, indented bool) bool {
	if strings.HasPrefix(t, "Capabilities:") {
		l.capability(no, strings.TrimSpace(t[len("Capabilities:"):]))
		return true
	}
	if strings.HasPrefix(t, "!!! Unknown header type") {
		l.d.Lost = strings.Contains(t, "7f")
		return true
	}
	key, value, ok := strings.Cut(t, ":")
	if ok && len(key) <= 40 {
		value = strings.TrimSpace(value)
		if l.record(no, key, value) || l.top(no, key, value) || l.register(key, value) {
			l.key = key
			return true
		}
	}
	if l.region(t) {
		l.key = ""
		return true
	}
	if indented {
		l.register(l.key, t)
		return true
	}
	return l.wrapped(no, t)
}

// wrapAt is the length, without indentation, from which a mail program may
// have wrapped a line: that of the line and of the word that did not fit.
const wrapAt = 52

// wrapped takes the rest of a line that a mail program broke. The two parts
// are read as one: the break may be inside a phrase.
func (l *lspci) wrapped(no int, t string) bool {
	switch {
	case l.last == "": // what ends a device's line is in brackets
		end := t[len(t)-1]
		return len(l.header)+len(firstWord(t)) >= wrapAt && (end == ')' || end == ']') && l.again(l.header+" "+t)
	case len(l.last)+len(firstWord(t)) < wrapAt:
		return false
	}
	if rest, ok := strings.CutPrefix(l.last, "Capabilities:"); ok {
		l.capability(no, strings.TrimSpace(rest)+" "+t)
		return true
	}
	if l.key == "" || l.key == "HeaderLog" || strings.HasPrefix(l.key, "BAR ") {
		return false
	}
	l.register(l.key, strings.TrimPrefix(l.last, l.key+":")+" "+t)
	return true
}

// again reads the device's first line once more, now that it is whole.
func (l *lspci) again(header string) bool {
	at, rest, parent, ok := lspciHeader(header)
	if !ok {
		return false
	}
	l.begin(l.at, at, rest, parent)
	l.header = header
	return true
}

// top takes the lines about the device as a whole.
func (l *lspci) top(no int, key, value string) bool {
	switch key {
	case "Subsystem":
		l.subsystem(no, value)
	case "DeviceName":
		l.d.Label = value
	case "Physical Slot":
		l.d.Slot = value
	case "Flags":
		l.flags(no, value)
	case "Control":
		if io, ok := bit(value, "I/O"); ok {
			c := &pcie.Control{IO: io}
			set(&c.Memory, value, "Mem")
			set(&c.BusMaster, value, "BusMaster")
			l.regs.Control = c
		} else {
			return false // of the slot
		}
	case "NUMA node":
		if n, err := strconv.Atoi(value); err == nil {
			l.b.setNUMA(l.d, no, n, fromText)
		}
	case "IOMMU group":
		if n, err := strconv.Atoi(value); err == nil {
			l.d.IOMMUGroup = &n
		}
	case "Kernel driver in use":
		l.d.Driver = value
	case "Bus":
		l.bus(no, value)
	case "I/O behind bridge":
		if b := l.regs.Bridge; b != nil {
			b.IO = window(value)
		}
	case "Memory behind bridge":
		if b := l.regs.Bridge; b != nil {
			b.Memory = window(value)
		}
	case "Prefetchable memory behind bridge":
		if b := l.regs.Bridge; b != nil {
			b.Prefetch = window(value)
		}
	case "Latency", "Interrupt", "Kernel modules", "BridgeCtl", "Secondary status", "BIST", "Alternate":
	default:
		return false
	}
	return true
}

func (l *lspci) subsystem(no int, value string) {
	vendor, model := l.names(no, value)
	have := func(to *machine.ID, v machine.ID) {
		if v.Known {
			to.Code, to.Known = v.Code, true
		}
		if v.Name != "" {
			to.Name = v.Name
		}
	}
	have(&l.d.SubsystemVendor, vendor)
	have(&l.d.SubsystemModel, model)
}

// flags reads the line of lspci -v: "bus master, fast devsel, latency 0,
// IRQ 55, NUMA node 0, IOMMU group 3".
func (l *lspci) flags(no int, value string) {
	for f := range strings.SplitSeq(value, ",") {
		f = strings.TrimSpace(f)
		if n, ok := strings.CutPrefix(f, "NUMA node "); ok {
			l.top(no, "NUMA node", n)
		}
		if n, ok := strings.CutPrefix(f, "IOMMU group "); ok {
			l.top(no, "IOMMU group", n)
		}
	}
}

// bus reads "primary=00, secondary=01, subordinate=08, sec-latency=0".
func (l *lspci) bus(no int, value string) {
	var b pcie.Bridge
	ok := true
	for key, to := range map[string]*uint8{"primary=": &b.Primary, "secondary=": &b.Secondary, "subordinate=": &b.Subordinate} {
		_, text, found := strings.Cut(value, key)
		v, err := strconv.ParseUint(strings.TrimSpace(firstOf(text, ", ")), 16, 8)
		ok = ok && found && err == nil
		*to = uint8(v)
	}
	if !ok {
		l.b.problem(no, machine.Malformed, "%v: the bus numbers %q make no sense", l.d.BDF, value)
		return
	}
	l.regs.Bridge = &b
	one := uint8(1)
	l.regs.HeaderType = &one
}

func firstOf(s, stops string) string {
	if i := strings.IndexAny(s, stops); i >= 0 {
		return s[:i]
	}
	return s
}

// window reads "b8800000-b8afffff [size=3M] [32-bit]". "None" and "[disabled]"
// without numbers are no window.
func window(value string) *pcie.Window {
	from, to, ok := strings.Cut(firstWord(value), "-")
	base, err1 := strconv.ParseUint(from, 16, 64)
	limit, err2 := strconv.ParseUint(to, 16, 64)
	if !ok || err1 != nil || err2 != nil {
		return nil
	}
	return &pcie.Window{Base: base, Limit: limit}
}

// region reads a BAR: "Region 0: Memory at 98000000 (32-bit, non-prefetchable)
// [size=16M]", the same without number, "I/O ports at f000", "Expansion ROM
// at <unassigned>", with [virtual], [disabled], <ignored>. Below SR-IOV they
// are the regions of the virtual functions.
func (l *lspci) region(t string) bool {
	index := -1
	if rest, ok := strings.CutPrefix(t, "Region "); ok {
		n, after, ok := strings.Cut(rest, ":")
		i, err := strconv.Atoi(strings.TrimSpace(n))
		if !ok || err != nil {
			return false
		}
		index, t = i, strings.TrimSpace(after)
	}
	t = strings.TrimSpace(strings.TrimPrefix(t, "[virtual]"))
	r := machine.Resource{Kind: machine.BAR, Index: index, State: machine.Assigned}
	if l.capacity == pcie.CapSRIOV {
		r.Kind = machine.VFRegion
	}
	switch {
	case strings.HasPrefix(t, "Memory at "):
		t = t[len("Memory at "):]
		r.Wide = strings.Contains(t, "64-bit,")
		r.Prefetchable = strings.Contains(t, " prefetchable")
	case strings.HasPrefix(t, "I/O ports at "):
		t = t[len("I/O ports at "):]
		r.IO = true
	case strings.HasPrefix(t, "Expansion ROM at "):
		t = t[len("Expansion ROM at "):]
		r.Kind, r.Index = machine.ROM, 6
	default:
		return false
	}
	address, note := firstWord(t), t
	if v, err := strconv.ParseUint(address, 16, 64); err == nil {
		r.Address = v
	}
	switch {
	case strings.HasPrefix(address, "<ignored"):
		r.State = machine.Ignored
	case strings.HasPrefix(address, "<"): // unassigned, broken-64-bit-slot, invalid-64bit-slot
		r.State = machine.Unassigned
	case strings.Contains(note, "[disabled]"):
		r.State = machine.Disabled
	}
	if _, size, ok := strings.Cut(note, "[size="); ok {
		r.Size = byteSize(firstOf(size, "]"))
	}
	if len(l.bars) < maxRegions {
		l.bars = append(l.bars, r)
	}
	return true
}

// maxRegions and maxCapabilities bound a device whose lines repeat.
const (
	maxRegions      = 32
	maxCapabilities = 256
)

// byteSize reads lspci's sizes: "128", "16K", "256M", "722542M", "32G", "128GB".
func byteSize(s string) uint64 {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	v, err := strconv.ParseUint(s[:n], 10, 64)
	if err != nil {
		return 0
	}
	unit := strings.TrimSpace(s[n:])
	if unit == "" {
		return v
	}
	shift := 10 * (1 + strings.IndexByte("KMGTPE", unit[0]))
	if shift == 0 || v > 1<<(64-shift)-1 {
		return 0
	}
	return v << shift
}

// capability opens a capability: "[58] Express (v2) Root Port (Slot+), MSI 00",
// "[100 v1] Advanced Error Reporting", "<access denied>".
func (l *lspci) capability(no int, s string) {
	l.capacity, l.key = 0, ""
	if strings.HasPrefix(s, "<access denied>") {
		l.regs.CapabilitiesDenied = true
		return
	}
	place, text, ok := strings.Cut(strings.TrimPrefix(s, "["), "] ")
	offset, err := strconv.ParseUint(firstWord(place), 16, 16)
	if !ok || err != nil {
		return // "<chain broken>" and the like
	}
	var version uint64
	if _, v, ok := strings.Cut(place, " v"); ok {
		version, _ = strconv.ParseUint(v, 10, 8)
	}
	var id pcie.CapabilityID
	for _, c := range capabilityNames {
		if strings.HasPrefix(text, c.text) {
			id = c.id
			break
		}
	}
	if n, ok := strings.CutPrefix(text, "#"); ok {
		if v, err := strconv.ParseUint(firstOf(n, " ["), 16, 16); err == nil {
			id = pcie.CapabilityID(v)
			if offset >= pcie.ConfigSize {
				id |= pcie.Extended
			}
		}
	}
	if id == 0 {
		return
	}
	l.capacity = id
	n := len(l.regs.Capabilities)
	if n == 0 || l.regs.Capabilities[n-1].Offset != uint16(offset) && n < maxCapabilities { // else a wrapped line
		l.regs.Capabilities = append(l.regs.Capabilities,
			pcie.Capability{ID: id, Offset: uint16(offset), Version: uint8(version)})
	}
	switch id {
	case pcie.CapExpress:
		l.regs.Express = express(text)
	case pcie.CapSerial:
		if f := strings.Fields(text); len(f) > 3 {
			l.regs.Serial = f[3]
		}
	case pcie.CapSubsystem:
		l.subsystem(no, strings.TrimSpace(strings.TrimPrefix(text, "Subsystem:")))
	}
}

// express reads "Express (v2) Root Port (Slot+), MSI 00".
func express(text string) *pcie.Express {
	x := &pcie.Express{Version: 1}
	t := strings.TrimSpace(strings.TrimPrefix(text, "Express"))
	if v, ok := strings.CutPrefix(t, "(v"); ok {
		n, rest, _ := strings.Cut(v, ")")
		if i, err := strconv.ParseUint(n, 10, 8); err == nil {
			x.Version = uint8(i)
		}
		t = strings.TrimSpace(rest)
	}
	for _, p := range []struct {
		name string
		port pcie.PortType
	}{
		{"Endpoint", pcie.Endpoint}, {"Legacy Endpoint", pcie.LegacyEndpoint}, {"Root Port", pcie.RootPort},
		{"Upstream Port", pcie.UpstreamPort}, {"Downstream Port", pcie.DownstreamPort},
		{"PCI-Express to PCI", pcie.ExpressToPCI}, {"PCI/PCI-X to PCI-Express", pcie.PCIToExpress},
		{"Root Complex Integrated Endpoint", pcie.IntegratedEndpoint}, {"Root Complex Event Collector", pcie.EventCollector},
	} {
		if strings.HasPrefix(t, p.name) {
			x.Port = p.port
			break
		}
	}
	x.SlotImplemented = strings.Contains(t, "(Slot+)")
	return x
}
