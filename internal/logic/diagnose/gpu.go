package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

var gpuRules = []Rule{
	{
		Code: "device-lost", Severity: Fault, Needs: []Fact{KernelLog},
		When:        "a GPU, NIC or NVMe drive is gone: Xid 79, \"fallen off the bus\", \"device inaccessible\", with or without an Xid",
		Unless:      "a BAR failure that the driver words as \"fallen off the bus\" (bar-unassigned)",
		Explanation: "The device no longer answers on PCIe. Jobs that use it hang or fail, and it seldom comes back without a power cycle.",
		Now:         "drain the node and power-cycle it (power off, wait, power on): a warm reboot often is not enough.",
		ForGood:     "look at the link event before it, if one is named. Else check temperature and power cables, swap slots: what moves with the card is the card.",
		Follows:     []Code{"hotplug-removed", "surprise-down", "dpc-contained", "aer-fatal", "aer-nonfatal", "power-insufficient", "aer-corrected-storm"},
		find:        func(v *view) []Finding { return v.lost() },
	},
	{
		Code: "gpu-fault", Severity: Warning, Needs: []Fact{KernelLog},
		When:        "an Xid of the GPU itself: application, memory, NVLink",
		Explanation: "The GPU or what runs on it is at fault, not PCIe.",
		Now:         "look at the program first (13, 31, 43, 45), and at the GPU's memory (48, 63, 64, 94, 95: nvidia-smi -q -d ECC).",
		ForGood:     "if it follows one GPU through several programs, run the maker's diagnostics and replace the card.",
		Follows:     []Code{"device-lost", "hotplug-removed"},
		find:        func(v *view) []Finding { return v.gpuFaults() },
	},
	{
		Code: "power-insufficient", Severity: Fault, Needs: []Fact{KernelLog},
		When:        "a device says that its slot gives it too little power",
		Explanation: "The card throttles or drops off under load.",
		Now:         "connect the card's own power cable, or move it to a slot with a higher power limit.",
		ForGood:     "set the slot's power limit in firmware, if it has one.",
		find: func(v *view) []Finding {
			var order []*machine.Device
			entries := map[pcie.BDF][]*kernlog.Entry{}
			each(v, func(_ int, e *kernlog.Entry, _ kernlog.SlotPower) {
				if d := v.device(e.Device); d != nil {
					key := functionZero(d.BDF)
					if entries[key] == nil {
						order = append(order, d)
					}
					entries[key] = append(entries[key], e)
				}
			})
			var out []Finding
			for _, d := range order {
				out = append(out, Finding{
					Component: d.BDF.String(), Evidence: lines(entries[functionZero(d.BDF)]...),
					Affects: append(v.affected(d), d.BDF.String()),
				})
			}
			return out
		},
	},
}

// Xids with a meaning of their own.
const (
	xidLost     = 79
	xidRecovery = 154 // "GPU recovery action changed": a consequence of another
)

// cardDrivers are drivers of GPUs, NICs and NVMe drives, for logs that do not
// tell the class of a device.
var cardDrivers = append([]string{
	"nvme",
	"mlx4_core", "mlx5_core", "ixgbe", "igb", "igc", "e1000e", "i40e", "ice", "iavf", "idpf", "irdma", "hfi1",
	"bnxt_en", "bnx2x", "tg3", "be2net", "qede", "qed", "cxgb4", "atlantic", "r8169", "ena", "sfc", "hns3", "ionic",
}, gpuDrivers...)

// gpuDrivers are the drivers of GPUs alone.
var gpuDrivers = []string{"NVRM", "nvidia", "nouveau", "amdgpu", "radeon", "xe"}

// gpusByLog are the cards (by their function zero) of which the log speaks as
// of GPUs.
func (v *view) gpusByLog() map[pcie.BDF]bool {
	out := map[pcie.BDF]bool{}
	for i := range v.log {
		e := &v.log[i]
		gpu := slices.Contains(gpuDrivers, e.Driver)
		switch event := e.Event.(type) {
		case kernlog.Xid:
			gpu = !event.Switch
		case kernlog.GPULost:
			gpu = true
		}
		if d := v.device(e.Device); gpu && d != nil {
			out[functionZero(d.BDF)] = true
		}
	}
	return out
}

// isCard reports whether a line is about a GPU, NIC or NVMe drive.
func isCard(d *machine.Device, e *kernlog.Entry) bool {
	return d.IsGPU() || d.IsNIC() || d.IsNVMe() || !d.Class.Known && slices.Contains(cardDrivers, e.Driver)
}

