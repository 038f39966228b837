package kernlog

import "strings"

// Severity is how bad an error was, in the words of sysfs.
type Severity string

// The severities of AER and of firmware's error records.
const (
	Corrected Severity = "corrected"
	NonFatal  Severity = "nonfatal" // uncorrected; firmware's "recoverable"
	Fatal     Severity = "fatal"    // uncorrected
)

// Layer is the layer that detected an error.
type Layer string

// The layers as the kernel prints them. Inaccessible says that the device no
// longer answered, so that status words and header mean nothing.
const (
	PhysicalLayer    Layer = "Physical Layer"
	DataLinkLayer    Layer = "Data Link Layer"
	TransactionLayer Layer = "Transaction Layer"
	Inaccessible     Layer = "Inaccessible"
)

// Agent is the role of the device in the transaction.
type Agent string

// The agents as the kernel prints them.
const (
	Receiver     Agent = "Receiver ID"
	Requester    Agent = "Requester ID"
	Completer    Agent = "Completer ID"
	Transmitter  Agent = "Transmitter ID"
	Unregistered Agent = "Unregistered Agent ID"
)

// Origin is the path on which an error record came.
type Origin string

// The origins of an AERError.
const (
	Native       Origin = "native"        // the kernel's AER or DPC driver
	Firmware     Origin = "firmware"      // APEI (GHES)
	PreviousBoot Origin = "previous boot" // BERT
	Tracepoint   Origin = "tracepoint"    // aer_event, as rasdaemon logs it
)

// AERError is one error record of one device: a native record (the port's
// message, the device's bus error, registers, bits and header), the same from
// firmware, or a port's message alone. Entry.Device is the device that
// detected the error; of a message without details it is the message's
// source, or the port where the source cannot be true.
type AERError struct {
	Severity Severity // "" where the log was filtered and no bit tells
	Layer    Layer    // "" where not printed
	Agent    Agent    // "" where not printed
	Origin   Origin
	CXL      bool

	// Port is the port that received the message, "" where the record began
	// without one (DPC, firmware, a filtered log). Source is the device that
	// the message names, which may be bogus: 00:00.0, or the port itself.
	// Multiple says that more than one error came in. Message is the number
	// of the message's line, 0 for none: both ends of a link may print their
	// record after one message.
	Port     Address
	Source   Address
	Multiple bool
	Message  int

	// Details says that the device's registers were printed. Status and Mask
	// are the words of the severity's kind (correctable or uncorrectable);
	// Status is put together from the bit lines where its own line is
	// missing. First is the bit of the first-error pointer, -1 where no bit
	// is marked: trust it for the cause.
	Details       bool
	Status, Mask  uint32
	First         int
	UncorSeverity uint32 // of firmware's records
	Vendor, ID    uint16

	// TLP is the header of the packet, 4 words or more (flit mode), nil
	// where none was logged.
	TLP []uint32

	// ReportedFirst says that the kernel named this agent as the first of
	// several. Contained says that the record follows a DPC event of its own
	// port.
	ReportedFirst bool
	Contained     bool

	// FirmwareRecord is firmware's record of this error, nil for native ones
	// and where only the driver's lines are there.
	FirmwareRecord *FirmwareRecord
}

// AllOnes reports whether the record was read from a device that no longer
// answers: its bits mean nothing.
func (e AERError) AllOnes() bool {
	if e.Layer == Inaccessible || e.Status == 1<<32-1 {
		return true
	}
	for _, word := range e.TLP {
		if word != 1<<32-1 {
			return false
		}
	}
	return len(e.TLP) > 0
}

// RecoveryStep is one step of the kernel's recovery from an uncorrected error.
type RecoveryStep string

// The steps, in the order in which they come.
const (
	ErrorDetected  RecoveryStep = "error_detected"
	CannotRecover  RecoveryStep = "no error_detected callback"
	MMIOEnabled    RecoveryStep = "mmio_enabled"
	LinkReset      RecoveryStep = "link reset"
	ResetFailed    RecoveryStep = "reset failed"
	SlotReset      RecoveryStep = "slot_reset"
	Resume         RecoveryStep = "resume"
	NothingToDo    RecoveryStep = "no uncorrectable error found"
	RecoveryOK     RecoveryStep = "recovered"
	RecoveryFailed RecoveryStep = "recovery failed"
)

// Recovery is one step of a recovery; Entry.Device is the port that leads it,
// or the device that cannot take part (CannotRecover). Code is the return code
// of LinkReset, negative for a failure.
type Recovery struct {
	Step RecoveryStep
	Code int
}

