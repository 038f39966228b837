package kernlog

import "strings"

// Records come in pieces over several lines: the port's message, then for each
// device a bus error, its registers, its bits, the header. Pieces of several
// devices and other lines stand between them, so open records wait a little.
const (
	recordLines = 32         // a record that got no piece for so many lines is complete
	recordGap   = 1 * Second // or when the next line of its kind comes so much later
	openRecords = 8          // at most; the oldest is completed for a new one
)

// aerRecord is a record of one device, waiting for pieces.
type aerRecord struct {
	entry    Entry
	error    AERError
	device   Address
	deadline int
}

// aerPort is a port's message, waiting for the records of devices.
type aerPort struct {
	entry    Entry
	error    AERError
	answered bool
	deadline int
}

// aerLine takes a line that may be part of an error record.
func (s *Scanner) aerLine(l *line) bool {
	text, _ := strings.CutPrefix(l.text, "AER:")
	text = strings.TrimLeft(text, " ")
	if text == "" {
		return false
	}
	switch text[0] {
	case 'M', 'C', 'U':
		if e, ok := l.aerMessage(text); ok {
			s.openPort(l, e)
			return true
		}
		if e, ok := l.busError(text); ok {
			s.openRecord(l, e)
			return true
		}
		return false
	case 'P':
		if e, ok := l.busError(text); ok {
			s.openRecord(l, e)
			return true
		}
		return false
	case 'a':
		if e, ok := aerStatus(text); ok {
			entry, record := s.firmwareOf(l.device, l.time)
			if record != nil {
				e.FirmwareRecord = record
				e.Origin = entry.Event.(AERError).Origin
				e.Severity = entry.Event.(AERError).Severity
			}
			r := s.openRecord(l, e)
			if record != nil {
				r.entry.Raw = append(entry.Raw[:min(len(entry.Raw), MaxRaw/2)], r.entry.Raw...)
				r.entry.Line, r.entry.Time = entry.Line, entry.Time
			}
			return true
		}
	case 'f', 'c':
		if rest, ok := strings.CutPrefix(text, "found no error details for "); ok {
			s.noDetails(l, addressOrPort(rest, l.device))
			return true
		}
		if rest, ok := strings.CutPrefix(text, "can't find device of ID"); ok {
			if id, _, ok := cutHex(rest); ok && id <= 0xffff {
				s.noDetails(l, RequesterAddress(l.device.Domain(), uint16(id)))
				return true
			}
			return l.partial
		}
	}
	return s.piece(l, text)
}

func addressOrPort(text string, port Address) Address {
	if address, _ := cutAddress(text); address != "" {
		return address
	}
	return port
}

// piece adds a line to the open record of its device; one that fits none
// begins a record, as in a log that was filtered.
func (s *Scanner) piece(l *line, text string) bool {
	var probe AERError
	tlp, isTLP := cutTLP(text)
	words := !isTLP && probe.statusWords(text)
	bit := !isTLP && !words && probe.bit(text)
	driver := !isTLP && !words && !bit && probe.driverLine(text)
	first := strings.HasPrefix(text, "Error of this Agent")
	if !isTLP && !words && !bit && !driver && !first {
		return false
	}
	if s.dpc != nil && s.dpc.entry.Device == l.device && s.record(l.device) == nil && (bit || isTLP) {
		return false // RP PIO bits and header of the containment
	}
	r := s.record(l.device)
	if r != nil && words && r.error.Vendor != 0 {
		s.closeRecord(r)
		r = nil
	}
	if r == nil {
		// Bits and headers alone prove no error of this grammar.
		if !words && !driver {
			return bit && l.driver != "" && s.loose(l, probe) || isTLP || first
		}
		r = s.openRecord(l, AERError{Origin: Native, First: -1, Details: true})
		if driver {
			r.error.Origin = Firmware
		}
	} else {
		r.entry.add(l)
	}
	switch {
	case isTLP:
		r.error.TLP = tlp
	case words:
		named := r.error.Status
		r.error.statusWords(text)
		r.error.Status |= named
		r.error.Details = true
	case bit:
		r.error.bit(text)
	case driver:
		r.error.driverLine(text)
	case first:
		r.error.ReportedFirst = true
	}
	r.deadline = l.number + recordLines
	s.remind(r.deadline)
	return true
}

// loose begins a record with a bit line that lost its head.
func (s *Scanner) loose(l *line, probe AERError) bool {
	probe.Origin, probe.Details = Native, true
	s.openRecord(l, probe)
	return true
}

func (s *Scanner) record(device Address) *aerRecord {
	for i := range s.records {
		if s.records[i].device == device {
			return s.records[i]
		}
	}
	return nil
}

