package diagnose

import (
	"iter"
	"sort"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
)

var slotRules = []Rule{
	{
		Code: "surprise-down", Severity: Fault, Needs: []Fact{KernelLog},
		When:        "a link went down without a removal: a Surprise Down error, or link down with the card still present",
		Unless:      "a removal came first (hotplug-removed); DPC took the link down (dpc-contained)",
		Explanation: "The link was lost, and no removal was announced before it: power, contact, cable or the card itself. A card that is pulled out without notice leaves the same lines.",
		Now:         "stop the jobs on what is below, and power-cycle the machine or the slot; a warm reboot often does not bring such a card back.",
		ForGood:     "check the card's power cables and its seat, then try it in another slot. Repeats on one slot: the slot or riser; with one card: the card.",
		find:        func(v *view) []Finding { return v.downs() },
	},
	{
		Code: "dpc-contained", Severity: Fault, Needs: []Fact{KernelLog},
		When:        "a port's Downstream Port Containment cut off what is below it",
		Explanation: "The port saw an uncorrectable error and took its link down to protect the host. What the devices below report after that is a consequence.",
		Now:         "look at the error that triggered it (in the evidence), and check that the devices below came back (ringlane topo).",
		ForGood:     "the trigger tells the part: an ACS violation or a malformed TLP is configuration, firmware or driver; a poisoned TLP or a link error is hardware.",
		Follows:     []Code{"hotplug-removed", "mps-mismatch", "surprise-down"},
		find:        func(v *view) []Finding { return v.containments() },
	},
	{
		Code: "hotplug-removed", Severity: Notice, Needs: []Fact{KernelLog},
		When:        "a real removal or insertion",
		Unless:      "\"Card present\" lines at boot; what follows from a containment",
		Explanation: "Somebody took a card out or put one in. Errors of that slot right after it are its consequences.",
		Now:         "nothing, if it was meant.",
		find:        func(v *view) []Finding { return v.removals() },
	},
}

// How close in time a cause and its consequence are. Logs of two devices may
// show the consequence first.
const (
	consequence = 30 * kernlog.Second
	outOfOrder  = 2 * kernlog.Second
	sameMoment  = kernlog.Second
	booting     = 60 * kernlog.Second // ports report the cards they find
)

type slotChange int

const (
	removed slotChange = iota
	inserted
	wentDown
)

var slotWords = map[slotChange]string{removed: "removed", inserted: "inserted", wentDown: "link down"}

// slotEvent is a change of a slot that is not itself a consequence.
type slotEvent struct {
	index  int // into the log
	entry  *kernlog.Entry
	port   *machine.Device
	change slotChange
}

// containment is one DPC event.
type containment struct {
	index int
	entry *kernlog.Entry
	port  *machine.Device
	event kernlog.DPC
}

// near reports whether entry b came within the spans before or after a; where
// the log has no times, entries of one part are near.
func near(a, b *kernlog.Entry, before, after kernlog.Micros) bool {
	gap, known := b.Time.Since(a.Time)
	if !known {
		return a.Part == b.Part && a.Time.Boot == b.Time.Boot && (b.Line >= a.Line || before > 0)
	}
	return gap >= -before && gap <= after
}

// past reports whether b stands in the same text as a and surely more than span
// after it, and so does all that follows b there.
func past(a, b *kernlog.Entry, span kernlog.Micros) bool {
	gap, known := b.Time.Since(a.Time)
	return known && gap > span && a.Part == b.Part && a.Line < b.Line
}

// eventOfLog is what has an entry of the log.
type eventOfLog interface{ at() *kernlog.Entry }

func (s slotEvent) at() *kernlog.Entry   { return s.entry }
func (c containment) at() *kernlog.Entry { return c.entry }

// firstAfter is the index of the first of the events, which are in the order of
// the log, that stands behind e.
func firstAfter[E eventOfLog](events []E, e *kernlog.Entry) int {
	return sort.Search(len(events), func(i int) bool { return events[i].at().Line > e.Line })
}

// before yields the events that stand before e and may have it as their
// consequence, the last one first. It does not look at a long log again and
// again: in each text, what is older than one that is too old is too old.
func before[E eventOfLog](events []E, e *kernlog.Entry) iter.Seq[*E] {
	return func(yield func(*E) bool) {
		for i := firstAfter(events, e) - 1; i >= 0; i-- {
			a := events[i].at()
			if a.Line == e.Line {
				continue
			}
			if near(a, e, 0, consequence) {
				if !yield(&events[i]) {
					return
				}
			} else if gap, known := e.Time.Since(a.Time); known && gap > consequence+outOfOrder {
				i = sort.Search(i, func(j int) bool { return events[j].at().Part >= a.Part })
			}
		}
	}
}

