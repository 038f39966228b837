package diagnose

import (
	"fmt"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

var resourceRules = []Rule{
	{
		Code: "bus-numbers-exhausted", Severity: Fault, Needs: []Fact{KernelLog},
		When:        "devices are missing because a bridge has too few bus numbers",
		Unless:      "the lines \"reconfiguring\" and \"end is updated\", which are normal at boot",
		Explanation: "A switch needs a bus number for each of its ports. Firmware reserved too few above it, so what is behind cannot be addressed and does not appear.",
		Now:         "boot with the card already in its place, so that it is counted.",
		ForGood:     "boot with pci=assign-busses or pci=hpbussize=N, or raise the bus padding of hot-plug ports in firmware.",
		find:        func(v *view) []Finding { return v.busesExhausted() },
	},
	{
		Code: "bus-range-conflict", Severity: Fault, Needs: []Fact{KernelLog},
		When:        "two bridges hold overlapping bus ranges",
		Unless:      "provisional ranges that a later line shrinks; inverted ranges of one bridge",
		Explanation: "Requests for one bus go to two places: devices disappear, or answer for one another.",
		Now:         "reboot; do not use what is behind either bridge.",
		ForGood:     "one of them lost its bus registers (a reset of the switch, hot-plug): update its firmware and the kernel, or boot with pci=assign-busses.",
		find: func(v *view) []Finding {
			return append(v.busConflictLines(), v.busConflictRegisters()...)
		},
	},
	{
		Code: "bar-unassigned", Severity: Fault, Needs: []Fact{BARs},
		When:        "a memory BAR of a present device has no address, or its bridge has no window for it",
		Unless:      "I/O windows and I/O BARs; windows of ports with nothing below; BARs of virtual functions; a first pass that a later line repairs",
		Explanation: "Without an address the driver cannot reach the device. The card is innocent: the window above it has no room.",
		Now:         "boot with pci=realloc; for GPUs with large BARs switch on \"Above 4G Decoding\" in firmware.",
		ForGood:     "keep these settings, update the firmware, or move the card to a port with a larger window.",
		find:        func(v *view) []Finding { return v.unassignedBARs() },
	},
}

// exhausted is one shortage of bus numbers.
type exhausted struct {
	bridge  *machine.Device
	also    []string
	entries []*kernlog.Entry
	from    uint8 // the buses it speaks for
	to      int
}

// busesExhausted joins the lines of one shortage: the bridge whose range is
// too small is guilty, those behind it are not.
func (v *view) busesExhausted() []Finding {
	var done []*exhausted
	var open []*exhausted // bridges that no line explains yet
	each(v, func(_ int, e *kernlog.Entry, b kernlog.BusNumbers) {
		d := v.device(e.Device)
		if d == nil {
			return
		}
		switch b.Change {
		case kernlog.BusesUnusable:
			open = append(open, &exhausted{bridge: d, entries: []*kernlog.Entry{e}, from: d.BDF.Bus, to: int(d.BDF.Bus)})
		case kernlog.BusNumbersOut:
			done = append(done, &exhausted{bridge: d, entries: []*kernlog.Entry{e}, from: d.BDF.Bus, to: int(d.BDF.Bus)})
		case kernlog.SubordinateTooSmall:
			guilty := &exhausted{bridge: d, from: d.BDF.Bus, to: b.Max}
			claim := func(list []*exhausted) (rest []*exhausted) {
				for _, x := range list {
					bus := x.bridge.BDF.Bus
					if x.bridge.BDF.Domain == d.BDF.Domain && bus >= guilty.from && int(bus) <= b.Max {
						guilty.also = append(append(guilty.also, x.bridge.BDF.String()), x.also...)
						guilty.entries = append(guilty.entries, x.entries...)
						continue
					}
					rest = append(rest, x)
				}
				return rest
			}
			done, open = claim(done), claim(open)
			guilty.entries = append(guilty.entries, e)
			done = append(done, guilty)
		}
	})
	// What is left is named by the first bridge of its domain.
	byDomain := map[uint32]*exhausted{}
	for _, x := range open {
		first := byDomain[x.bridge.BDF.Domain]
		if first == nil {
			byDomain[x.bridge.BDF.Domain] = x
			done = append(done, x)
			continue
		}
		first.also = append(first.also, x.bridge.BDF.String())
		first.entries = append(first.entries, x.entries...)
	}
	merged := map[*machine.Device]*exhausted{} // logs repeat, boots too
	var out []Finding
	for _, x := range done {
		if first := merged[x.bridge]; first != nil {
			continue
		}
		merged[x.bridge] = x
		out = append(out, Finding{
			Component: v.bridgeComponent(x.bridge), Also: x.also, Evidence: lines(x.entries...), Affects: v.affected(x.bridge),
		})
	}
	return out
}

func (v *view) bridgeComponent(d *machine.Device) string {
	if l := v.below[d.BDF]; l != nil {
		return l.component()
	}
	return d.BDF.String()
}

// busConflictLines reads "can not insert [bus A] under [bus B] (conflicts with
// [bus C])". Where C is B itself the range above is too small, and an inverted
// range is a bridge that has none: neither is a conflict of two bridges.
func (v *view) busConflictLines() []Finding {
	var out []Finding
	said := map[string]bool{}
	each(v, func(i int, e *kernlog.Entry, b kernlog.BusNumbers) {
		proper := func(r kernlog.Buses) bool { return r.Start <= r.End }
		if b.Change != kernlog.BusesRefused || b.Conflict == b.Under || !proper(b.Buses) || !proper(b.Conflict) || !proper(b.Under) {
			return
		}
		bridge, evidence := v.bridgeOf(i, b.Bus, b.Buses)
		f := Finding{Component: b.Bus, Evidence: append(lines(e), evidence...)}
		if bridge != nil {
			f.Component, f.Affects = v.bridgeComponent(bridge), v.affected(bridge)
		}
		if domain, _, ok := cutBus(b.Bus); ok {
			other, more := v.bridgeOf(i, fmt.Sprintf("%s:%02x", domain, b.Conflict.Start), b.Conflict)
			if other != nil && other != bridge {
				f.Also = append(f.Also, other.BDF.String())
				f.Evidence = append(f.Evidence, more...)
			}
		}
		if !said[f.Component] {
			said[f.Component] = true
			out = append(out, f)
		}
	})
	return out
}

func cutBus(bus string) (domain, number string, ok bool) {
	if len(bus) < 3 {
		return "", "", false
	}
	return bus[:len(bus)-3], bus[len(bus)-2:], true
}

// bridgeOf finds the bridge that was given the range of a bus, by the line
// nearest to line i of the log.
func (v *view) bridgeOf(i int, bus string, buses kernlog.Buses) (*machine.Device, []string) {
	domain, _, ok := cutBus(bus)
	fits := func(e *kernlog.Entry) bool {
		b, isBus := e.Event.(kernlog.BusNumbers)
		return ok && isBus && b.Change == kernlog.BusesAssigned && b.Buses == buses && e.Device.Domain() == domain
	}
	for step := 1; step < len(v.log); step++ {
		for _, at := range [2]int{i + step, i - step} {
			if at >= 0 && at < len(v.log) && fits(&v.log[at]) {
				return v.device(v.log[at].Device), lines(&v.log[at])
			}
		}
	}
	return nil, nil
}

// busConflictRegisters compares bridges of one bus, one finding a bridge.
func (v *view) busConflictRegisters() []Finding {
	var out []Finding
	for _, d := range v.m.Devices {
		a := busRange(d)
		if a == nil {
			continue
		}
		f := Finding{Component: d.BDF.String(), Affects: v.affected(d)}
		for _, o := range v.m.Devices {
			b := busRange(o)
			if b == nil || o.BDF.Compare(d.BDF) <= 0 || o.BDF.Domain != d.BDF.Domain || o.BDF.Bus != d.BDF.Bus ||
				a.Secondary > b.Subordinate || b.Secondary > a.Subordinate {
				continue
			}
			if len(f.Evidence) == 0 {
				f.Evidence = []string{fmt.Sprintf("%s leads to [bus %02x-%02x]", d.BDF, a.Secondary, a.Subordinate)}
			}
			f.Evidence = append(f.Evidence, fmt.Sprintf("%s leads to [bus %02x-%02x]", o.BDF, b.Secondary, b.Subordinate))
			f.Also = append(f.Also, o.BDF.String())
			f.Affects = append(f.Affects, v.affected(o)...)
		}
		if len(f.Evidence) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// busRange is what the registers of a bridge say; nil where they were not
// read: ranges in a log are provisional until their end is updated.
func busRange(d *machine.Device) *pcie.Bridge {
	b := d.Registers.Bridge
	if b == nil || d.Registers.Control == nil && d.Registers.Readable == 0 || d.Unreachable() ||
		b.Secondary == 0 || b.Subordinate < b.Secondary {
		return nil
	}
	return b
}

// barKey is one BAR of one device.
type barKey struct {
	device *machine.Device
	index  int
}

// unassignedBARs takes the last word on each memory BAR: of lspci or sysfs
// where they show it, else of the kernel.
func (v *view) unassignedBARs() []Finding {
	var order []barKey
	last := map[barKey]*kernlog.Entry{}
	each(v, func(_ int, e *kernlog.Entry, r kernlog.Resource) {
		d := v.device(e.Device)
		if d == nil || r.Kind != kernlog.BAR || r.IO || r.Index < 0 || r.Index > 5 {
			return
		}
		switch r.State {
		case kernlog.NoSpace, kernlog.AssignFailed, kernlog.Assigned:
		case kernlog.ClaimFailed, kernlog.AddressConflict:
			// The kernel tries again; by itself this fails nothing.
			return
		case kernlog.ResourceFound:
			// Enumerated anew: what was said before is of another card.
			delete(last, barKey{d, r.Index})
			return
		default:
			return
		}
		k := barKey{d, r.Index}
		order = append(order, k)
		last[k] = e
	})
	cards := map[pcie.BDF]int{}
	var out []Finding
	add := func(d *machine.Device, evidence []string) {
		key := functionZero(d.BDF)
		i, seen := cards[key]
		if !seen {
			i = len(out)
			cards[key] = i
			out = append(out, Finding{Component: d.BDF.String(), Affects: append(v.affected(d), d.BDF.String())})
		}
		out[i].Also = append(out[i].Also, d.BDF.String())
		out[i].Evidence = append(out[i].Evidence, evidence...)
	}
	done := map[barKey]bool{}
	for _, k := range order {
		e := last[k]
		if e == nil || done[k] {
			continue
		}
		done[k] = true
		if e.Event.(kernlog.Resource).State == kernlog.Assigned || hasAddress(k.device, k.index) {
			continue
		}
		add(k.device, lines(e))
	}
	for _, d := range v.m.Devices {
		for _, r := range d.Resources {
			if r.Kind == machine.BAR && !r.IO && r.State == machine.Unassigned && !done[barKey{d, r.Index}] && !d.Unreachable() {
				which := fmt.Sprintf("memory BAR %d", r.Index)
				if r.Index < 0 { // lspci -v does not number them
					which = "a memory BAR"
				}
				add(d, []string{fmt.Sprintf("%s: %s has no address", d.BDF, which)})
			}
		}
	}
	each(v, func(_ int, e *kernlog.Entry, _ kernlog.GPUBarInvalid) {
		if d := v.device(e.Device); d != nil {
			add(d, lines(e))
		}
	})
	return out
}

// hasAddress reports whether lspci or sysfs shows the BAR with an address.
func hasAddress(d *machine.Device, index int) bool {
	for _, r := range d.Resources {
		if r.Kind == machine.BAR && r.Index == index && r.State == machine.Assigned && r.Address != 0 {
			return true
		}
	}
	return false
}
