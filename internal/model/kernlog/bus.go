package kernlog

import "strings"

// Buses is a range of bus numbers; both ends count. End below Start is what
// the kernel prints for a range that collapsed.
type Buses struct {
	Start, End int
}

// BusChange is what happened to bus numbers.
type BusChange string

// The changes. BusesReconfigured and BusesShrunk are normal at boot and after
// hot-plug; from BusesRefused on, each costs devices.
const (
	BusesAssigned       BusChange = "bridge to"         // "PCI bridge to [bus 01-3f]"
	BusesReconfigured   BusChange = "reconfiguring"     // "bridge configuration invalid"
	BusesShrunk         BusChange = "end is updated"    // the bus was given what it needs
	BusesReleased       BusChange = "released"          // its devices were removed
	RootBuses           BusChange = "root bus resource" // of a host bridge
	BusesRefused        BusChange = "can not insert"
	BusesUnusable       BusChange = "devices behind bridge are unusable"
	BusNumbersOut       BusChange = "no bus number available"
	SubordinateTooSmall BusChange = "bridge has subordinate but max busn"
)

// BusNumbers is one change of the numbers of a bridge (Entry.Device) or of a
// bus (Bus).
type BusNumbers struct {
	Change BusChange
	Bus    string // "dddd:bb" of lines about a bus, else ""
	Buses  Buses

	// Of BusesRefused: Buses does not fit Under because of Conflict.
	Under, Conflict Buses
	// Of BusesShrunk the new end; of SubordinateTooSmall the highest number
	// in use, where Buses.End is the bridge's subordinate number.
	Max int
}

func (BusNumbers) event() {}

// cutBuses reads "[bus 01-3f]" or "[bus 01]".
func cutBuses(text string) (Buses, string, bool) {
	rest, ok := strings.CutPrefix(strings.TrimLeft(text, " ("), "[bus ")
	if !ok {
		return Buses{}, text, false
	}
	start, rest, ok := cutHex(rest)
	if !ok || start > 0xffff {
		return Buses{}, text, false
	}
	b := Buses{int(start), int(start)}
	if strings.HasPrefix(rest, "-") {
		end, after, ok := cutHex(rest[1:])
		if !ok || end > 0xffff {
			return Buses{}, text, false
		}
		b.End, rest = int(end), after
	}
	rest, ok = strings.CutPrefix(rest, "]")
	return b, rest, ok
}

// busLine reads "pci_bus dddd:bb: ..." and "PCI host bridge to bus dddd:bb".
func (l *line) busLine() Event {
	if rest, ok := strings.CutPrefix(l.message, "PCI host bridge to bus "); ok {
		if bus, _ := cutBus(rest); bus != "" {
			return RootBridge{Bus: bus}
		}
		return nil
	}
	rest, ok := strings.CutPrefix(l.message, "pci_bus ")
	if !ok {
		return nil
	}
	bus, rest := cutBus(rest)
	text, ok := strings.CutPrefix(rest, ": ")
	if bus == "" || !ok {
		return nil
	}
	if node, ok := intAfter(text, "on NUMA node "); ok && strings.HasPrefix(text, "on NUMA node ") {
		return NUMANode{Bus: bus, Node: node}
	}
	if strings.HasPrefix(text, "Some PCI device resources are unassigned") {
		return ResourceAdvice{}
	}
	e := BusNumbers{Bus: bus}
	if root, ok := strings.CutPrefix(text, "root bus resource "); ok {
		if e.Buses, _, ok = cutBuses(root); !ok {
			return nil // addresses
		}
		e.Change = RootBuses
		return e
	}
	if text, ok = strings.CutPrefix(text, "busn_res: "); !ok {
		return nil
	}
	if refused, ok := strings.CutPrefix(text, "can not insert "); ok {
		e.Change = BusesRefused
		e.Buses, rest, ok = cutBuses(refused)
		if !ok {
			return nil
		}
		under, found := after(rest, "under ")
		if e.Under, rest, ok = cutBuses(under); (!ok || !found) && !l.partial {
			return nil
		}
		if i := strings.Index(rest, "[bus "); i >= 0 {
			e.Conflict, _, _ = cutBuses(rest[i:])
		} else if !l.partial {
			return nil
		}
		return e
	}
	e.Buses, rest, ok = cutBuses(text)
	if !ok {
		return nil
	}
	switch {
	case strings.HasPrefix(rest, " end is updated to "):
		end, ok := hexAfter(rest, "updated to ")
		if !ok {
			return nil
		}
		e.Change, e.Max = BusesShrunk, int(end&0xffff)
	case strings.HasPrefix(rest, " is released"):
		e.Change = BusesReleased
	default:
		return nil
	}
	return e
}

// buses reads the lines about the numbers of one bridge.
func (l *line) buses() Event {
	var e BusNumbers
	var ok bool
	switch text := l.text; {
	case strings.HasPrefix(text, "PCI bridge to "):
		e.Change = BusesAssigned
		e.Buses, _, ok = cutBuses(text[len("PCI bridge to "):])
	case strings.HasPrefix(text, "bridge configuration invalid "):
		e.Change = BusesReconfigured
		e.Buses, _, ok = cutBuses(text[len("bridge configuration invalid "):])
	case strings.HasPrefix(text, "devices behind bridge are unusable because"):
		e.Change = BusesUnusable
		e.Buses, _, ok = cutBuses(text[len("devices behind bridge are unusable because"):])
	case strings.HasPrefix(text, "No bus number available for hot-added bridge"):
		e.Change, ok = BusNumbersOut, true
	case strings.HasPrefix(text, "bridge has subordinate "):
		e.Change = SubordinateTooSmall
		end, _ := hexAfter(text, "subordinate ")
		var highest uint64
		highest, ok = hexAfter(text, "max busn ")
		e.Buses, e.Max = Buses{0, int(end & 0xffff)}, int(highest&0xffff)
	}
	if ok || l.partial && e.Change != "" {
		return e
	}
	return nil
}