// readSlots sorts the slot lines into removals, insertions and links that went
// down, and leaves out what a containment brought about.
func (v *view) readSlots() {
	each(v, func(i int, e *kernlog.Entry, d kernlog.DPC) {
		if port := v.device(e.Device); port != nil {
			v.contained = append(v.contained, containment{i, e, port, d})
		}
	})
	type state struct {
		off      bool // a removal, or a button that asked for one
		dropped  bool // a containment or a lost link: what comes back is no insertion
		seen     bool
		removing *kernlog.Entry
	}
	states := map[*machine.Device]*state{}
	each(v, func(i int, e *kernlog.Entry, h kernlog.Hotplug) {
		port := v.device(e.Device)
		if port == nil {
			return
		}
		s := states[port]
		if s == nil {
			s = &state{}
			states[port] = s
		}
		add := func(change slotChange) {
			v.slots = append(v.slots, slotEvent{i, e, port, change})
		}
		switch h.Change {
		case kernlog.PoweringOff:
			add(removed)
			*s = state{off: true, seen: true, removing: e}
		case kernlog.CardNotPresent:
			switch {
			case s.off: // already told
			case v.containedBefore(port, e):
				s.dropped = true
			default:
				add(removed)
				*s = state{off: true, removing: e}
			}
		case kernlog.LinkDown:
			switch {
			case s.off && s.removing != nil && near(s.removing, e, outOfOrder, consequence):
			case v.containedBefore(port, e), v.containedSoonAfter(port, e), v.cardGone(i, port, e):
				s.dropped = true
			default:
				add(wentDown)
				s.dropped, s.off = true, false
			}
		case kernlog.CardPresent, kernlog.LinkUp, kernlog.PoweringOn:
			boot := !s.off && v.atBoot(e)
			if !s.dropped && !boot && (s.off || !s.seen) {
				add(inserted)
			}
			if h.Change != kernlog.PoweringOn {
				s.off, s.dropped = false, s.dropped && h.Change != kernlog.LinkUp
			}
		}
		s.seen = true
	})
}

// atBoot reports whether a line may be one of those in which ports report the
// cards that they find at boot. Without any time every line may be.
func (v *view) atBoot(e *kernlog.Entry) bool {
	switch {
	case e.Time.HasMono:
		return e.Time.Mono <= booting
	case !e.Time.HasWall:
		return true
	}
	boot := false
	each(v, func(_ int, k *kernlog.Entry, _ kernlog.KernelVersion) {
		boot = boot || k.Line < e.Line && near(k, e, 0, booting)
	})
	return boot
}

// containedBefore reports whether DPC of the port, or of one above it, cut the
// link shortly before e.
func (v *view) containedBefore(port *machine.Device, e *kernlog.Entry) bool {
	for c := range before(v.contained, e) {
		if v.isAbove(c.port, port) {
			return true
		}
	}
	return false
}

func (v *view) containedSoonAfter(port *machine.Device, e *kernlog.Entry) bool {
	for i := firstAfter(v.contained, e); i < len(v.contained); i++ {
		c := &v.contained[i]
		if past(e, c.entry, sameMoment) {
			break
		}
		if near(e, c.entry, 0, sameMoment) && v.isAbove(c.port, port) && !v.cardGone(c.index, port, e) {
			return true
		}
	}
	return false
}

// cardGone reports whether the port says soon after e, and before it says
// anything else of cards, that none is present.
func (v *view) cardGone(from int, port *machine.Device, e *kernlog.Entry) bool {
	const soon = 5 * kernlog.Second
	for i := from + 1; i < len(v.log) && !past(e, &v.log[i], soon); i++ {
		h, ok := v.log[i].Event.(kernlog.Hotplug)
		if !ok || v.device(v.log[i].Device) != port {
			continue
		}
		switch h.Change {
		case kernlog.CardNotPresent:
			return near(e, &v.log[i], 0, soon)
		case kernlog.CardPresent, kernlog.LinkUp, kernlog.LinkDown:
			return false
		}
	}
	return false
}

// isAbove reports whether a is d or an ancestor of it.
func (v *view) isAbove(a, d *machine.Device) bool {
	for range maxDepth {
		if a == d {
			return true
		}
		if d == nil || d.Parent == nil {
			return false
		}
		d = v.devices[*d.Parent]
	}
	return false
}

// mayBeAbove is isAbove where no input shows the tree: a port of the bus before
// that of d may lead to it. Any lower bus would make neighbours of every card.
func (v *view) mayBeAbove(a, d *machine.Device) bool {
	if v.isAbove(a, d) {
		return true
	}
	return d.Parent == nil && !d.ParentKnown && a.BDF.Domain == d.BDF.Domain && int(a.BDF.Bus)+1 == int(d.BDF.Bus)
}

