package kernlog

import "strings"

// FirmwareRecord is one PCIe section of an error record that firmware handed
// to the kernel (UEFI Common Platform Error Record, by GHES while running, by
// BERT after a reboot).
type FirmwareRecord struct {
	Source       int    // of "Generic Hardware Error Source: N", -1 unknown
	Counter      int    // the n of "{n}[Hardware Error]", -1 where there is none
	FRU          string // fru_text: the part's name as firmware knows it
	PortType     string // "PCIe end point", "root port", ...
	Device       Address
	Slot         int // -1 unknown
	SecondaryBus int // -1 unknown
	Vendor, ID   uint16
	Class        string // class_code as printed: one kernel reversed its bytes
}

// FirmwareError is a record of firmware that is not about PCIe, or Fatal and
// the end of the machine: "Kernel panic - not syncing: Fatal hardware error!".
type FirmwareError struct {
	Severity     Severity
	Section      string // its section_type, "" for the panic
	PreviousBoot bool
	Panic        bool
}

// FirmwareFirst says that firmware handles hardware errors before the kernel
// sees them (APEI firmware first mode). What it owns is in the OSC events.
type FirmwareFirst struct{}

func (FirmwareError) event() {}
func (FirmwareFirst) event() {}

// hardwareError is a record being read, one section at a time.
type hardwareError struct {
	entry    Entry
	counter  int
	severity Severity // of the record, then of the section
	section  string
	record   FirmwareRecord
	error    AERError
	begun    bool // the section holds more than its head
	previous bool
	deadline int
}

// hardwareTag splits "{n}[Hardware Error]: text" and "[Hardware Error]: text".
func hardwareTag(message string) (counter int, text string, ok bool) {
	counter = -1
	if strings.HasPrefix(message, "{") {
		n, rest, ok := cutDecimal(message[1:])
		if !ok || !strings.HasPrefix(rest, "}") {
			return 0, "", false
		}
		counter, message = int(n), rest[1:]
	}
	text, ok = strings.CutPrefix(message, "[Hardware Error]:")
	return counter, trimSpace(text), ok
}

func firmwareSeverity(word string) Severity {
	switch word, _, _ = strings.Cut(word, ","); word {
	case "corrected":
		return Corrected
	case "recoverable":
		return NonFatal
	case "fatal":
		return Fatal
	}
	return ""
}

// open starts the record, or its next section, at a line.
func (h *hardwareError) open(l *line, counter int) {
	h.entry, h.counter, h.begun, h.section = l.entry(nil), counter, false, ""
	h.record = FirmwareRecord{Source: h.record.Source, Counter: counter, Slot: -1, SecondaryBus: -1}
	h.error = AERError{Origin: Firmware, First: -1}
	if h.previous {
		h.error.Origin = PreviousBoot
	}
}

// piece takes one line of the record.
func (h *hardwareError) piece(text string) {
	key, value, _ := strings.Cut(text, ":")
	value = trimSpace(value)
	switch key {
	case "Hardware error from APEI Generic Hardware Error Source":
		h.record.Source, _ = cutInt(value)
		return
	case "event severity", "type":
		if severity := firmwareSeverity(value); severity != "" {
			h.severity = severity
		}
		return
	case "section_type":
		h.section = value
	case "fru_text":
		h.record.FRU = value
	case "port_type":
		number, name, _ := strings.Cut(value, ",")
		if h.record.PortType = trimSpace(name); name == "" {
			_, h.record.PortType = word(number)
		}
	case "device_id":
		h.record.Device, _ = cutAddress(value)
	case "slot":
		h.record.Slot, _ = cutInt(value)
	case "secondary_bus":
		if bus, _, ok := cutHex(value); ok {
			h.record.SecondaryBus = int(bus & 0xff)
		}
	case "vendor_id":
		if id, _, ok := cutHex(value); ok {
			h.record.Vendor = uint16(id)
		}
		if id, ok := hexAfter(text, "device_id: "); ok {
			h.record.ID = uint16(id)
		}
	case "class_code":
		h.record.Class = value
	case "aer_cor_status":
		h.words(text, "aer_cor_status: ", "aer_cor_mask: ", h.severity == Corrected)
	case "aer_uncor_status":
		h.words(text, "aer_uncor_status: ", "aer_uncor_mask: ", h.severity != Corrected)
	case "aer_uncor_severity":
		if word, ok := hexAfter(text, "aer_uncor_severity: "); ok {
			h.error.UncorSeverity = uint32(word)
		}
	case "TLP Header", "TLP header":
		h.error.TLP, _ = cutTLP(text)
	default:
		if strings.HasPrefix(text, "Error ") {
			if severity, ok := after(text, "type: "); ok {
				if s := firmwareSeverity(severity); s != "" {
					h.severity = s
				}
			}
		}
		return
	}
	h.begun = true
}

// words keeps the pair of registers that belongs to the section's severity.
func (h *hardwareError) words(text, status, mask string, wanted bool) {
	if !wanted {
		return
	}
	if word, ok := hexAfter(text, status); ok {
		h.error.Status, h.error.Details = uint32(word), true
	}
	if word, ok := hexAfter(text, mask); ok {
		h.error.Mask = uint32(word)
	}
}

