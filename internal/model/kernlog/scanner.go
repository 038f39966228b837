package kernlog

import (
	"bytes"
	"strings"
)

// Scanner reads a log as a stream. Feed it with Write or Line and end with
// Flush. It keeps a few records that wait for more lines, and no more, so its
// memory does not grow with the log. A Scanner is for one text.
type Scanner struct {
	emit  func(Entry)
	stats Stats
	clock clock
	tail  []byte // of a line that Write has not seen the end of

	line    line  // the one being read
	held    *line // a line that may be wrapped, waiting for the next
	joined  int   // how many lines it was put together from
	report  bool  // the text is an nvidia-bug-report
	ruled   bool  // the line before was a rule between its sections
	section string
	skip    bool // the section is no kernel log

	reminder     int // the first deadline of an open record, 0 for none
	ports        []*aerPort
	records      []*aerRecord
	dpc          *dpcRecord
	hardware     *hardwareError
	probe        *probeFailure
	previousBoot bool   // BERT: the records without number are of the boot before
	rootBus      string // of the ACPI host bridge whose _OSC lines follow
}

// Stats counts what a Scanner saw.
type Stats struct {
	Lines   int
	Events  int
	Cut     int // lines cut at MaxLine
	Ignored int // lines about PCIe that are known to say nothing
	Unknown int // lines about PCIe that were not understood
}

// NewScanner gives a Scanner that hands each entry to emit. Entries come when
// they are complete: one of several lines after the line that completes it, at
// most a few dozen lines late, so their Line numbers may step back.
func NewScanner(emit func(Entry)) *Scanner {
	s := new(Scanner)
	s.emit = func(e Entry) {
		s.stats.Events++
		emit(e)
	}
	return s
}

// Stats is what was seen so far.
func (s *Scanner) Stats() Stats { return s.stats }

// Write takes the next bytes of the text; lines may be split over calls. It
// never fails.
func (s *Scanner) Write(p []byte) (int, error) {
	n := len(p)
	if len(s.tail) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			s.keep(p)
			return n, nil
		}
		s.keep(p[:end])
		s.lastLine()
		p = p[end+1:]
	}
	last := bytes.LastIndexByte(p, '\n')
	s.keep(p[last+1:])
	for text := string(p[:last+1]); text != ""; {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		s.Line(line)
	}
	return n, nil
}

// keep remembers the beginning of a line, one byte more than is used so that
// Line sees that it is too long.
func (s *Scanner) keep(p []byte) {
	s.tail = append(s.tail, p[:min(len(p), MaxLine+1-len(s.tail))]...)
}

// lastLine takes the line in the tail.
func (s *Scanner) lastLine() {
	text := string(s.tail)
	s.tail = s.tail[:0]
	s.Line(text)
}

// Flush completes what waits for more lines. More text may follow.
func (s *Scanner) Flush() {
	if len(s.tail) > 0 {
		s.lastLine()
	}
	s.finish()
}

// finish completes all records: what follows does not belong to them.
func (s *Scanner) finish() {
	s.release()
	s.complete(1<<63 - 1)
}

// Line takes one line without its newline.
func (s *Scanner) Line(text string) {
	s.stats.Lines++
	if len(text) > MaxLine {
		text = text[:MaxLine]
		s.stats.Cut++
	}
	if s.reminder != 0 && s.stats.Lines > s.reminder {
		s.complete(s.stats.Lines)
	}
	if s.reportLine(text) {
		s.release()
		return
	}
	cleaned := clean(text)
	c := uncarry(cleaned)
	if c.fields {
		return
	}
	boot := s.clock.boot
	now := s.clock.tick(c.stamp, strings.HasPrefix(c.text, bootMark))
	if s.clock.boot != boot {
		s.finish()
		s.previousBoot, s.rootBus = false, ""
	}
	worth := interesting(c.text, c.program)
	if s.held != nil && s.join(c, worth, c.text == cleaned) || !worth {
		return
	}
	// What stays must not pin the caller's text, of which it is a small part.
	raw := strings.Clone(cleaned)
	l := &s.line
	*l = line{
		number: s.stats.Lines, time: now, part: s.clock.part, section: s.section,
		raw: raw, message: raw[len(raw)-len(c.text):], program: strings.Clone(c.program),
	}
	l.locate()
	if s.read(l) {
		return
	}
	if wrappable(l) {
		held := *l
		s.held, s.joined = &held, 1
		return
	}
	s.count(l)
}

// count puts a line that gave no event where the statistics want it.
func (s *Scanner) count(l *line) {
	if !l.aboutPCIe() {
		return
	}
	if ignored(l) != "" {
		s.stats.Ignored++
	} else {
		s.stats.Unknown++
	}
}

const joinedLines = 3

// wrappable reports whether a line that nothing understood may go on in the
// next one.
func wrappable(l *line) bool {
	return len(l.text) < 200 && (l.device != "" || hasAny(l.message, "pci_bus ", "acpi ")) && ignored(l) == ""
}