// openRecord begins the record of a device at a line, under the message of a
// port that may have announced it.
func (s *Scanner) openRecord(l *line, e AERError) *aerRecord {
	if r := s.record(l.device); r != nil {
		s.closeRecord(r)
	}
	if len(s.records) == openRecords {
		s.closeRecord(s.records[0])
	}
	e.Contained = s.dpc != nil && s.dpc.entry.Device == l.device
	raw := []string{l.raw}
	if p := s.announced(l, e); p != nil {
		p.answered = true
		raw = []string{p.entry.Raw[0], l.raw}
		e.Port, e.Source, e.Multiple, e.Message = p.error.Port, p.error.Source, p.error.Multiple, p.error.Message
	}
	r := &aerRecord{entry: l.entry(nil), error: e, device: l.device, deadline: l.number + recordLines}
	r.entry.Raw = raw
	s.records = append(s.records, r)
	s.remind(r.deadline)
	return r
}

// announced is the open message that a device's record answers: one that names
// the device, else the latest. A contained port printed none.
func (s *Scanner) announced(l *line, e AERError) *aerPort {
	if e.Origin != Native || e.Contained {
		return nil
	}
	var best *aerPort
	for _, p := range s.ports {
		if gap, known := l.time.Since(p.entry.Time); known && gap > recordGap {
			continue
		}
		if e.Severity != "" && p.error.Severity != e.Severity {
			continue
		}
		if best == nil || p.error.Source == l.device || best.error.Source != l.device {
			best = p
		}
	}
	return best
}

// openPort keeps a port's message until its records are complete.
func (s *Scanner) openPort(l *line, e AERError) {
	for i, p := range s.ports {
		if p.error.Port == l.device {
			s.closePort(i)
			break
		}
	}
	if len(s.ports) == openRecords {
		s.closePort(0)
	}
	for i := 0; i < len(s.records); {
		if s.records[i].error.Port == l.device {
			s.closeRecord(s.records[i])
		} else {
			i++
		}
	}
	s.ports = append(s.ports, &aerPort{entry: l.entry(nil), error: e, deadline: l.number + recordLines})
	s.remind(l.number + recordLines)
	if strings.Contains(l.text, "no details found") {
		s.closePort(len(s.ports) - 1)
	}
}

// noDetails completes the message that a line without registers answers.
func (s *Scanner) noDetails(l *line, device Address) {
	for i := len(s.ports) - 1; i >= 0; i-- {
		p := s.ports[i]
		if p.error.Port == l.device && !p.answered {
			p.entry.add(l)
			s.closePort(i)
			return
		}
	}
	e := l.entry(AERError{Origin: Native, First: -1, Port: l.device, Source: device, Message: l.number})
	e.about(device)
	s.emit(e)
}

// about moves an entry from the port that printed its line to a device.
func (e *Entry) about(device Address) {
	if e.Device != device {
		e.Device, e.Driver = device, ""
	}
}

// closePort hands a message on, unless records of devices say it all.
func (s *Scanner) closePort(i int) {
	p := s.ports[i]
	s.ports = append(s.ports[:i], s.ports[i+1:]...)
	if p.answered {
		return
	}
	p.entry.Event = p.error
	if source := p.error.Source; source != "" && !strings.HasSuffix(string(source), ":00:00.0") {
		p.entry.about(source)
	}
	s.emit(p.entry)
}

func (s *Scanner) closeRecord(r *aerRecord) {
	for i := range s.records {
		if s.records[i] == r {
			s.records = append(s.records[:i], s.records[i+1:]...)
			break
		}
	}
	r.error.judge()
	r.entry.Event = r.error
	s.emit(r.entry)
}

// dpcRecord is a containment, waiting for the rest of its lines.
type dpcRecord struct {
	entry    Entry
	event    DPC
	deadline int
}

// dpcLine takes a line that may be part of a containment.
func (s *Scanner) dpcLine(l *line) bool {
	if e, ok := l.containment(); ok {
		s.openDPC(l, e)
		return true
	}
	if d := s.dpc; d != nil && d.entry.Device == l.device && d.event.piece(l.text) {
		d.entry.add(l)
		return true
	}
	if trigger := triggerNamed(l.text); trigger != "" {
		s.openDPC(l, DPC{Trigger: trigger})
		return true
	}
	return false
}

func (s *Scanner) openDPC(l *line, e DPC) {
	s.closeDPC()
	s.dpc = &dpcRecord{entry: l.entry(nil), event: e, deadline: l.number + recordLines}
	s.remind(s.dpc.deadline)
}

func (s *Scanner) closeDPC() {
	if s.dpc == nil {
		return
	}
	s.dpc.entry.Event = s.dpc.event
	s.emit(s.dpc.entry)
	s.dpc = nil
}
