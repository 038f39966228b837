package kernlog

import "strings"

// KernelVersion is the kernel that booted, with which a boot begins.
type KernelVersion struct {
	Version string
}

// CommandLine is the kernel's command line.
type CommandLine struct {
	Text string
}

// Hypervisor is the hypervisor that the kernel runs on, as printed ("KVM",
// "Microsoft Hyper-V", "kvm"). "" says that it found none: bare metal.
type Hypervisor struct {
	Name string
}

// Platform is the machine by its DMI strings: "Vendor Product/Board, BIOS ...".
type Platform struct {
	Text string
}

// NUMANode is the node of a root bus.
type NUMANode struct {
	Bus  string // "dddd:bb"
	Node int
}

// RootBridge is a PCI host bridge: Bus is its root bus, Name what ACPI calls it
// ("PCI0"), "" in the line of the PCI core.
type RootBridge struct {
	Bus   string
	Name  string
	Buses Buses // where ACPI's line has them
}

// OSCVerb is who says what about a feature.
type OSCVerb string

// The verbs of the _OSC negotiation between kernel and firmware.
const (
	OSCSupports     OSCVerb = "OS supports"
	OSCRefused      OSCVerb = "platform does not support" // firmware keeps it
	OSCControls     OSCVerb = "OS now controls"
	OSCNotRequested OSCVerb = "not requesting OS control"
	OSCFailed       OSCVerb = "evaluation failed"
)

// OSC is one line of the negotiation of one host bridge. Features are the
// kernel's words ("AER", "PCIeHotplug", "DPC"); of OSCNotRequested what the
// kernel would require. AER that is refused belongs to firmware, and then an
// empty log proves nothing.
type OSC struct {
	Bridge   string // "PNP0A08:00"
	Bus      string // its root bus, "" where ACPI's line was not there
	Verb     OSCVerb
	Features []string
}

// Has reports whether feature is in the list.
func (o OSC) Has(feature string) bool {
	for _, f := range o.Features {
		if f == feature {
			return true
		}
	}
	return false
}

// DeviceFound is a function that the kernel enumerated.
type DeviceFound struct {
	Vendor, ID uint16
	HeaderType int    // 0 device, 1 bridge
	Class      uint32 // class, subclass, programming interface
	Port       string // "PCIe Root Port", "PCIe Endpoint"; "" before 6.8
}

// DeviceName says what a driver calls its device: "nvme0".
type DeviceName struct {
	Name string
}

func (KernelVersion) event() {}
func (CommandLine) event()   {}
func (Hypervisor) event()    {}
func (Platform) event()      {}
func (NUMANode) event()      {}
func (RootBridge) event()    {}
func (OSC) event()           {}
func (DeviceFound) event()   {}
func (DeviceName) event()    {}

const bootMark = "Linux version "

// boot reads the lines that say what booted on what.
func (l *line) boot() Event {
	m := l.message
	for _, c := range [...]struct {
		prefix string
		event  func(string) Event
	}{
		{bootMark, func(rest string) Event { version, _ := word(rest); return KernelVersion{version} }},
		{"Command line: ", func(rest string) Event { return CommandLine{rest} }},
		{"Kernel command line: ", func(rest string) Event { return CommandLine{rest} }},
		{"Hypervisor detected: ", func(rest string) Event { return Hypervisor{rest} }},
		{"Booting paravirtualized kernel on ", func(rest string) Event { return Hypervisor{trimPrefix(rest, "bare hardware")} }},
		{"Detected virtualization ", func(rest string) Event { return Hypervisor{strings.TrimRight(rest, ".")} }},
		{"DMI: ", func(rest string) Event { return Platform{rest} }},
	} {
		if rest, ok := strings.CutPrefix(m, c.prefix); ok && rest != "" {
			return c.event(rest)
		}
	}
	if rest, ok := strings.CutPrefix(m, "systemd[1]: Detected virtualization "); ok {
		return Hypervisor{strings.TrimRight(rest, ".")}
	}
	return nil
}

// found reads "[8086:1533] type 00 class 0x020000[ PCIe Endpoint]".
func (l *line) found() Event {
	rest, ok := strings.CutPrefix(l.text, "[")
	if !ok {
		return nil
	}
	vendor, rest, ok := cutHex(rest)
	if !ok || vendor > 0xffff || !strings.HasPrefix(rest, ":") {
		return nil
	}
	id, rest, ok := cutHex(rest[1:])
	if !ok || id > 0xffff {
		return nil
	}
	rest, ok = strings.CutPrefix(rest, "] type ")
	if !ok {
		return nil
	}
	kind, rest, ok := cutHex(rest)
	class, found := hexAfter(rest, "class ")
	if !ok || !found {
		return nil
	}
	e := DeviceFound{Vendor: uint16(vendor), ID: uint16(id), HeaderType: int(kind & 0x7f), Class: uint32(class & 0xffffff)}
	rest, _ = after(rest, "class ")
	_, e.Port = word(rest)
	return e
}

// rootBridge reads "ACPI: PCI Root Bridge [PCI0] (domain 0000 [bus 00-ff])".
func (l *line) rootBridge() Event {
	rest, ok := strings.CutPrefix(l.message, "ACPI: PCI Root Bridge [")
	if !ok {
		return nil
	}
	name, rest, ok := strings.Cut(rest, "]")
	domain, found := after(rest, "(domain ")
	n := hexRun(domain)
	if !ok || !found || n < 4 || n > 8 {
		return nil
	}
	e := RootBridge{Name: name}
	if e.Buses, _, ok = cutBuses(domain[n:]); !ok {
		return nil
	}
	var bus [2]byte
	putHex(bus[:], uint64(e.Buses.Start))
	e.Bus = lower(domain[:n]) + ":" + string(bus[:])
	return e
}

// osc reads "acpi PNP0A08:00: _OSC: VERB [FEATURE FEATURE]".
func (l *line) osc() Event {
	rest, ok := strings.CutPrefix(l.message, "acpi ")
	if !ok {
		return nil
	}
	bridge, text, ok := strings.Cut(rest, ": _OSC")
	if !ok || len(bridge) > 32 || strings.Contains(bridge, " ") {
		return nil
	}
	e := OSC{Bridge: bridge}
	text = trimPrefix(trimPrefix(text, ":"), " ")
	switch {
	case strings.HasPrefix(text, string(OSCSupports)):
		e.Verb = OSCSupports
	case strings.HasPrefix(text, string(OSCRefused)):
		e.Verb = OSCRefused
	case strings.HasPrefix(text, string(OSCControls)):
		e.Verb = OSCControls
	case strings.HasPrefix(text, string(OSCNotRequested)):
		e.Verb = OSCNotRequested
	case strings.HasPrefix(text, "platform retains control of "): // since 6.x of some features
		e.Verb = OSCRefused
	case strings.Contains(text, "failed"):
		e.Verb = OSCFailed
		return e
	default:
		return nil
	}
	list, open := after(text, "[")
	list, _, closed := strings.Cut(list, "]")
	if (!open || !closed) && !l.partial {
		return nil
	}
	e.Features = strings.Fields(list)
	return e
}
