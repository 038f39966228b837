package kernlog

import "strings"

// IOMMUMode is the default kind of DMA domain. The line is printed with the
// IOMMU off or absent too: without an IOMMUUnit or an IOMMUGroup it says
// nothing about this machine.
type IOMMUMode struct {
	Translated  bool // else Passthrough
	CommandLine bool // "(set via kernel command line)"
}

// IOMMUUnit says that an IOMMU is there or working; Vendor is "Intel", "AMD"
// or "Arm". Enabled tells a unit that the kernel uses from one it found.
type IOMMUUnit struct {
	Vendor  string
	Enabled bool
}

// IOMMUFault is a DMA of Entry.Device that the IOMMU refused.
type IOMMUFault struct {
	Vendor  string
	Address uint64
	Write   bool
	Reason  string // Intel's reason or AMD's flags, as printed
}

// IOMMUGroup says that a device joined a group, or left it.
type IOMMUGroup struct {
	Group int
	Left  bool
}

func (IOMMUMode) event()  {}
func (IOMMUUnit) event()  {}
func (IOMMUFault) event() {}
func (IOMMUGroup) event() {}

// iommu reads the lines of the IOMMU drivers.
func (l *line) iommu() Event {
	message := l.message
	if rest, ok := strings.CutPrefix(message, "iommu: Default domain type: "); ok {
		e := IOMMUMode{CommandLine: strings.Contains(rest, "command line")}
		switch {
		case strings.HasPrefix(rest, "Translated"):
			e.Translated = true
		case !strings.HasPrefix(rest, "Passthrough"):
			return nil
		}
		return e
	}
	if rest, ok := strings.CutPrefix(message, "DMAR: "); ok {
		return l.dmar(rest)
	}
	if strings.HasPrefix(message, "arm-smmu") && strings.Contains(message, "ias ") {
		return IOMMUUnit{Vendor: "Arm"}
	}
	if l.device != "" {
		if group, ok := strings.CutPrefix(l.text, "Adding to iommu group "); ok {
			return groupOf(group, false)
		}
		if group, ok := strings.CutPrefix(l.text, "Removing from iommu group "); ok {
			return groupOf(group, true)
		}
	}
	text := message
	if l.device != "" {
		text = l.text
	}
	if rest, ok := strings.CutPrefix(text, "AMD-Vi: "); ok {
		return l.amdvi(rest)
	}
	return nil
}

func groupOf(text string, left bool) Event {
	group, _, ok := cutDecimal(text)
	if !ok {
		return nil
	}
	return IOMMUGroup{Group: int(group), Left: left}
}

// dmar reads Intel's lines. A fault is "[DMA Write] Request device [07:00.0]
// fault addr ffd00000 [fault reason 05] PTE Write access is not set", in newer
// kernels "[DMA Write NO_PASID] Request device [07:00.0] fault addr 0x... [fault
// reason 0x05] ...".
func (l *line) dmar(text string) Event {
	switch {
	case strings.HasPrefix(text, "IOMMU enabled"), strings.HasPrefix(text, "Intel(R) Virtualization Technology for Directed I/O"):
		return IOMMUUnit{Vendor: "Intel", Enabled: true}
	case strings.HasPrefix(text, "DRHD base: "), strings.HasPrefix(text, "Host address width "):
		return IOMMUUnit{Vendor: "Intel"}
	}
	if i := strings.Index(text, "[DMA "); i >= 0 && strings.Contains(text, "fault addr") {
		text = text[i+len("[DMA "):]
	} else {
		return nil
	}
	device := addressAfter(text, "Request device [")
	if device == "" {
		return nil
	}
	l.device, l.driver = device, ""
	e := IOMMUFault{Vendor: "Intel", Write: strings.HasPrefix(text, "Write")}
	e.Address, _ = hexAfter(text, "fault addr ")
	if reason, found := after(text, "[fault reason "); found {
		e.Reason = trimSpace(strings.Replace(reason, "]", "", 1))
	}
	return e
}

// amdvi reads AMD's lines. A fault is "Event logged [IO_PAGE_FAULT
// domain=0x0003 address=0x.. flags=0x..]" after the device, or with
// "device=07:00.0" inside.
func (l *line) amdvi(text string) Event {
	fault, found := after(text, "IO_PAGE_FAULT")
	if !found {
		switch {
		case strings.HasPrefix(text, "Found IOMMU"), strings.HasPrefix(text, "Using global IVHD EFR"):
			return IOMMUUnit{Vendor: "AMD"}
		case strings.HasPrefix(text, "Interrupt remapping enabled"), strings.HasPrefix(text, "Virtual APIC enabled"),
			strings.HasPrefix(text, "IOMMU performance counters supported"):
			return IOMMUUnit{Vendor: "AMD", Enabled: true}
		}
		return nil
	}
	if device := addressAfter(fault, "device="); device != "" {
		l.device, l.driver = device, ""
	}
	if l.device == "" {
		return nil
	}
	e := IOMMUFault{Vendor: "AMD"}
	e.Address, _ = hexAfter(fault, "address=")
	if flags, ok := hexAfter(fault, "flags="); ok {
		e.Write = flags>>5&1 == 1 // the RW bit (AMD I/O Virtualization Technology 2.5.3)
		_, e.Reason, _ = strings.Cut(fault, "flags=")
		e.Reason, _, _ = strings.Cut(e.Reason, "]")
	}
	return e
}