// done is the entry of the section, if it says anything.
func (h *hardwareError) done() (Entry, bool) {
	if !h.begun {
		return Entry{}, false
	}
	if !strings.HasPrefix(h.section, "PCIe") && h.record.PortType == "" {
		h.entry.Event = FirmwareError{Severity: h.severity, Section: h.section, PreviousBoot: h.previous}
		return h.entry, h.section != ""
	}
	record := h.record
	e := h.error
	e.Severity, e.Vendor, e.ID, e.FirmwareRecord = h.severity, record.Vendor, record.ID, &record
	h.entry.Event, h.entry.Device = e, record.Device
	return h.entry, true
}

// hardwareLine takes a "[Hardware Error]" line into the record that it
// belongs to.
func (s *Scanner) hardwareLine(l *line, counter int, text string) {
	h := s.hardware
	if h != nil && (h.counter != counter || strings.HasPrefix(text, "Hardware error from APEI") ||
		strings.HasPrefix(text, "event severity") && h.begun) {
		s.closeHardware()
		h = nil
	}
	if h == nil {
		h = &hardwareError{previous: s.previousBoot && counter < 0}
		h.record.Source = -1
		h.open(l, counter)
		s.hardware = h
	} else if strings.HasPrefix(text, "Error ") && h.begun || strings.HasPrefix(text, "section_type") && h.section != "" {
		if e, ok := h.done(); ok {
			s.emit(e)
		}
		h.open(l, counter)
	} else {
		h.entry.add(l)
	}
	h.piece(text)
	h.deadline = l.number + recordLines
	s.remind(h.deadline)
}

func (s *Scanner) closeHardware() {
	if s.hardware == nil {
		return
	}
	if e, ok := s.hardware.done(); ok {
		s.emit(e)
	}
	s.hardware = nil
}

// firmwareOf takes the open record of firmware that the driver lines of a
// device repeat, so that one error is one entry.
func (s *Scanner) firmwareOf(device Address, now Timestamp) (Entry, *FirmwareRecord) {
	h := s.hardware
	if h == nil || !h.begun || !h.record.Device.Matches(device) {
		return Entry{}, nil
	}
	if gap, known := now.Since(h.entry.Time); known && gap > recordGap {
		return Entry{}, nil
	}
	e, ok := h.done()
	if !ok {
		return Entry{}, nil
	}
	s.hardware = nil
	aer, ok := e.Event.(AERError)
	if !ok {
		s.emit(e)
		return Entry{}, nil
	}
	return e, aer.FirmwareRecord
}

// firmware reads the single lines around firmware's records.
func (l *line) firmware() Event {
	switch {
	case strings.HasPrefix(l.message, "Kernel panic - not syncing: Fatal hardware error"):
		return FirmwareError{Severity: Fatal, Panic: true}
	case strings.HasPrefix(l.message, "GHES: APEI firmware first mode is enabled"):
		return FirmwareFirst{}
	}
	return nil
}

// aerStatus reads "aer_status: 0x00001000, aer_mask: 0x00006000", with which
// the driver lines of firmware's records begin.
func aerStatus(text string) (AERError, bool) {
	rest, ok := strings.CutPrefix(text, "aer_status: ")
	if !ok {
		return AERError{}, false
	}
	e := AERError{Origin: Firmware, First: -1, Details: true}
	if e.Status, _, ok = cutHex32(rest); !ok {
		return AERError{}, false
	}
	if mask, found := hexAfter(rest, "aer_mask: "); found {
		e.Mask = uint32(mask)
	}
	return e, true
}

// driverLine takes the rest of those lines.
func (e *AERError) driverLine(text string) bool {
	if rest, ok := strings.CutPrefix(text, "aer_layer="); ok {
		layer, agent, _ := strings.Cut(rest, ",")
		switch e.Layer = Layer(trimSpace(layer)); e.Layer {
		case PhysicalLayer, DataLinkLayer, TransactionLayer, Inaccessible:
		case "Data", "Data Link":
			e.Layer = DataLinkLayer
		case "Transaction":
			e.Layer = TransactionLayer
		case "Physical":
			e.Layer = PhysicalLayer
		default:
			e.Layer = ""
		}
		if agent, found := after(agent, "aer_agent="); found {
			e.Agent = agentNamed(agent)
		}
		return true
	}
	if word, ok := hexAfter(text, "aer_uncor_severity: "); ok {
		e.UncorSeverity = uint32(word)
		return true
	}
	return strings.HasPrefix(text, "aer_agent=")
}

// judge gives a record of driver lines the severity that firmware's own record
// did not: only uncorrectable ones print aer_uncor_severity, whose bits tell
// fatal from non-fatal.
func (e *AERError) judge() {
	if e.Origin != Firmware || e.Severity != "" {
		return
	}
	switch {
	case e.UncorSeverity == 0:
		e.Severity = Corrected
	case e.Status&e.UncorSeverity != 0:
		e.Severity = Fatal
	default:
		e.Severity = NonFatal
	}
}
