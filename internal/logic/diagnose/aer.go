package diagnose

import (
	"fmt"
	"strings"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

var aerRules = []Rule{
	{
		Code: "aer-corrected-storm", Severity: Warning, Needs: []Fact{KernelLog},
		When:        "corrected errors of one link at a rate that matters: 10 or more inside one minute, or 100 or more inside one hour, counted, never extrapolated; or counters that come to as much over the uptime, or to 1000 where no time is known",
		Unless:      "the same status word repeated after a failed recovery",
		Explanation: "Every corrected error is a packet sent again. At this rate the link loses bandwidth, and such links tend to go down.",
		Now:         "keep the node, but plan to drain it; watch the counters (/sys/bus/pci/devices/BDF/aer_dev_correctable).",
		ForGood:     stormForGood,
		Follows:     []Code{"fabric-congestion", "aspm-suspect"},
		find:        func(v *view) []Finding { return v.correctedFindings(true) },
	},
	{
		Code: "aer-corrected-rare", Severity: Notice, Needs: []Fact{KernelLog},
		When:        "corrected errors below that rate",
		Explanation: "The hardware corrected them, and nothing was lost.",
		Now:         "nothing. If they become more, aer-corrected-storm says so.",
		Follows:     []Code{"fabric-congestion", "aspm-suspect"},
		find:        func(v *view) []Finding { return v.correctedFindings(false) },
	},
	{
		Code: "aer-nonfatal", Severity: Fault, Needs: []Fact{KernelLog},
		When:        "an uncorrected, non-fatal error of a device",
		Unless:      "the record is software-access",
		Explanation: "A transaction was lost. The link lives, but what was asked for did not happen, and the device's driver may be confused.",
		Now:         "stop the jobs on the device and look whether its driver recovered; if not, reset it or reboot.",
		ForGood:     "the named bit tells where to look: a completion timeout at the device that did not answer, an unsupported request at who asked, a poisoned packet at its sender's memory.",
		Follows:     []Code{"hotplug-removed", "dpc-contained", "bar-unassigned", "bus-range-conflict"},
		find: func(v *view) []Finding {
			return v.withCounters(v.uncorrectedFindings(kernlog.NonFatal, recordError), kernlog.NonFatal)
		},
	},
	{
		Code: "aer-fatal", Severity: Fault, Needs: []Fact{KernelLog},
		When:        "an uncorrected, fatal error, also one that firmware kept from the previous boot (BERT)",
		Unless:      "the record is surprise-down or software-access",
		Explanation: "The link can no longer be trusted: the kernel resets it, and the devices below lose their state.",
		Now:         "drain the node; the jobs on what is below have failed.",
		ForGood:     "a link-level bit (DLP, FCP, RxOF) means reseat or replace the card, riser or cable; a malformed packet means MaxPayload settings or a broken device.",
		Follows:     []Code{"hotplug-removed", "dpc-contained", "mps-mismatch"},
		find: func(v *view) []Finding {
			return v.withCounters(v.uncorrectedFindings(kernlog.Fatal, recordError), kernlog.Fatal)
		},
	},
	{
		Code: "software-access", Severity: Warning, Needs: []Fact{KernelLog, BARs},
		When:        "a device refused a read or write inside one of its own BARs, by the header of the packet: software touched a register that is not there",
		Explanation: "Not the hardware: a driver or a program reads or writes a register that this device does not have.",
		Now:         "nothing to the hardware; do not drain the node.",
		ForGood:     "update the device's driver, or report the line to its makers.",
		find: func(v *view) []Finding {
			return append(v.uncorrectedFindings(kernlog.NonFatal, recordSoftware), v.uncorrectedFindings(kernlog.Fatal, recordSoftware)...)
		},
	},
	{
		Code: "error-latched", Severity: Notice, Needs: []Fact{ErrorRegisters},
		When:        "error status bits are set in registers since boot, with no event in the log",
		Unless:      "UnsupReq+ in DevSta alone",
		Explanation: "Something went wrong once or often since boot; a latched bit tells neither when nor how many times.",
		Now:         "nothing. To see whether they come again: clear them (setpci, writing ones to the status registers) or read /sys/bus/pci/devices/BDF/aer_dev_* twice.",
		find:        func(v *view) []Finding { return v.latched() },
	},
}

const stormForGood = "reseat the card and its riser or cable; if only one end reports receiver errors, suspect what transmits to it. With ASPM on, switch it off first."

// correctedVerdict is what the corrected errors of a link come to.
type correctedVerdict struct {
	count   int
	storm   bool
	rate    string
	counted string // evidence of counters
}

// judgeCorrected counts the corrected errors of a link. Counters win over text.
func (v *view) judgeCorrected(g *errorGroup) correctedVerdict {
	var r correctedVerdict
	ticks := v.ticks(g)
	r.count = total(ticks)
	minute, hour := densest(ticks, kernlog.Minute), densest(ticks, kernlog.Hour)
	untimed := max(g.reported, r.count)

	counter, at := g.link.counter()
	if at != nil {
		if v.lastBootOnly(ticks) {
			minute, hour, untimed = min(minute, int(counter)), min(hour, int(counter)), min(untimed, int(counter))
		}
		if counter > 0 {
			r.counted = fmt.Sprintf("%s counted %d corrected errors since boot (aer_dev_correctable)", at.BDF, counter)
		}
	}
	switch {
	case minute >= v.limits.PerMinute:
		r.storm, r.rate = true, fmt.Sprintf("%d inside one minute.", minute)
	case hour >= v.limits.PerHour:
		r.storm, r.rate = true, fmt.Sprintf("%d inside one hour.", hour)
	case !hasTimes(ticks) && untimed >= v.limits.Untimed || g.reported >= v.limits.Untimed:
		r.storm, r.rate = true, fmt.Sprintf("%d or more in all.", untimed)
	case r.count > 0:
		r.rate = fmt.Sprintf("%d in the log.", r.count)
	}
	if r.storm || counter == 0 {
		return r
	}
	r.count = max(r.count, int(min(counter, 1<<31)))
	n := float64(counter)
	if up := v.m.UptimeSeconds; up != nil && *up > 0 {
		r.storm = n/max(1, *up/60) >= float64(v.limits.PerMinute) || n/max(1, *up/3600) >= float64(v.limits.PerHour)
		r.rate = fmt.Sprintf("%d in %.1f hours of uptime.", counter, *up/3600)
	} else {
		r.storm = counter >= uint64(v.limits.Untimed)
		r.rate = fmt.Sprintf("%d since boot.", counter)
	}
	return r
}

func hasTimes(ticks []tick) bool {
	for _, t := range ticks {
		if t.at.Time.HasMono || t.at.Time.HasWall {
			return true
		}
	}
	return false
}

// lastBootOnly reports whether the errors are all of the boot in which the
// counters were read.
func (v *view) lastBootOnly(ticks []tick) bool {
	if len(v.log) == 0 {
		return true
	}
	last := v.log[len(v.log)-1].Time.Boot
	for _, t := range ticks {
		if t.at.Time.Boot != last {
			return false
		}
	}
	return true
}

// counter is the larger count of corrected errors of the two ends; nil where
// neither end has counters.
func (l *link) counter() (uint64, *machine.Device) {
	var most uint64
	var at *machine.Device
	for _, d := range l.allEnds() {
		if d.Counters != nil && (at == nil || d.Counters.TotalCorrectable > most) {
			most, at = d.Counters.TotalCorrectable, d
		}
	}
	return most, at
}

func (l *link) allEnds() []*machine.Device {
	var out []*machine.Device
	if l.up != nil {
		out = append(out, l.up)
	}
	return append(out, l.functions...)
}

// groupOf returns the records of a link, empty ones where it has none.
func (v *view) groupOf(l *link) *errorGroup {
	for _, g := range v.records {
		if g.link == l {
			return g
		}
	}
	return &errorGroup{link: l}
}

// correctedGroups are the links with corrected errors: those of the log, then
// those of which only counters speak.
func (v *view) correctedGroups() []*errorGroup {
	var out []*errorGroup
	seen := map[*link]bool{}
	for _, g := range v.records {
		seen[g.link] = true
		if n, _ := g.link.counter(); len(g.corrected) > 0 || len(g.lost) > 0 || n > 0 {
			out = append(out, g)
		}
	}
	for _, l := range v.links {
		if n, _ := l.counter(); n > 0 && !seen[l] {
			out = append(out, &errorGroup{link: l})
		}
	}
	return out
}

func (v *view) correctedFindings(storm bool) []Finding {
	var out []Finding
	for _, g := range v.correctedGroups() {
		r := v.judgeCorrected(g)
		if r.storm != storm || r.count == 0 && !r.storm {
			continue
		}
		f := Finding{
			Component: g.link.component(), Also: g.link.others(), Affects: v.affectedBy(g.link),
			Explanation: strings.TrimSpace("Corrected errors (" + bitsOf(g) + "): " + r.rate),
		}
		f.Evidence = append(f.Evidence, lines(g.entries()...)...)
		f.Evidence = append(f.Evidence, lines(g.suppressed...)...)
		if r.counted != "" {
			f.Evidence = append(f.Evidence, r.counted)
		}
		for _, c := range g.corrected {
			f.Also = append(f.Also, c.device.BDF.String())
			if g.link.up == nil {
				f.Also = append(f.Also, string(c.event.Port)) // as much of the way as is known
			}
		}
		switch {
		case v.congestedUplink(g.link) != nil:
			f.CausedBy = &Reference{"fabric-congestion", v.congestedUplink(g.link).component()}
			f.Remedy = remedyNow + "nothing to this link: the switch is congested, and no part is bad."
		case v.isASPMSuspect(g):
			f.CausedBy = &Reference{"aspm-suspect", g.link.component()}
		}
		if gone := v.lostAfter(g.link, storm); len(gone) > 0 {
			f.Remedy = remedyNow + "drain the node: these errors ended in the loss of " + few(gone) + " (device-lost)." + remedyForGood + stormForGood
		}
		out = append(out, f)
	}
	return out
}

// lostAfter names the devices whose loss follows from a storm on the link: the
// advice is theirs then.
func (v *view) lostAfter(l *link, storm bool) []string {
	var out []string
	if !storm {
		return nil
	}
	for _, f := range v.lost() {
		if f.CausedBy != nil && *f.CausedBy == (Reference{"aer-corrected-storm", l.component()}) {
			out = append(out, f.Component)
		}
	}
	return out
}

func (g *errorGroup) entries() []*kernlog.Entry {
	out := make([]*kernlog.Entry, len(g.corrected))
	for i := range g.corrected {
		out[i] = g.corrected[i].entry
	}
	return out
}

// correctedBits are the errors that the records and counters of a link name.
func (g *errorGroup) correctedBits() pcie.CorrectableErrors {
	var set pcie.CorrectableErrors
	for _, r := range g.corrected {
		if !r.event.AllOnes() {
			set |= pcie.CorrectableErrors(r.event.Status)
		}
	}
	for _, d := range g.link.allEnds() {
		if d.Counters == nil {
			continue
		}
		for name, n := range d.Counters.Correctable {
			if bit, ok := pcie.CorrectableByName(name); ok && n > 0 {
				set |= bit
			}
		}
	}
	return set
}

func bitsOf(g *errorGroup) string {
	if names := g.correctedBits().Names(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "no details"
}

// uncorrectedFindings are the records of one severity and kind, one finding a
// link.
func (v *view) uncorrectedFindings(severity kernlog.Severity, kind recordKind) []Finding {
	var out []Finding
	for _, g := range v.records {
		var f Finding
		var entries []*kernlog.Entry
		var set pcie.UncorrectableErrors
		cause := true // do all of them follow from a removal?
		previous := false
		for _, r := range g.uncorrected {
			same := r.kind == kind || kind == recordError && r.kind == recordRemoved
			if r.event.Severity != severity || !same {
				continue
			}
			if f.Component == "" {
				f.Component = r.device.BDF.String()
			}
			f.Also = append(f.Also, r.device.BDF.String())
			entries = append(entries, r.entry)
			set |= pcie.UncorrectableErrors(r.event.Status)
			previous = previous || r.event.Origin == kernlog.PreviousBoot
			if r.kind != recordRemoved {
				cause = false
				continue
			}
			f.CausedBy = &Reference{"hotplug-removed", v.linkOf(r.from.port, true).component()}
		}
		if len(entries) == 0 {
			continue
		}
		f.Affects = v.affectedBy(g.link)
		f.Evidence = lines(entries...)
		if names := set.Names(); len(names) > 0 {
			f.Explanation = "The device names " + strings.Join(names, ", ") + "."
		}
		if previous {
			f.Explanation += " Firmware kept the record from the previous boot (BERT)."
		}
		f.Explanation = strings.TrimSpace(f.Explanation)
		switch {
		case cause:
			f.Severity, f.Remedy = Notice, afterRemoval
		default:
			f.CausedBy = v.causeOfUncorrected(g, entries)
		}
		out = append(out, f)
	}
	return out
}

// causeOfUncorrected names the containment at which the records were made.
func (v *view) causeOfUncorrected(g *errorGroup, entries []*kernlog.Entry) *Reference {
	for _, c := range v.contained {
		for _, e := range entries {
			if near(c.entry, e, 0, consequence) && e.Line > c.entry.Line && v.isAbove(c.port, v.device(e.Device)) {
				return &Reference{"dpc-contained", v.linkOf(c.port, true).component()}
			}
		}
	}
	return nil
}

// latched are links with error bits in their registers of which the log says
// nothing.
func (v *view) latched() []Finding {
	var out []Finding
	for _, l := range v.links {
		if l.down == nil || v.loggedErrors(l) {
			continue
		}
		var evidence, bits []string
		for _, d := range l.allEnds() {
			if names := latchedBits(d); len(names) > 0 {
				evidence = append(evidence, d.BDF.String()+": "+strings.Join(names, ", "))
				bits = append(bits, d.BDF.String())
			}
		}
		if len(evidence) > 0 {
			out = append(out, Finding{
				Component: l.component(), Also: bits, Evidence: evidence, Affects: v.affectedBy(l),
				Explanation: strings.Join(evidence, "; ") + ".",
			})
		}
	}
	return out
}

// loggedErrors reports whether log or counters speak of errors of the link.
func (v *view) loggedErrors(l *link) bool {
	g := v.groupOf(l)
	n, _ := l.counter()
	for _, d := range l.allEnds() {
		if d.Counters != nil {
			n += d.Counters.TotalNonFatal + d.Counters.TotalFatal
		}
	}
	return len(g.corrected)+len(g.uncorrected) > 0 || n > 0
}

// latchedBits names what is set in the status registers. An unsupported request
// alone is noise: probing a bus makes them, and it shows as an advisory error
// and in DevSta's CorrErr too.
func latchedBits(d *machine.Device) []string {
	if d.Unreachable() {
		return nil
	}
	var out []string
	add := func(register string, names []string) {
		if len(names) > 0 {
			out = append(out, register+" "+strings.Join(names, "+ ")+"+")
		}
	}
	a := d.Registers.AER
	if a != nil {
		add("CESta", (a.CorrectableStatus &^ pcie.AdvisoryNonFatal).Names())
		add("UESta", (a.UncorrectableStatus &^ pcie.UnsupportedRequest).Names())
	}
	x := d.Registers.Express
	if x == nil || x.DevSta == nil || len(out) == 0 && (a != nil || x.DevSta.Unsupported) {
		return out // where AER tells more, DevSta only repeats it
	}
	var set []string
	for _, b := range []struct {
		on   bool
		name string
	}{{x.DevSta.Correctable, "CorrErr"}, {x.DevSta.NonFatal, "NonFatalErr"}, {x.DevSta.Fatal, "FatalErr"}} {
		if b.on {
			set = append(set, b.name)
		}
	}
	add("DevSta", set)
	return out
}
