package diagnose

import (
	"fmt"
	"strings"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

var linkRules = []Rule{
	{
		Code: "link-degraded", Severity: Fault, Needs: []Fact{Links},
		When:        "a link runs slower or narrower than both of its ends can, with no power saving to explain it",
		Unless:      "an idle GPU at full width (link-idle-speed); a slot or a card that cannot do more (link-narrow-slot); virtual hardware; Thunderbolt ports, which always say 2.5GT/s; ports inside one switch chip; a soldered device that is only narrower than it could be",
		Explanation: "Both ends can do more than they agreed on: the signal is bad, or lanes are dead. Everything below pays with bandwidth, and such links tend to fail altogether.",
		Now:         "power the machine off, reseat the card and its riser or cable, clean the contacts, and look at LnkSta again.",
		ForGood:     "if it stays, try the card in another slot: what moves with the card is the card, what stays is the slot, riser or retimer. Replace that part.",
		find:        func(v *view) []Finding { return v.linkFindings(degraded) },
	},
	{
		Code: "link-idle-speed", Severity: Notice, Needs: []Fact{Links},
		When:        "a GPU's link is at a low speed and full width: power saving",
		Unless:      "virtual hardware; ports inside one switch chip",
		Explanation: "GPUs lower the speed of their link while they idle and raise it under load, so this says nothing about the signal.",
		Now:         "nothing. To be sure, look at the link again while the GPU is busy (ringlane topo --measure).",
		find:        func(v *view) []Finding { return v.linkFindings(idle) },
	},
	{
		Code: "link-narrow-slot", Severity: Notice, Needs: []Fact{Links},
		When:        "the card could do more than the slot, port or wiring that it sits in, or the kernel says that a hop limits it",
		Unless:      "virtual hardware; ports inside one switch chip; Thunderbolt ports, which always say 2.5GT/s",
		Explanation: "The link does all that the slower end, or the wiring between them, can.",
		Now:         "nothing.",
		ForGood:     "if its bandwidth matters and the part is not soldered, move it to a slot of its own speed and width, or change the bifurcation of the slot in firmware.",
		find: func(v *view) []Finding {
			return append(v.linkFindings(narrow), v.limitedLines()...)
		},
	},
	{
		Code: "link-target-capped", Severity: Fault, Needs: []Fact{Links},
		When:        "the Target Link Speed of the port is below what both ends can, and the link is held down there; or the kernel retrained it at a lower speed and left it so",
		Explanation: "The link is held down by software (LnkCtl2), not by the signal. Kernels since 6.5 do this to a link that did not come up at once.",
		Now:         "set the target back to the generation that both ends can, and retrain (setpci on the port above); or reboot.",
		ForGood:     "find who lowered it: a kernel with the retraining workaround, a firmware setting (Link Speed), or a script.",
		find: func(v *view) []Finding {
			return append(v.linkFindings(capped), v.retrained()...)
		},
	},
}

// verdict is what the registers of a link say of it.
type verdict struct {
	kind     linkKind
	narrow   bool // the upper end can do less than the lower one
	capped   bool // the target speed of the port holds the link down
	current  pcie.Link
	possible pcie.Link
	evidence []string
}

type linkKind int

const (
	healthy linkKind = iota
	degraded
	idle
	narrow
	capped
	unjudged // a GPU's link is below what this end can, and the other end is not known
)

// judge looks at a link's registers.
func (v *view) judge(l *link) verdict {
	if l.down == nil || l.isInside() || l.isManagement() || v.isVirtual(l) || isTunnel(l.up) || isTunnel(l.down) || l.down.Unreachable() || l.up != nil && l.up.Unreachable() {
		return verdict{}
	}
	current, ok := l.current()
	if !ok || !current.Known() {
		return verdict{}
	}
	lower, lowerKnown := maximum(l.down)
	var upper pcie.Link
	upperKnown := false
	if l.up != nil {
		upper, upperKnown = maximum(l.up)
	}
	r := verdict{current: current, evidence: l.registers()}
	gpu := v.gpuAt(l)
	switch {
	case lowerKnown && upperKnown:
		r.possible = lower.Min(upper)
		r.capped = isCapped(l, r)
		r.kind = compare(l, r, gpu)
		r.narrow = upper.Slower(lower) || upper.Narrower(lower) || r.kind == narrow
	case gpu != nil:
		// The other end is not known: full width at a low speed is what an
		// idle GPU looks like. nvidia-smi knows what both ends can.
		r.possible = lower
		if g := gpu.GPU; g != nil && g.Link != nil && g.Link.Max.Known() {
			r.possible = lower.Min(g.Link.Max)
			r.narrow = g.Link.HostMax.Known() && g.Link.HostMax < g.Link.DeviceMax
		}
		switch {
		case current.Narrower(r.possible):
			r.kind = unjudged
		case current.Slower(r.possible):
			r.kind = idle
			if busy(gpu) {
				r.kind = unjudged
			}
		}
	}
	return r
}

// isTunnel reports whether the port belongs to Thunderbolt or USB4: it says
// 2.5GT/s whatever it carries.
func isTunnel(d *machine.Device) bool {
	return d != nil && (strings.Contains(d.Model.Name, "Thunderbolt") || strings.Contains(d.Model.Name, "USB4"))
}

// compare judges a link of which both ends are known.
func compare(l *link, r verdict, gpu *machine.Device) linkKind {
	slower, narrower := r.current.Slower(r.possible), r.current.Narrower(r.possible)
	if r.capped { // which explains the speed, but no missing lane
		slower = false
	}
	switch {
	case r.capped && !narrower:
		return capped
	case slower && !narrower && gpu != nil && !busy(gpu):
		return idle
	case narrower && !slower && l.isSoldered():
		return narrow
	case slower || narrower:
		return degraded
	}
	return healthy
}

// isCapped reports whether the link is slow because it may not be faster.
func isCapped(l *link, r verdict) bool {
	target := l.target()
	return r.current.Slower(r.possible) && target.Known() && r.current.Speed <= target && target < r.possible.Speed
}

// current is the negotiated link, by the lower end where it tells.
func (l *link) current() (pcie.Link, bool) {
	if c, ok := l.down.Current(); ok && c.Known() {
		return c, true
	}
	if l.up != nil {
		// A port's own nvidia-smi does not exist: this is registers or sysfs.
		return l.up.Current()
	}
	return pcie.Link{}, false
}

// maximum is what an end can do. LnkCap2 knows the speed better where the two
// registers disagree on old ports.
func maximum(d *machine.Device) (pcie.Link, bool) {
	m, ok := d.Max()
	return m, ok && m.Known()
}

// target is the Target Link Speed that holds the link down: the one of the
// port above, for below it only selects a compliance speed.
func (l *link) target() pcie.Speed {
	if l.up != nil {
		if x := l.up.Registers.Express; x != nil && x.LnkCtl2 != nil {
			return x.LnkCtl2.Target
		}
	}
	return 0
}

// isSoldered reports whether the port is known to have no slot.
func (l *link) isSoldered() bool {
	x := l.up.Registers.Express
	return x != nil && x.Port.Downward() && !x.SlotImplemented
}

// isManagement reports whether the lower end is a switch's own endpoint, by
// which it is managed: the link runs inside the chip.
func (l *link) isManagement() bool {
	if l.up == nil || l.down == nil || l.down.IsBridge() || matters(l.down) {
		return false
	}
	x := l.up.Registers.Express
	return x != nil && x.Port == pcie.DownstreamPort && !x.SlotImplemented &&
		l.up.Vendor.Known && l.down.Vendor.Known && l.up.Vendor.Code == l.down.Vendor.Code
}

// gpuAt returns the GPU whose link to the machine l is, nil if none: GPUs of
// AMD sit below a switch on the card.
func (v *view) gpuAt(l *link) *machine.Device {
	for _, d := range l.functions {
		if d.IsGPU() {
			return d
		}
	}
	if l.down == nil || !l.down.Of(machine.VendorAMD) || !l.down.IsBridge() {
		return nil
	}
	for _, port := range v.children[l.down.BDF] {
		for _, d := range v.children[port.BDF] {
			if d.IsGPU() {
				return d
			}
		}
	}
	return nil
}

// busy reports whether nvidia-smi saw the GPU work at a low link speed: at
// full clocks it has no reason to.
func busy(gpu *machine.Device) bool {
	g := gpu.GPU
	return g != nil && g.PState == "P0" && g.Link != nil && g.Link.Current.Slower(g.Link.Max)
}

// registers are the evidence of a link's state.
func (l *link) registers() []string {
	var out []string
	for _, d := range []*machine.Device{l.up, l.down} {
		if d == nil {
			continue
		}
		text := d.BDF.String()
		if c, ok := d.Current(); ok {
			text += fmt.Sprintf(" runs at %s", c)
		}
		if m, ok := d.Max(); ok {
			text += fmt.Sprintf(", can do %s", m)
		}
		if x := d.Registers.Express; x != nil {
			if x.LnkCtl2 != nil && x.LnkCtl2.Target.Known() {
				text += fmt.Sprintf(", target %s", x.LnkCtl2.Target)
			}
			if x.Port.Downward() && !x.SlotImplemented {
				text += ", no slot"
			}
		}
		if g := d.GPU; g != nil && g.PState != "" {
			text += ", power state " + g.PState
		}
		if text != d.BDF.String() {
			out = append(out, text)
		}
	}
	return out
}

// linkFindings are the links with one verdict.
func (v *view) linkFindings(kind linkKind) []Finding {
	var out []Finding
	for _, l := range v.links {
		r := v.judge(l)
		if r.kind != kind && !(kind == narrow && r.narrow) && !(kind == capped && r.capped) {
			continue
		}
		f := Finding{
			Component: l.component(), Also: l.others(), Evidence: r.evidence, Affects: v.affectedBy(l),
		}
		switch kind {
		case degraded, capped:
			f.Explanation = fmt.Sprintf("It runs at %s of %s: %.1f instead of %.1f GB/s each way.",
				r.current, r.possible, r.current.GBs(), r.possible.GBs())
			if kind == capped {
				f.now = raiseTarget(l.up, r.possible.Speed)
			}
		case idle:
			f.Explanation = fmt.Sprintf("It runs at %s and can do %s.", r.current, r.possible)
		case narrow:
			f.Explanation = fmt.Sprintf("It can do %s (%.1f GB/s each way) at most.", r.possible, r.possible.GBs())
		}
		out = append(out, f)
	}
	return out
}

// raiseTarget are the commands that let the link below a port run at a speed.
func raiseTarget(port *machine.Device, speed pcie.Speed) string {
	return fmt.Sprintf("set the target back and retrain: setpci -s %[1]s CAP_EXP+30.w=%[2]x:f; setpci -s %[1]s CAP_EXP+10.w=20:20 (or reboot).", port.BDF, int(speed))
}

// speedOf is the speed with a rate, 0 if there is none.
func speedOf(gts float64) pcie.Speed {
	for s := pcie.Gen1; s <= pcie.Gen6; s++ {
		if s.GTs() == gts {
			return s
		}
	}
	return 0
}

func linkRate(r kernlog.LinkRate) pcie.Link {
	return pcie.Link{Speed: speedOf(r.GTs), Width: uint8(min(r.Width, 255))}
}

// limited is the last word of the kernel on the bandwidth of a device.
type limited struct {
	entry  *kernlog.Entry
	event  kernlog.Bandwidth
	device *machine.Device
	port   *machine.Device
}

// lastLimits keeps the last bandwidth line of each device that a hop limits.
func (v *view) lastLimits() []limited {
	var order []*machine.Device
	last := map[*machine.Device]limited{}
	each(v, func(_ int, e *kernlog.Entry, b kernlog.Bandwidth) {
		d := v.device(e.Device)
		if d == nil {
			return
		}
		if _, seen := last[d]; !seen {
			order = append(order, d)
		}
		last[d] = limited{e, b, d, v.device(b.At)}
	})
	var out []limited
	for _, d := range order {
		if l := last[d]; l.port != nil && l.event.Capable.Width > 0 {
			out = append(out, l)
		}
	}
	return out
}

// limitedLines reads "limited by … at BDF": by itself it proves no more than
// that the card could do more than one hop of its path does. Registers of that
// hop know better where they were seen.
func (v *view) limitedLines() []Finding {
	var out []Finding
	said := map[*link]int{}
	held := v.retrainedPorts()
	for _, b := range v.lastLimits() {
		l := v.linkOf(b.port, true)
		if v.isVirtual(l) || l.isInside() || isTunnel(b.port) || held[b.port] != nil || b.event.Capable.Width == pcie.WidthAllOnes {
			continue
		}
		limit, capable := linkRate(b.event.Limit), linkRate(b.event.Capable)
		if limit == (pcie.Link{Speed: pcie.Gen1, Width: 4}) || !limit.Known() {
			continue // what Thunderbolt and USB4 ports always say
		}
		if !limit.Slower(capable) && !limit.Narrower(capable) || v.judge(l).current.Known() {
			continue
		}
		if l.down == nil {
			// No input shows the tree, but the kernel names the hop above
			// the device that it probes.
			l = &link{up: b.port, down: b.device, functions: []*machine.Device{b.device}}
			if k := v.below[b.port.BDF]; k != nil {
				k.down, k.functions = l.down, l.functions
				l = k
			}
		}
		if i, seen := said[l]; seen {
			out[i].Also = append(out[i].Also, b.device.BDF.String())
			out[i].Affects = append(out[i].Affects, v.affected(b.device)...)
			continue
		}
		said[l] = len(out)
		out = append(out, Finding{
			Component: l.component(), Also: []string{b.device.BDF.String()},
			Evidence:    lines(b.entry),
			Affects:     append(v.affectedBy(l), b.device.BDF.String()),
			Explanation: fmt.Sprintf("The hop runs at %s; the card can do %s. What the port can do is not in the input.", limit, capable),
		})
	}
	return out
}

// retrainedPorts are the ports that the kernel retrained at a low speed with
// success, as far as the log says.
func (v *view) retrainedPorts() map[*machine.Device]*kernlog.Entry {
	ports := map[*machine.Device]*kernlog.Entry{}
	each(v, func(_ int, e *kernlog.Entry, r kernlog.Retrain) {
		d := v.device(e.Device)
		switch {
		case d == nil:
		case r.Failed:
			delete(ports, d)
		default:
			ports[d] = e
		}
	})
	return ports
}

// retrained are links that the kernel's workaround left at its low speed.
func (v *view) retrained() []Finding {
	ports := v.retrainedPorts()
	limits := v.lastLimits()
	var out []Finding
	each(v, func(_ int, e *kernlog.Entry, r kernlog.Retrain) {
		port := v.device(e.Device)
		if port == nil || ports[port] != e {
			return
		}
		l := v.linkOf(port, true)
		if j := v.judge(l); j.current.Known() {
			return // registers are there, and linkFindings has judged them
		}
		f := Finding{Component: l.component(), Evidence: lines(e), Affects: v.affectedBy(l)}
		for _, b := range limits {
			if b.port != port || b.entry.Line < e.Line {
				continue
			}
			if b.event.Limit.GTs > r.GTs {
				return // it came back at a higher speed
			}
			f.Evidence = append(f.Evidence, lines(b.entry)...)
			f.Also = append(f.Also, b.device.BDF.String())
			f.Affects = append(f.Affects, b.device.BDF.String())
			if able := speedOf(b.event.Capable.GTs); able.Known() {
				f.now = fmt.Sprintf("see whether the port can do %s too (LnkCap in lspci -vv -s %s); if so, %s", able, port.BDF, raiseTarget(port, able))
			}
			if l.down == nil {
				f.Component = port.BDF.String() + separator + b.device.BDF.String()
			}
		}
		f.Explanation = fmt.Sprintf("The kernel retrained the link at %gGT/s because it did not come up.", r.GTs)
		out = append(out, f)
	})
	return out
}
