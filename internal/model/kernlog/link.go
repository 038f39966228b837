package kernlog

import "strings"

// Retrain says that the kernel took a port's link for broken and retrained it
// at GTs GT/s (since 6.5), which leaves the target speed there; Failed that
// this did not help.
type Retrain struct {
	GTs    float64
	Failed bool
}

// LinkInactive says that the data link layer below a port did not become
// active in time.
type LinkInactive struct {
	Msec int
}

// NotReady says that a device has not answered Msec after After ("FLR", "bus
// reset", "resume", "DPC"); GaveUp that the kernel waits no longer.
type NotReady struct {
	Msec   int
	After  string
	GaveUp bool
}

// PowerState says that a device did not change its power state. Inaccessible
// says that its config space read all ones: the device is gone or in D3cold.
type PowerState struct {
	From, To     string // "D3hot", "D0", "unknown"; "" where not printed
	Inaccessible bool
}

// SlotPower says that a device finds its slot's power insufficient.
type SlotPower struct {
	Watts int // what the slot gives, 0 where not printed
}

// LinkRate is a speed and a width; zero for "Unknown".
type LinkRate struct {
	GTs   float64
	Width int
}

// Bandwidth is the kernel's report on the path to a device (Entry.Device).
type Bandwidth struct {
	Gbps float64 // after line encoding

	// Limit is the slowest hop and At the port above that link; At is "" and
	// Capable zero where nothing limits.
	Limit       LinkRate
	At          Address
	CapableGbps float64
	Capable     LinkRate
}

// ConfigLost says that a driver read all ones: the device does not answer.
type ConfigLost struct {
	What string // the register, as printed
}

// DriverFaultKind is what a driver says of a device that its bus failed.
type DriverFaultKind string

// The kinds of DriverFault: consequences, seldom causes.
const (
	AdapterRemoved DriverFaultKind = "adapter removed"
	ChannelFrozen  DriverFaultKind = "channel frozen"
	ControllerDown DriverFaultKind = "controller down"
	DeviceDisabled DriverFaultKind = "device disabled"
)

// DriverFault is a driver's own word about its device. Name is the driver's
// name of it ("nvme0") where the line lacks the address: DeviceName tells.
type DriverFault struct {
	Kind DriverFaultKind
	Name string
}

func (Retrain) event()      {}
func (LinkInactive) event() {}
func (NotReady) event()     {}
func (PowerState) event()   {}
func (SlotPower) event()    {}
func (Bandwidth) event()    {}
func (ConfigLost) event()   {}
func (DriverFault) event()  {}

// link reads the lines about links, resets and power of one device.
func (l *line) link() Event {
	text := trimPrefix(trimPrefix(l.text, "DPC: "), "pciehp: ")
	switch {
	case strings.HasPrefix(text, "broken device, retraining"):
		speed, found := after(text, "link at ")
		gts, _, _ := cutFloat(speed)
		if !found && !l.partial {
			return nil
		}
		return Retrain{GTs: gts}
	case strings.HasPrefix(text, "retraining failed"):
		return Retrain{Failed: true}
	case strings.HasPrefix(text, "Data Link Layer Link Active not set in "):
		msec, _ := intAfter(text, "not set in ")
		return LinkInactive{Msec: msec}
	case strings.HasPrefix(text, "Data Link Layer Link Active not") && l.partial, strings.HasPrefix(text, "Failed to check link status"):
		return LinkInactive{}
	case strings.HasPrefix(text, "not ready "):
		return l.notReady(text)
	case strings.HasPrefix(text, "Refused to change power state"),
		strings.HasPrefix(text, "can't change power state"),
		strings.HasPrefix(text, "Unable to change power state"):
		return l.powerState(text)
	case strings.Contains(text, "nsufficient power on the PCIe slot"):
		watts, _ := intAfter(text, "slot (")
		return SlotPower{Watts: watts}
	case strings.HasPrefix(text, "restoring config space at offset 0x0 (was 0xffffffff"):
		return ConfigLost{What: "config space"}
	case strings.HasSuffix(text, "Adapter removed"):
		return DriverFault{Kind: AdapterRemoved}
	case strings.Contains(text, "device's health compromised"):
		return DriverFault{Kind: ControllerDown}
	}
	if e := controllerFault(text, ""); e != nil {
		return e
	}
	return l.bandwidth(text)
}