// PortService says that the kernel drives a service of a port itself: "AER",
// "DPC", "PME" or "EDR". AER that is enabled nowhere belongs to
// firmware, or is off.
type PortService struct {
	Service string
}

func (AERError) event()    {}
func (Recovery) event()    {}
func (PortService) event() {}

// cutSeverity reads the severity words of all kernels.
func cutSeverity(text string) (Severity, string, bool) {
	for _, word := range [...]string{"Corrected", "Correctable"} {
		if rest, ok := strings.CutPrefix(text, word); ok {
			return Corrected, rest, true
		}
	}
	for _, word := range [...]string{"Uncorrected", "Uncorrectable"} {
		rest, ok := strings.CutPrefix(text, word)
		if !ok {
			continue
		}
		rest = strings.TrimLeft(rest, " ")
		if after, ok := strings.CutPrefix(rest, "(Non-Fatal)"); ok {
			return NonFatal, after, true
		}
		if after, ok := strings.CutPrefix(rest, "(Fatal)"); ok {
			return Fatal, after, true
		}
		return NonFatal, rest, false
	}
	return "", text, false
}

// aerMessage reads "[Multiple ]SEVERITY error [message ]received[ from|:]
// SOURCE".
func (l *line) aerMessage(text string) (AERError, bool) {
	e := AERError{Origin: Native, First: -1, Port: l.device, Message: l.number}
	text, e.Multiple = strings.CutPrefix(text, "Multiple ")
	severity, rest, ok := cutSeverity(text)
	if severity == "" || !ok && !l.partial {
		return e, false
	}
	e.Severity = severity
	rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " "), "error")
	if !ok {
		return e, l.partial && severity != ""
	}
	rest = strings.TrimLeft(trimPrefix(strings.TrimLeft(rest, " "), "message"), " ")
	rest, ok = strings.CutPrefix(rest, "received")
	if !ok {
		return e, l.partial
	}
	rest = strings.TrimLeft(trimPrefix(strings.TrimLeft(trimPrefix(rest, ":"), " "), "from"), " ")
	if id, _, ok := cutHex(trimPrefix(rest, "id=")); ok && strings.HasPrefix(rest, "id=") && id <= 0xffff {
		e.Source = RequesterAddress(l.device.Domain(), uint16(id))
		return e, true
	}
	e.Source, _ = cutAddress(rest)
	return e, e.Source != "" || l.partial
}

// busError reads "(PCIe|CXL) Bus Error: severity=S, type=L, [id=hhhh](AGENT)".
func (l *line) busError(text string) (AERError, bool) {
	e := AERError{Origin: Native, First: -1, Details: true}
	rest, ok := strings.CutPrefix(text, "PCIe Bus Error:")
	if !ok {
		if rest, ok = strings.CutPrefix(text, "CXL Bus Error:"); !ok {
			return e, false
		}
		e.CXL = true
	}
	rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " "), "severity=")
	if !ok {
		return e, l.partial
	}
	e.Severity, rest, ok = cutSeverity(rest)
	if e.Severity == "" || !ok && !l.partial {
		return e, false
	}
	kind, found := after(rest, "type=")
	if !found {
		return e, l.partial
	}
	layer, rest, found := strings.Cut(kind, ",")
	e.Layer = Layer(layer)
	switch e.Layer {
	case PhysicalLayer, DataLinkLayer, TransactionLayer, Inaccessible:
	default:
		e.Layer = ""
		return e, l.partial
	}
	_, agent, open := strings.Cut(rest, "(")
	agent, _, closed := strings.Cut(agent, ")")
	if !found || !open || !closed {
		return e, l.partial
	}
	e.Agent = agentNamed(agent)
	return e, true
}

// agentNamed completes the agent's name: some kernels say "(Receiver)".
func agentNamed(name string) Agent {
	name = trimSpace(name)
	if name != "" && !strings.HasSuffix(name, " ID") {
		name += " ID"
	}
	return Agent(name)
}

