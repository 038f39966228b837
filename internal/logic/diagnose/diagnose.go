// Package diagnose says what is wrong with a machine, and what only looks so.
//
// A [Rule] is a value: its code, what it needs to have seen, why it matters
// and what to do. [Run] asks every rule about one machine document and puts
// causes before their consequences. A rule that could not see what it needs
// says so as a finding of severity [Blind]; it is never silent for lack of
// sight.
package diagnose

import (
	"cmp"
	"slices"

	"ringlane/internal/model/machine"
)

// Code names what a finding says. Codes are a public interface: they are
// never renamed and never used for something else.
type Code string

// Severity is how bad a finding is.
type Severity string

// The severities, worst first.
const (
	Fault   Severity = "fault"   // training is harmed or will be: act
	Warning Severity = "warning" // likely to become a fault, or costs real performance
	Notice  Severity = "notice"  // true and worth knowing; needs no action
	Blind   Severity = "blind"   // what was needed could not be seen
)

func (s Severity) rank() int {
	return slices.Index([]Severity{Fault, Warning, Blind, Notice}, s)
}

// Host is the component of what concerns the machine as a whole.
const Host = "host"

// Finding is one incident: both ends of a link, several functions of a card
// and any number of repeats of a line are one.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Component is an address (dddd:bb:dd.f), a link or pair "A<->B" with
	// the upstream end first, or "host". Where the input has no addresses it
	// is the name that the input uses ("GPU0").
	Component string `json:"component"`
	// Also are other addresses of the same incident.
	Also []string `json:"also"`
	// Evidence are the lines and registers that it rests on.
	Evidence    []string `json:"evidence"`
	Explanation string   `json:"explanation"`
	Remedy      string   `json:"remedy"`
	// Affects are the GPUs, NICs, drives and ranks that feel it.
	Affects []string `json:"affects"`
	// CausedBy is the finding that this one follows from.
	CausedBy *Reference `json:"caused_by"`

	now string // the first half of the remedy, where the rule's own is not enough
}

// Reference names a finding.
type Reference struct {
	Code      Code   `json:"code"`
	Component string `json:"component"`
}

func (f *Finding) reference() Reference { return Reference{f.Code, f.Component} }

// Thresholds tell a storm of corrected errors from a few.
type Thresholds struct {
	PerMinute int // events of one link inside one minute
	PerHour   int // inside one hour
	// Untimed is for counts without any time.
	Untimed int
}

// DefaultThresholds are the documented ones.
var DefaultThresholds = Thresholds{PerMinute: 10, PerHour: 100, Untimed: 1000}

// Report is what Run found.
type Report struct {
	Findings []Finding `json:"findings"`
	Status   int       `json:"status"`
}

// The exit statuses of the command. StatusUnreadable is for an input of which
// nothing could be read.
const (
	StatusHealthy    = 0
	StatusWarning    = 1
	StatusFault      = 2
	StatusUnreadable = 3
)

// Run asks every rule about the machine.
func Run(m *machine.Machine, limits Thresholds) Report {
	v := newView(m, limits)
	v.rules = Rules()
	findings := []Finding{}
	for _, r := range v.rules {
		for _, f := range r.find(v) {
			findings = append(findings, r.complete(f))
		}
	}
	addCauses(findings)
	findings = order(findings)
	return Report{Findings: findings, Status: status(findings)}
}

// status is the exit status: what cannot be seen never makes it worse.
func status(findings []Finding) int {
	worst := StatusHealthy
	for i := range findings {
		switch findings[i].Severity {
		case Fault:
			worst = StatusFault
		case Warning:
			worst = max(worst, StatusWarning)
		}
	}
	return worst
}

// order sorts worst first, with every consequence right behind its cause: a
// cause counts as bad as the worst that came of it.
func order(findings []Finding) []Finding {
	children := map[int][]int{}
	var roots []int
	index := map[Reference]int{}
	for i := range findings {
		if _, seen := index[findings[i].reference()]; !seen {
			index[findings[i].reference()] = i
		}
	}
	for i := range findings {
		c := findings[i].CausedBy
		parent, known := 0, false
		if c != nil {
			parent, known = index[*c]
		}
		if !known || parent == i || leadsTo(findings, index, parent, i) {
			findings[i].CausedBy = nil
			roots = append(roots, i)
			continue
		}
		children[parent] = append(children[parent], i)
	}
	var worst func(i int) int
	worst = func(i int) int {
		w := findings[i].Severity.rank()
		for _, c := range children[i] {
			w = min(w, worst(c))
		}
		return w
	}
	byRank := func(a, b int) int { return cmp.Compare(worst(a), worst(b)) }
	out := make([]Finding, 0, len(findings))
	var walk func(list []int)
	walk = func(list []int) {
		slices.SortStableFunc(list, byRank)
		for _, i := range list {
			out = append(out, findings[i])
			walk(children[i])
		}
	}
	walk(roots)
	return out
}

// leadsTo reports whether the causes of from lead back to target.
func leadsTo(findings []Finding, index map[Reference]int, from, target int) bool {
	for range findings {
		if from == target {
			return true
		}
		c := findings[from].CausedBy
		if c == nil {
			return false
		}
		next, known := index[*c]
		if !known {
			return false
		}
		from = next
	}
	return true
}
