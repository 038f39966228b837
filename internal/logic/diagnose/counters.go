package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// withCounters adds what the counters of uncorrected errors (aer_dev_nonfatal,
// aer_dev_fatal) know and the log does not: a ring buffer forgets, and a log is
// not always in the input.
func (v *view) withCounters(findings []Finding, severity kernlog.Severity) []Finding {
	for _, l := range v.links {
		var f Finding
		var named []string
		for _, d := range l.allEnds() {
			names := v.untold(l, d, severity)
			if len(names) == 0 {
				continue
			}
			if f.Component == "" {
				f.Component = d.BDF.String()
			}
			f.Also = append(f.Also, d.BDF.String())
			f.Evidence = append(f.Evidence, fmt.Sprintf("%s counted since boot (aer_dev_%s): %s",
				d.BDF, counterFiles[severity], strings.Join(names, ", ")))
			named = append(named, names...)
		}
		if f.Component == "" {
			continue
		}
		told := slices.IndexFunc(findings, func(t Finding) bool {
			return slices.ContainsFunc(l.allEnds(), func(d *machine.Device) bool { return d.BDF.String() == t.Component })
		})
		if told >= 0 {
			t := &findings[told]
			t.Evidence = append(t.Evidence, f.Evidence...)
			if t.Severity == Notice { // the removal does not explain all of it
				t.Severity, t.Remedy, t.CausedBy = "", "", nil
			}
			continue
		}
		f.Affects = v.affectedBy(l)
		f.Explanation = "Counted since boot: " + few(named) + "."
		findings = append(findings, f)
	}
	return findings
}

var counterFiles = map[kernlog.Severity]string{kernlog.NonFatal: "nonfatal", kernlog.Fatal: "fatal"}

// untold names the counted errors of a device of which no record of its link
// speaks. A surprise down is a finding of its own.
func (v *view) untold(l *link, d *machine.Device, severity kernlog.Severity) []string {
	counts, total := uncorrectedCounts(d, severity)
	if total == 0 {
		return nil
	}
	told := pcie.SurpriseDown
	records := 0
	for _, r := range v.groupOf(l).uncorrected {
		if r.event.Severity == severity {
			told |= pcie.UncorrectableErrors(r.event.Status)
			records++
		}
	}
	if len(counts) == 0 && records == 0 {
		return []string{fmt.Sprintf("%d errors", total)}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if bit, known := pcie.UncorrectableByName(name); counts[name] > 0 && (!known || told&bit == 0) {
			out = append(out, fmt.Sprintf("%s %d", name, counts[name]))
		}
	}
	return out
}

// countedDowns are links whose port counted a Surprise Down of which the log
// says nothing. A slot that is empty now, or that tells of a removal, was
// emptied by somebody.
func (v *view) countedDowns() []Finding {
	var out []Finding
	for _, l := range v.links {
		if l.up == nil || l.down == nil || slices.ContainsFunc(v.slots, func(s slotEvent) bool { return s.port == l.up }) ||
			slices.ContainsFunc(v.groupOf(l).uncorrected, isSurprise) {
			continue
		}
		n := uint64(0)
		for _, severity := range []kernlog.Severity{kernlog.NonFatal, kernlog.Fatal} {
			counts, _ := uncorrectedCounts(l.up, severity)
			n += counts["SDES"]
		}
		if n > 0 {
			out = append(out, Finding{
				Component: l.component(), Also: l.others(), Affects: v.affectedBy(l),
				Evidence: []string{fmt.Sprintf("%s counted since boot (aer_dev_fatal, aer_dev_nonfatal): SDES %d", l.up.BDF, n)},
			})
		}
	}
	return out
}

func isSurprise(r errorRecord) bool {
	return pcie.UncorrectableErrors(r.event.Status)&pcie.SurpriseDown != 0
}

func uncorrectedCounts(d *machine.Device, severity kernlog.Severity) (map[string]uint64, uint64) {
	switch {
	case d.Counters == nil:
		return nil, 0
	case severity == kernlog.Fatal:
		return d.Counters.Fatal, d.Counters.TotalFatal
	}
	return d.Counters.NonFatal, d.Counters.TotalNonFatal
}
