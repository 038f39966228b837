package diagnose

import (
	"slices"
	"sort"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// recordKind says what an uncorrected record is.
type recordKind int

const (
	recordError    recordKind = iota
	recordSoftware            // software touched a register that is not there
	recordSurprise            // the link went down under it
	recordAllOnes             // the device no longer answered: the bits mean nothing
	recordRemoved             // it follows from a removal
)

// errorRecord is an AER record with the device that it is about.
type errorRecord struct {
	entry  *kernlog.Entry
	event  kernlog.AERError
	device *machine.Device
	kind   recordKind
	from   *slotEvent // of recordRemoved
}

// errorGroup holds the records of one link.
type errorGroup struct {
	link        *link
	corrected   []errorRecord
	uncorrected []errorRecord
	lost        []lostRecords
	reported    int // "Over n Correctable Errors reported"
	suppressed  []*kernlog.Entry
}

// lostRecords are records that the kernel did not print.
type lostRecords struct {
	entry *kernlog.Entry
	count int
}

// readRecords sorts the AER records by link.
func (v *view) readRecords() {
	v.joinEnds()
	v.readRecoveries()
	v.readBARs()
	groups := map[*link]*errorGroup{}
	group := func(l *link) *errorGroup {
		if groups[l] == nil {
			groups[l] = &errorGroup{link: l}
			v.records = append(v.records, groups[l])
		}
		return groups[l]
	}
	var last *errorGroup // the one that lines without an address speak of
	for i := range v.log {
		e := &v.log[i]
		switch event := e.Event.(type) {
		case kernlog.AERError:
			d := v.device(e.Device)
			if d == nil {
				continue
			}
			g := group(v.linkOf(d, isPort(e)))
			r := errorRecord{entry: e, event: event, device: d}
			if event.Severity == kernlog.Corrected {
				g.corrected = append(g.corrected, r)
				last = g
				continue
			}
			r.kind = v.kindOf(&r)
			g.uncorrected = append(g.uncorrected, r)
		case kernlog.LinesLost:
			if event.Scope != kernlog.LostAER {
				continue
			}
			g := last
			if d := v.device(e.Device); d != nil {
				g = group(v.linkOf(d, isPort(e)))
				for _, other := range v.records { // a root port speaks for what is below it
					if len(g.corrected) == 0 && len(other.corrected) > 0 && other.corrected[0].event.Port == e.Device {
						g = other
					}
				}
			}
			if g != nil {
				g.lost = append(g.lost, lostRecords{e, event.Count})
				g.reported = max(g.reported, event.Total)
				g.suppressed = append(g.suppressed, e)
			}
		}
	}
}

func isPort(e *kernlog.Entry) bool { return e.Driver == "pcieport" }

// joinEnds finds the two ends of links of which only the log speaks: a port
// and a device on a bus behind it that print their records in one moment.
func (v *view) joinEnds() {
	var previous *kernlog.Entry
	each(v, func(_ int, e *kernlog.Entry, _ kernlog.AERError) {
		p := previous
		previous = e
		if p == nil || isPort(p) == isPort(e) || !near(p, e, 0, sameMoment) {
			return
		}
		if !isPort(p) {
			p, e = e, p
		}
		port, device := v.device(p.Device), v.device(e.Device)
		if port == nil || device == nil || device.ParentKnown || v.below[port.BDF] != nil && v.below[port.BDF].down != nil ||
			v.above[device.BDF] != nil || port.BDF.Domain != device.BDF.Domain || port.BDF.Bus >= device.BDF.Bus {
			return
		}
		l := v.linkOf(port, true)
		l.down, l.functions = device, []*machine.Device{device}
		v.above[device.BDF] = l
	})
}

// kindOf tells what an uncorrected record really is.
func (v *view) kindOf(r *errorRecord) recordKind {
	if s := v.removedBefore(r.device, r.entry); s != nil && r.event.Origin != kernlog.PreviousBoot && !v.cameElsewhere(r, s) {
		r.from = s
		return recordRemoved
	}
	switch {
	case r.event.AllOnes():
		return recordAllOnes
	case v.isSoftwareAccess(r):
		return recordSoftware
	case pcie.UncorrectableErrors(r.event.Status)&pcie.SurpriseDown != 0:
		return recordSurprise
	}
	return recordError
}

// cameElsewhere reports whether a record that the tree does not place below the
// removed slot was received by a port beside it.
func (v *view) cameElsewhere(r *errorRecord, s *slotEvent) bool {
	port := v.device(r.event.Port)
	return port != nil && port != s.port && port.BDF.Domain == s.port.BDF.Domain && port.BDF.Bus == s.port.BDF.Bus && !v.isAbove(s.port, r.device)
}

// isSoftwareAccess reports whether a request that the device refused was a
// read or write inside one of its own BARs: then something that runs on the
// host touched a register that does not exist. The status word may be cleared
// by then.
func (v *view) isSoftwareAccess(r *errorRecord) bool {
	refused := pcie.UnsupportedRequest | pcie.CompleterAbort
	status := pcie.UncorrectableErrors(r.event.Status)
	if status&^refused != 0 {
		return false
	}
	address, _, ok := memoryRequest(r.event.TLP)
	return ok && v.insideBAR(r.device, address)
}

// memoryRequest decodes the header of a memory read or write (PCI Express Base
// Specification 2.2.7): its address and length in bytes.
func memoryRequest(tlp []uint32) (address uint64, length int, ok bool) {
	if len(tlp) < 4 {
		return 0, 0, false
	}
	format, kind := tlp[0]>>29, tlp[0]>>24&0x1f
	if kind > 1 || format > 3 { // 0 memory, 1 locked memory read
		return 0, 0, false
	}
	length = int(tlp[0]&0x3ff) * 4
	if length == 0 {
		length = 4096
	}
	if format&1 == 1 { // four words of header: 64-bit address
		return uint64(tlp[2])<<32 | uint64(tlp[3]&^3), length, true
	}
	return uint64(tlp[2] &^ 3), length, tlp[2] != 0
}

// isWrite reports whether the header is of a request that carries data.
func isWrite(tlp []uint32) bool { return len(tlp) > 0 && tlp[0]>>30&1 == 1 }

// insideBAR reports whether the address lies in a BAR of the card: by lspci
// and sysfs, or by the kernel's lines.
func (v *view) insideBAR(d *machine.Device, address uint64) bool {
	within := func(start, size uint64) bool { return start != 0 && address >= start && address-start < size }
	for _, r := range d.Resources {
		if r.Kind == machine.BAR && !r.IO && within(r.Address, r.Size) {
			return true
		}
	}
	for _, r := range v.bars[d] {
		if within(r.Start, r.Size) {
			return true
		}
	}
	return false
}

// readBARs keeps the memory BARs that the kernel's lines show.
func (v *view) readBARs() {
	v.bars = map[*machine.Device][]kernlog.Resource{}
	each(v, func(_ int, e *kernlog.Entry, r kernlog.Resource) {
		if d := v.device(e.Device); d != nil && r.Kind == kernlog.BAR && !r.IO && r.HasStart {
			v.bars[d] = append(v.bars[d], r)
		}
	})
}

// tick is corrected errors at one moment.
type tick struct {
	at      *kernlog.Entry
	count   int
	dropped bool // lines that were not printed: some time before at
}

// ticks counts the corrected errors of the link by the rules of counting: what
// both ends print within a second is one error, Multiple is at least two, the
// same status word after a failed recovery is none, and functions of one card
// that print the same at once print one error. Parts of a log often
// repeat one another, so the fullest one counts.
func (v *view) ticks(g *errorGroup) []tick {
	type open struct {
		index int // into its part's ticks
		end   bool
	}
	parts := map[int][]tick{}
	waiting := map[int]*open{}            // the last record of one end only
	messages := map[[2]int]int{}          // part and message: index of its tick
	words := map[*machine.Device]uint32{} // the last status word
	bursts := map[int]*burst{}            // the last error of the card
	for _, r := range g.corrected {
		part := r.entry.Part
		weight := 1
		if r.event.Multiple {
			weight = 2
		}
		if word, seen := words[r.device]; seen && r.event.Details && word == r.event.Status && v.failedRecovery(r) {
			continue
		}
		if r.event.Details {
			words[r.device] = r.event.Status
		}
		if b := bursts[part]; b != nil && b.takes(r) {
			last := &parts[part][len(parts[part])-1]
			last.count = max(last.count, weight)
			continue
		}
		end := r.device == g.link.up
		if !end { // the port may print its record between those of the card
			bursts[part] = &burst{first: r, printed: []*machine.Device{r.device}}
		}
		if key := [2]int{part, r.event.Message}; r.event.Message != 0 {
			if i, seen := messages[key]; seen {
				parts[part][i].count = max(parts[part][i].count, weight)
				delete(waiting, part)
				continue
			}
			messages[key] = len(parts[part])
		}
		if w := waiting[part]; w != nil && w.end != end && near(parts[part][w.index].at, r.entry, 0, sameMoment) {
			t := &parts[part][w.index]
			t.count = max(t.count, weight)
			if r.event.Message != 0 {
				messages[[2]int{part, r.event.Message}] = w.index
			}
			delete(waiting, part)
			continue
		}
		waiting[part] = &open{len(parts[part]), end}
		parts[part] = append(parts[part], tick{at: r.entry, count: weight})
	}
	for _, l := range g.lost {
		if l.count > 0 {
			parts[l.entry.Part] = append(parts[l.entry.Part], tick{l.entry, l.count, true})
		}
	}
	best, most := 0, -1
	for part, ticks := range parts {
		if n := total(ticks); n > most || n == most && part < best {
			best, most = part, n
		}
	}
	out := parts[best]
	slices.SortStableFunc(out, func(a, b tick) int { return a.at.Line - b.at.Line })
	return out
}

// burst is one error of the link that functions of one card print, each once:
// it shows in the registers of all of them.
type burst struct {
	first   errorRecord
	printed []*machine.Device
}

func (b *burst) takes(r errorRecord) bool {
	f := &b.first
	if slices.Contains(b.printed, r.device) || !f.device.BDF.SameDevice(r.device.BDF) || !f.event.Details || !r.event.Details ||
		f.event.Status != r.event.Status || !near(f.entry, r.entry, 0, oneError) {
		return false
	}
	b.printed = append(b.printed, r.device)
	return true
}

// oneError is how long the kernel takes to print an error of each function.
const oneError = 10 * kernlog.Second / 1000

func total(ticks []tick) int {
	n := 0
	for _, t := range ticks {
		n += t.count
	}
	return n
}

// densest is the largest number of errors that surely fell inside one span.
// Dropped lines fell between the tick before and their own; the kernel drops
// them within seconds of one another, so alone they always count.
func densest(ticks []tick, span kernlog.Micros) int {
	most, n, first := 0, 0, 0
	within := func(i, j int) bool {
		gap, known := ticks[j].at.Time.Since(ticks[i].at.Time)
		return known && gap <= span
	}
	for i, t := range ticks {
		if !t.at.Time.HasMono && !t.at.Time.HasWall {
			continue
		}
		if t.dropped && i > 0 && !within(i-1, i) {
			most = max(most, t.count)
			n, first = 0, i+1
			continue
		}
		n += t.count
		for first < i && !within(first, i) {
			n -= ticks[first].count
			first++
		}
		most = max(most, n)
	}
	return most
}

// recovery is the end of one recovery from an uncorrected error.
type recovery struct {
	line   int
	port   *machine.Device
	failed bool
}

func (v *view) readRecoveries() {
	each(v, func(_ int, e *kernlog.Entry, r kernlog.Recovery) {
		if r.Step == kernlog.RecoveryFailed || r.Step == kernlog.RecoveryOK {
			if port := v.device(e.Device); port != nil {
				v.recoveries = append(v.recoveries, recovery{e.Line, port, r.Step == kernlog.RecoveryFailed})
			}
		}
	})
}

// failedRecovery reports whether the last recovery above the device had failed
// before the record.
func (v *view) failedRecovery(r errorRecord) bool {
	received := v.device(r.event.Port)
	for i := sort.Search(len(v.recoveries), func(i int) bool { return v.recoveries[i].line >= r.entry.Line }) - 1; i >= 0; i-- {
		if step := v.recoveries[i]; step.port == received || v.mayBeAbove(step.port, r.device) {
			return step.failed
		}
	}
	return false
}