// removedBefore returns the last removal of the slot above d that e follows from.
func (v *view) removedBefore(d *machine.Device, e *kernlog.Entry) *slotEvent {
	for s := range before(v.slots, e) {
		if s.change == removed && v.mayBeAbove(s.port, d) {
			return s
		}
	}
	return nil
}

// removalBehind returns the removal from which all of the entries about d
// follow, nil if there is none. Where only the log speaks of the tree, an event
// of another port of that bus explains them as well, and then nothing is
// explained away.
func (v *view) removalBehind(d *machine.Device, entries []*kernlog.Entry) *slotEvent {
	var s *slotEvent
	for _, e := range entries {
		if s = v.removedBefore(d, e); s == nil {
			return nil
		}
	}
	if s != nil && !v.isAbove(s.port, d) && v.linkEvent(d, entries[0]) != nil {
		return nil
	}
	return s
}

// slotFindings are the slot events of some kinds, one finding a port.
func (v *view) slotFindings(kinds ...slotChange) []Finding {
	var order []*machine.Device
	entries := map[*machine.Device][]*kernlog.Entry{}
	story := map[*machine.Device][]string{}
	for _, s := range v.slots {
		for _, k := range kinds {
			if s.change != k {
				continue
			}
			if n := len(story[s.port]); n == 0 || story[s.port][n-1] != slotWords[k] {
				story[s.port] = append(story[s.port], slotWords[k])
			}
			if entries[s.port] == nil {
				order = append(order, s.port)
			}
			entries[s.port] = append(entries[s.port], s.entry)
		}
	}
	var out []Finding
	for _, port := range order {
		l := v.linkOf(port, true)
		out = append(out, Finding{
			Component: l.component(), Also: l.others(), Evidence: lines(entries[port]...), Affects: v.affectedBy(l),
			Explanation: "In this order: " + few(story[port]) + ".",
		})
	}
	return out
}

func (v *view) removals() []Finding { return v.slotFindings(removed, inserted) }

// downs are links lost in use: by the slot's own lines, and by Surprise Down
// errors that no removal explains.
func (v *view) downs() []Finding {
	out := append(v.slotFindings(wentDown), v.countedDowns()...)
	for _, g := range v.records {
		var entries []*kernlog.Entry
		for _, r := range g.uncorrected {
			if r.kind == recordSurprise {
				entries = append(entries, r.entry)
			}
		}
		if len(entries) == 0 {
			continue
		}
		merged := false
		for i := range out {
			if out[i].Component == g.link.component() {
				out[i].Evidence = append(out[i].Evidence, lines(entries...)...)
				merged = true
			}
		}
		if !merged {
			out = append(out, Finding{
				Component: g.link.component(), Also: g.link.others(), Evidence: lines(entries...), Affects: v.affectedBy(g.link),
			})
		}
	}
	return out
}

// afterRemoval is the remedy for what a removal brings about.
const afterRemoval = remedyNow + "nothing: the removal explains it."

func (v *view) containments() []Finding {
	var order []*machine.Device
	events := map[*machine.Device][]containment{}
	for _, c := range v.contained {
		if events[c.port] == nil {
			order = append(order, c.port)
		}
		events[c.port] = append(events[c.port], c)
	}
	var out []Finding
	for _, port := range order {
		l := v.linkOf(port, true)
		f := Finding{Component: l.component(), Also: l.others(), Affects: v.affectedBy(l)}
		follows := true // does each of them follow from a removal?
		var entries []*kernlog.Entry
		for _, c := range events[port] {
			entries = append(entries, c.entry)
			if c.event.Source != "" {
				f.Also = append(f.Also, string(c.event.Source))
			}
			for _, g := range v.records {
				for _, r := range g.uncorrected {
					if r.event.Contained && r.device == port && near(c.entry, r.entry, 0, sameMoment) && r.entry.Line > c.entry.Line {
						entries = append(entries, r.entry)
						break
					}
				}
			}
			s := v.removedBefore(port, c.entry)
			if s == nil {
				follows = false
				continue
			}
			f.CausedBy = &Reference{"hotplug-removed", v.linkOf(s.port, true).component()}
		}
		f.Explanation = "Trigger: " + string(events[port][0].event.Trigger) + "."
		f.Evidence = lines(entries...)
		if follows {
			f.Severity, f.Remedy = Notice, afterRemoval
		} else {
			f.CausedBy = nil
		}
		out = append(out, f)
	}
	return out
}