// statusWords reads "device [vvvv:dddd] error status/mask=hhhhhhhh/hhhhhhhh".
func (e *AERError) statusWords(text string) bool {
	rest, ok := strings.CutPrefix(text, "device [")
	if !ok {
		return false
	}
	vendor, rest, ok := cutHex(rest)
	if !ok || vendor > 0xffff || !strings.HasPrefix(rest, ":") {
		return false
	}
	id, rest, ok := cutHex(rest[1:])
	if !ok || id > 0xffff {
		return false
	}
	e.Vendor, e.ID = uint16(vendor), uint16(id)
	words, found := after(rest, "status/mask=")
	if !found {
		return true // wrapped: the bit lines give the status
	}
	status, rest, ok := cutHex32(words)
	if !ok {
		return true
	}
	e.Status = status
	if strings.HasPrefix(rest, "/") {
		e.Mask, _, _ = cutHex32(rest[1:])
	}
	return true
}

// bit reads "[nn] NAME [(First)]".
func (e *AERError) bit(text string) bool {
	rest, ok := strings.CutPrefix(text, "[")
	if !ok {
		return false
	}
	n, rest, ok := cutDecimal(strings.TrimLeft(rest, " "))
	if !ok || n > 31 || !strings.HasPrefix(rest, "]") {
		return false
	}
	name := trimSpace(rest[1:])
	if name == "" || !('A' <= name[0] && name[0] <= 'Z') {
		return false
	}
	e.Status |= 1 << n
	name, first := strings.CutSuffix(name, "(First)")
	if first {
		e.First = int(n)
	}
	if _, corrected := correctableNames[trimSpace(name)]; corrected && e.Severity == "" {
		e.Severity = Corrected
	}
	return true
}

// cutTLP reads the words after "TLP Header:" or "TLP header:".
func cutTLP(text string) ([]uint32, bool) {
	rest, ok := strings.CutPrefix(text, "TLP Header:")
	if !ok {
		if rest, ok = strings.CutPrefix(text, "TLP header:"); !ok {
			return nil, false
		}
	}
	var words []uint32
	for len(words) < 32 {
		value, after, ok := cutHex32(strings.TrimLeft(rest, " "))
		if !ok {
			break
		}
		words, rest = append(words, value), after
	}
	return words, true
}

// recovery reads the lines of pcie_do_recovery.
func (l *line) recovery() Event {
	text := strings.TrimLeft(trimPrefix(l.text, "AER: "), " ")
	if rest, ok := strings.CutPrefix(text, "broadcast "); ok {
		switch step, _ := word(rest); RecoveryStep(step) {
		case ErrorDetected, MMIOEnabled, SlotReset, Resume:
			return Recovery{Step: RecoveryStep(step)}
		}
		return nil
	}
	switch {
	case strings.HasPrefix(text, "can't recover"), strings.HasPrefix(text, "device has no AER-aware driver"):
		return Recovery{Step: CannotRecover}
	case strings.HasPrefix(text, "subordinate device reset failed"):
		return Recovery{Step: ResetFailed, Code: -1}
	case strings.HasPrefix(text, "No uncorrectable error found"):
		return Recovery{Step: NothingToDo}
	case strings.HasPrefix(text, "Device recovery "), strings.HasPrefix(text, "device recovery "):
		verdict, _ := after(text, "ecovery ")
		switch {
		case strings.HasPrefix(verdict, "successful"):
			return Recovery{Step: RecoveryOK}
		case strings.HasPrefix(verdict, "fail"):
			return Recovery{Step: RecoveryFailed, Code: -1}
		}
	case strings.Contains(text, "Port link has been reset"):
		e := Recovery{Step: LinkReset}
		if code, found := after(text, "reset ("); found {
			code, negative := strings.CutPrefix(code, "-")
			if e.Code, _ = cutInt(code); negative {
				e.Code = -e.Code
			}
		}
		return e
	case strings.HasPrefix(text, "link reset at upstream device "):
		return Recovery{Step: ResetFailed, Code: -1}
	}
	return nil
}

// portService reads "AER: enabled with IRQ n" and its like; up to 4.17 the
// service stands before the device: "aer 0000:00:1c.0:pcie002: AER enabled with
// IRQ n".
func (l *line) portService() Event {
	for _, c := range [...]struct{ service, text string }{
		{"AER", "AER: enabled with IRQ "},
		{"AER", "AER enabled with IRQ "},
		{"DPC", "DPC: enabled with IRQ "},
		{"DPC", "DPC: error containment capabilities"},
		{"DPC", "DPC error containment capabilities"},
		{"PME", "PME: Signaling with IRQ "},
		{"PME", "Signaling PME "},
		{"EDR", "EDR: Notify handler installed"},
	} {
		if strings.HasPrefix(l.text, c.text) {
			return PortService{Service: c.service}
		}
	}
	return nil
}