// join tries to put a line to the held one, which a mail may have wrapped in
// front of it. That is clear only where the line has neither carrier nor device
// of its own (bare: nothing was taken off it) and the two together say what
// neither says alone.
func (s *Scanner) join(next carried, worth, bare bool) bool {
	held := s.held
	rest := trimSpace(next.text)
	if next.carrier || rest == "" || bare && ownDevice(rest) || len(held.raw)+1+len(rest) > MaxLine {
		s.release()
		return false
	}
	whole := *held
	whole.raw = held.raw + " " + rest
	whole.message = held.message + " " + rest
	whole.text = strings.TrimRight(held.text, " ") + " " + rest
	if s.read(&whole) {
		s.held = nil
		return true
	}
	if s.joined++; s.joined < joinedLines && !worth {
		s.held = &whole
		return true
	}
	s.release()
	return false
}

// ownDevice reports whether a line is about a device, rather than beginning
// with an address that ends the line before it.
func ownDevice(text string) bool {
	start, end := deviceAt(text)
	return start > 0 || end > 0 && end < len(text) && text[end] == ':'
}

// release gives up waiting for the rest of the held line and takes from it
// what is there.
func (s *Scanner) release() {
	l := s.held
	if l == nil {
		return
	}
	s.held = nil
	if l.partial = true; !s.read(l) {
		s.count(l)
	}
}

// read tries the parsers on a line and reports whether one understood it.
func (s *Scanner) read(l *line) bool {
	if counter, text, ok := hardwareTag(l.message); ok {
		s.hardwareLine(l, counter, text)
		return true
	}
	if l.program != "" {
		return s.take(l, l.aerTrace(), l.boot(), l.loss())
	}
	if l.device != "" && (s.aerLine(l) || s.dpcLine(l)) {
		return true
	}
	if s.probeLine(l) {
		return true
	}
	if strings.HasPrefix(l.message, "BERT: Error records from previous boot") {
		s.previousBoot = true
		return true
	}
	for _, parse := range parsersOf(l) {
		e := parse(l)
		if e == nil {
			continue
		}
		switch found := e.(type) {
		case RootBridge:
			s.rootBus = found.Bus
		case OSC:
			found.Bus = s.rootBus
			e = found
		}
		s.emit(l.entry(e))
		return true
	}
	return false
}

// take emits the first of events that is one.
func (s *Scanner) take(l *line, events ...Event) bool {
	for _, e := range events {
		if e != nil {
			s.emit(l.entry(e))
			return true
		}
	}
	return false
}

// remind makes sure that complete runs after a line.
func (s *Scanner) remind(deadline int) {
	if s.reminder == 0 || deadline < s.reminder {
		s.reminder = deadline
	}
}

// complete hands on the records whose deadline lies before a line.
func (s *Scanner) complete(now int) {
	s.reminder = 0
	for i := 0; i < len(s.records); {
		if r := s.records[i]; r.deadline < now {
			s.closeRecord(r)
		} else {
			s.remind(r.deadline)
			i++
		}
	}
	for i := 0; i < len(s.ports); {
		if p := s.ports[i]; p.deadline < now {
			s.closePort(i)
		} else {
			s.remind(p.deadline)
			i++
		}
	}
	if s.dpc != nil && s.dpc.deadline < now {
		s.closeDPC()
	} else if s.dpc != nil {
		s.remind(s.dpc.deadline)
	}
	if s.hardware != nil && s.hardware.deadline < now {
		s.closeHardware()
	} else if s.hardware != nil {
		s.remind(s.hardware.deadline)
	}
}

// reportLine follows the sections of an nvidia-bug-report and reports whether
// the line is none of a kernel log.
func (s *Scanner) reportLine(text string) bool {
	if strings.HasPrefix(text, reportRule) && strings.Trim(text, "_\r\n ") == "" {
		s.ruled = true
		return true
	}
	if s.ruled {
		if title := trimSpace(trimPrefix(trimSpace(strings.TrimRight(text, "\r\n")), "*** ")); title != "" {
			s.ruled = false
			if strings.HasPrefix(title, "Start of NVIDIA bug report") {
				s.report = true
			}
			if s.report {
				s.finish()
				s.clock.start()
				s.section = strings.Clone(title[:min(len(title), 256)])
				s.skip = !logSection(title)
			}
			return s.report
		}
		return true
	}
	return s.skip
}

const reportRule = "____________________________________________"

// logSection reports whether a section holds a kernel log, by its title.
func logSection(title string) bool {
	for _, mark := range [...]string{
		"dmesg", "journalctl", "kernel log", "/var/log/messages", "/var/log/kern", "/var/log/syslog",
	} {
		if strings.Contains(title, mark) {
			return true
		}
	}
	return false
}