// controllerFault reads what the NVMe driver says of a controller.
func controllerFault(text, name string) Event {
	switch {
	case strings.Contains(text, "CSTS=0xffffffff"):
		return ConfigLost{What: trimSpace(name + " CSTS")}
	case strings.HasPrefix(text, "controller is down;"), strings.HasPrefix(text, "Device not ready; aborting"):
		return DriverFault{ControllerDown, name}
	case strings.HasPrefix(text, "frozen state error detected"):
		return DriverFault{ChannelFrozen, name}
	case strings.HasPrefix(text, "Disabling device after reset failure"), strings.HasPrefix(text, "Removing after probe failure"):
		return DriverFault{DeviceDisabled, name}
	}
	return nil
}

// controllerLine reads a line about "nvme nvme0" instead of an address.
func (l *line) controllerLine() Event {
	rest, ok := strings.CutPrefix(l.message, "nvme nvme")
	n := digitRun(rest)
	if !ok || n == 0 {
		return nil
	}
	name := "nvme" + rest[:n]
	text, ok := strings.CutPrefix(rest[n:], ": ")
	if !ok {
		return nil
	}
	l.driver = "nvme"
	if address, found := strings.CutPrefix(text, "pci function "); found {
		if l.device, _ = cutAddress(address); l.device == "" {
			return nil
		}
		return DeviceName{name}
	}
	return controllerFault(text, name)
}

func (l *line) notReady(text string) Event {
	msec, rest, ok := cutDecimal(trimPrefix(text, "not ready "))
	reset, found := strings.CutPrefix(rest, "ms after ")
	if !ok || !found {
		return nil
	}
	reset, end, found := strings.Cut(reset, ";")
	if !found && !l.partial {
		return nil
	}
	return NotReady{Msec: int(msec), After: trimSpace(reset), GaveUp: strings.Contains(end, "giving")}
}

func (l *line) powerState(text string) Event {
	e := PowerState{Inaccessible: strings.Contains(text, "inaccessible")}
	if state, found := after(text, "currently in "); found {
		e.From, _ = word(state)
		return e
	}
	states, found := after(text, "power state from ")
	from, states := word(states)
	to, isTo := strings.CutPrefix(states, "to ")
	if !found || !isTo {
		if !l.partial {
			return nil
		}
		e.From = from
		return e
	}
	e.From = from
	e.To, _ = word(to)
	e.To = strings.TrimRight(e.To, ",")
	if !e.Inaccessible && !l.partial && strings.HasSuffix(trimSpace(text), ",") {
		return nil
	}
	return e
}

// bandwidth reads "31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s
// PCIe x4 link at BDF (capable of 63.008 Gb/s with 8.0 GT/s PCIe x8 link)" and
// "... available PCIe bandwidth (8.0 GT/s PCIe x4 link)".
func (l *line) bandwidth(text string) Event {
	gbps, rest, ok := cutFloat(text)
	if !ok {
		return nil
	}
	rest, ok = strings.CutPrefix(rest, " Gb/s available PCIe bandwidth")
	if !ok {
		return nil
	}
	e := Bandwidth{Gbps: gbps}
	if whole, found := strings.CutPrefix(rest, " ("); found {
		e.Limit, _ = cutLinkRate(whole)
		return e
	}
	limit, found := after(rest, "limited by ")
	if !found {
		if l.partial {
			return e
		}
		return nil
	}
	e.Limit, rest = cutLinkRate(limit)
	e.At = addressAfter(rest, " at ")
	capable, found := after(rest, "(capable of ")
	e.CapableGbps, capable, _ = cutFloat(capable)
	e.Capable, rest = cutLinkRate(trimPrefix(capable, " Gb/s with "))
	if (!found || e.At == "" || !strings.Contains(rest, "link")) && !l.partial {
		return nil
	}
	return e
}

// cutLinkRate reads "8.0 GT/s PCIe x4 link", in older kernels "8 GT/s x4
// link"; "Unknown" for either number is 0.
func cutLinkRate(text string) (LinkRate, string) {
	var rate LinkRate
	text = strings.TrimLeft(text, " ")
	if gts, rest, ok := cutFloat(text); ok {
		rate.GTs, text = gts, trimPrefix(rest, " GT/s")
	} else {
		text = trimPrefix(trimPrefix(text, "Unknown speed"), "Unknown")
	}
	text = strings.TrimLeft(trimPrefix(strings.TrimLeft(text, " "), "PCIe"), " ")
	if width, rest, ok := cutDecimal(trimPrefix(text, "x")); ok && strings.HasPrefix(text, "x") {
		if text = rest; width < 255 { // 255: PCIE_LNK_WIDTH_UNKNOWN
			rate.Width = int(width)
		}
	}
	return rate, text
}