// lossOf returns the device that an entry says is gone, nil if it says no such
// thing.
func (v *view) lossOf(e *kernlog.Entry, names map[string]*machine.Device, unfit map[*machine.Device]bool) *machine.Device {
	d := v.device(e.Device)
	switch event := e.Event.(type) {
	case kernlog.GPULost:
		if d != nil && event.AtProbe && unfit[d] {
			return nil
		}
		return d
	case kernlog.Xid:
		if event.Number == xidLost && !event.Switch {
			return d
		}
	case kernlog.PowerState:
		if event.Inaccessible && d != nil && isCard(d, e) {
			return d
		}
	case kernlog.ConfigLost:
		if d != nil && isCard(d, e) {
			return d
		}
		return names[controller(event)]
	case kernlog.NotReady:
		if event.GaveUp && d != nil && isCard(d, e) {
			return d
		}
	case kernlog.DriverFault:
		if event.Kind != kernlog.AdapterRemoved && event.Kind != kernlog.DeviceDisabled {
			return nil
		}
		if d == nil {
			d = names[event.Name]
		}
		return d
	}
	return nil
}

// controller is the name of the drive whose register CSTS was lost.
func controller(lost kernlog.ConfigLost) string { return strings.TrimSuffix(lost.What, " CSTS") }

// nameOnlyDrive adds the name of an NVMe drive whose address no line tells, if
// there is but one name and one drive that it can be.
func (v *view) nameOnlyDrive(names map[string]*machine.Device) {
	unplaced := map[string]bool{}
	each(v, func(_ int, e *kernlog.Entry, lost kernlog.ConfigLost) {
		if e.Device == "" {
			unplaced[controller(lost)] = true
		}
	})
	drives := map[*machine.Device]bool{}
	logged := false
	for i := range v.log {
		if e := &v.log[i]; e.Driver == "nvme" && e.Device != "" {
			if d := v.device(e.Device); d != nil {
				drives[d], logged = true, true
			}
		}
	}
	for _, d := range v.m.Devices {
		if d.IsNVMe() {
			drives[d] = true
		}
	}
	if len(unplaced) != 1 || len(drives) != 1 || !logged {
		return
	}
	for name := range unplaced {
		for d := range drives {
			if names[name] == nil {
				names[name] = d
			}
		}
	}
}

// lost collects devices that are gone, one finding a card.
func (v *view) lost() []Finding {
	names := map[string]*machine.Device{}
	unfit := map[*machine.Device]bool{}
	each(v, func(_ int, e *kernlog.Entry, n kernlog.DeviceName) { names[n.Name] = v.device(e.Device) })
	v.nameOnlyDrive(names)
	each(v, func(_ int, e *kernlog.Entry, _ kernlog.GPUBarInvalid) {
		if d := v.device(e.Device); d != nil {
			unfit[d] = true
		}
	})
	var order []*machine.Device
	entries := map[pcie.BDF][]*kernlog.Entry{}
	var out []Finding
	unplaced := map[string]bool{}
	for i := range v.log {
		e := &v.log[i]
		d := v.lossOf(e, names, unfit)
		if gone, ok := e.Event.(kernlog.ConfigLost); ok && d == nil && e.Device == "" {
			// The log that tells its address is not in the input.
			if name := controller(gone); !unplaced[name] {
				unplaced[name] = true
				out = append(out, Finding{Component: name, Evidence: lines(e), Affects: []string{name}})
			}
		}
		if d == nil {
			continue
		}
		key := functionZero(d.BDF)
		if entries[key] == nil {
			order = append(order, d)
		}
		entries[key] = append(entries[key], e)
	}
	for i := range v.log {
		e := &v.log[i]
		x, ok := e.Event.(kernlog.Xid)
		if !ok || x.Number != xidRecovery {
			continue
		}
		if d := v.device(e.Device); d != nil && entries[functionZero(d.BDF)] != nil {
			entries[functionZero(d.BDF)] = append(entries[functionZero(d.BDF)], e)
		}
	}
	for _, d := range order {
		list := entries[functionZero(d.BDF)]
		f := Finding{Component: d.BDF.String(), Evidence: lines(list...), Affects: append(v.affected(d), d.BDF.String())}
		for _, e := range list {
			if o := v.device(e.Device); o != nil {
				f.Also = append(f.Also, o.BDF.String())
			}
		}
		if s := v.removalBehind(d, list); s != nil {
			f.Severity, f.Remedy = Notice, afterRemoval
			f.CausedBy = &Reference{"hotplug-removed", v.linkOf(s.port, true).component()}
		} else {
			f.CausedBy = v.causeOfLoss(d, list[0])
		}
		out = append(out, f)
	}
	for _, d := range v.m.Devices {
		if d.GPU != nil && d.GPU.Broken != "" && entries[functionZero(d.BDF)] == nil {
			out = append(out, Finding{
				Component: d.BDF.String(), Affects: []string{d.BDF.String()},
				Evidence: []string{fmt.Sprintf("nvidia-smi says of %s: %s", d.BDF, d.GPU.Broken)},
			})
		}
	}
	return out
}

// causeOfLoss names what took a device away: an event of a link above it, or a
// storm before.
func (v *view) causeOfLoss(d *machine.Device, e *kernlog.Entry) *Reference {
	if r := v.linkEvent(d, e); r != nil {
		return r
	}
	for _, g := range v.correctedGroups() {
		if v.leads(g.link, d) && len(g.corrected) > 0 && g.corrected[0].entry.Line < e.Line && v.judgeCorrected(g).storm {
			return &Reference{"aer-corrected-storm", g.link.component()}
		}
	}
	return nil
}

// linkEvent names what happened to a link above d around e: containment, loss,
// or an uncorrected error.
func (v *view) linkEvent(d *machine.Device, e *kernlog.Entry) *Reference {
	for _, c := range v.contained {
		if near(c.entry, e, outOfOrder, consequence) && v.mayBeAbove(c.port, d) && v.removedBefore(c.port, c.entry) == nil {
			return &Reference{"dpc-contained", v.linkOf(c.port, true).component()}
		}
	}
	for _, s := range v.slots {
		if s.change == wentDown && near(s.entry, e, outOfOrder, consequence) && v.mayBeAbove(s.port, d) {
			return &Reference{"surprise-down", v.linkOf(s.port, true).component()}
		}
	}
	for _, g := range v.records {
		if !v.leads(g.link, d) && (g.link.up == nil || !v.mayBeAbove(g.link.up, d)) {
			continue
		}
		for _, r := range g.uncorrected {
			if r.entry == e || !near(r.entry, e, outOfOrder, consequence) {
				continue
			}
			switch {
			case r.kind == recordSurprise:
				return &Reference{"surprise-down", g.link.component()}
			case r.kind == recordError && r.event.Severity == kernlog.Fatal:
				return &Reference{"aer-fatal", v.firstDevice(g, kernlog.Fatal)}
			}
		}
	}
	return nil
}

// leads reports whether the link leads to d.
func (v *view) leads(l *link, d *machine.Device) bool {
	for _, f := range l.functions {
		if f.BDF.SameDevice(d.BDF) || v.isAbove(f, d) {
			return true
		}
	}
	return l.up != nil && v.isAbove(l.up, d)
}

// firstDevice is the component of the finding of a group's records.
func (v *view) firstDevice(g *errorGroup, severity kernlog.Severity) string {
	for _, r := range g.uncorrected {
		if r.event.Severity == severity && (r.kind == recordError || r.kind == recordRemoved) {
			return r.device.BDF.String()
		}
	}
	return ""
}

// gpuFaults collects the other Xids, one finding a GPU.
func (v *view) gpuFaults() []Finding {
	var order []*machine.Device
	entries := map[*machine.Device][]*kernlog.Entry{}
	numbers := map[*machine.Device][]int{}
	lostAt := map[*machine.Device]int{}
	nameless := &machine.Device{}
	each(v, func(_ int, e *kernlog.Entry, x kernlog.Xid) {
		d := v.device(e.Device)
		if d == nil {
			d = nameless
		}
		switch {
		case x.Number == xidLost && !x.Switch:
			if _, seen := lostAt[d]; !seen {
				lostAt[d] = e.Line
			}
			return
		case x.Number == xidRecovery && (len(entries[d]) > 0 || d == nameless || lostAt[d] > 0):
			return
		}
		if entries[d] == nil {
			order = append(order, d)
		}
		entries[d] = append(entries[d], e)
		if !slices.Contains(numbers[d], x.Number) {
			numbers[d] = append(numbers[d], x.Number)
		}
	})
	var out []Finding
	for _, d := range order {
		slices.Sort(numbers[d])
		f := Finding{
			Component: d.BDF.String(), Evidence: lines(entries[d]...), Affects: append(v.affected(d), d.BDF.String()),
			Explanation: fmt.Sprintf("%d Xid lines: %s.", len(entries[d]), xidNames(numbers[d])),
		}
		if d == nameless {
			f.Component, f.Affects = Host, nil
		}
		if s := v.removalBehind(d, entries[d]); s != nil {
			f.Severity, f.Remedy = Notice, afterRemoval
			f.CausedBy = &Reference{"hotplug-removed", v.linkOf(s.port, true).component()}
		} else if line, gone := lostAt[d]; gone && entries[d][0].Line >= line-xidsBefore {
			f.CausedBy = &Reference{"device-lost", f.Component}
		}
		out = append(out, f)
	}
	return out
}

// xidsBefore is how many lines before Xid 79 others of the same GPU belong to
// its loss: the driver's time-outs are often printed first.
const xidsBefore = 50

// xidNames names the common Xids, in NVIDIA's words.
func xidNames(numbers []int) string {
	var out []string
	for _, n := range numbers {
		text := fmt.Sprintf("%d", n)
		if meaning := xidMeanings[n]; meaning != "" {
			text += " (" + meaning + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

var xidMeanings = map[int]string{
	13: "graphics engine exception, mostly the program", 31: "page fault, mostly the program",
	32: "corrupted push buffer: the program, or the link", 38: "firmware of the GPU stopped", 43: "channel reset, mostly the program",
	45: "channels torn down after another error", 48: "double-bit memory error", 61: "internal microcontroller", 62: "internal microcontroller",
	63: "memory page or row to be retired", 64: "retiring a memory page or row failed", 74: "NVLink", 92: "many single-bit memory errors",
	94: "contained memory error", 95: "uncontained memory error", 109: "context switch timeout", 119: "GSP firmware timeout", 120: "GSP firmware error",
	154: "recovery action changed",
}
