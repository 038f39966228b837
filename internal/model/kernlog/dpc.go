package kernlog

import "strings"

// Trigger is why Downstream Port Containment cut the link.
type Trigger string

// The triggers of the DPC status register (PCI Express Base Specification
// 7.9.14.4).
const (
	UnmaskedUncorrectable Trigger = "unmasked uncorrectable error"
	ErrNonFatal           Trigger = "ERR_NONFATAL"
	ErrFatal              Trigger = "ERR_FATAL"
	RPPIO                 Trigger = "RP PIO error"
	Software              Trigger = "software trigger"
	ReservedTrigger       Trigger = "reserved"
)

// DPC is one containment: the port (Entry.Device) cut off what is below it.
type DPC struct {
	Status  uint16 // the DPC status register
	Trigger Trigger

	// Source is who sent the ERR_NONFATAL or ERR_FATAL message, "" for the
	// other triggers.
	Source Address

	// RPPIO* are the root port's registers of programmed I/O, 0 where not
	// printed: UR_CPL, CA_CPL and CTO of configuration, I/O and memory
	// requests in three bytes.
	RPPIOStatus, RPPIOMask, RPPIOSeverity, RPPIOSysError, RPPIOException uint32
	TLP                                                                  []uint32
}

// EDRStep is one step of Error Disconnect Recover: DPC owned by firmware.
type EDRStep string

// The steps of EDR.
const (
	EDRReceived  EDRStep = "event received"
	EDRReported  EDRStep = "device reported"
	EDRRecovered EDRStep = "port recovered"
	EDRFailed    EDRStep = "recovery failed"
	EDRStatus    EDRStep = "status sent"
)

// EDR is one step; Port is the port that was contained, "" for EDRReceived.
type EDR struct {
	Step   EDRStep
	Port   Address
	Status int // of EDRStatus: 0x80 recovered, 0x81 failed
}

func (DPC) event() {}
func (EDR) event() {}

// triggerOf decodes bits 2:1 and 6:5 of the status register.
func triggerOf(status uint16) Trigger {
	switch status >> 1 & 3 {
	case 0:
		return UnmaskedUncorrectable
	case 1:
		return ErrNonFatal
	case 2:
		return ErrFatal
	}
	switch status >> 5 & 3 {
	case 0:
		return RPPIO
	case 1:
		return Software
	}
	return ReservedTrigger
}

// containment reads "DPC: containment event, status:0x1f01 source:0x0000" and
// "..., status:0x000d, ERR_FATAL received from BDF".
func (l *line) containment() (DPC, bool) {
	rest, ok := strings.CutPrefix(l.text, "DPC: containment event")
	if !ok {
		return DPC{}, false
	}
	status, found := hexAfter(rest, "status:")
	if !found || status > 0xffff {
		return DPC{}, l.partial
	}
	e := DPC{Status: uint16(status), Trigger: triggerOf(uint16(status))}
	if e.Trigger != ErrNonFatal && e.Trigger != ErrFatal {
		return e, true
	}
	if source := addressAfter(rest, "received from "); source != "" {
		e.Source = source
	} else if id, found := hexAfter(rest, "source:"); found && id <= 0xffff && id != 0 {
		e.Source = RequesterAddress(l.device.Domain(), uint16(id))
	}
	return e, true
}

// triggerNamed reads "DPC: ERR_FATAL detected", the trigger in words: of a
// containment whose head was filtered out.
func triggerNamed(text string) Trigger {
	text, ok := strings.CutPrefix(text, "DPC: ")
	name, _, detected := strings.Cut(text, " detected")
	if !ok || !detected {
		return ""
	}
	switch trigger := Trigger(name); trigger {
	case UnmaskedUncorrectable, ErrNonFatal, ErrFatal, RPPIO, Software:
		return trigger
	case "reserved error":
		return ReservedTrigger
	}
	return ""
}

// piece takes another line of the containment.
func (e *DPC) piece(text string) bool {
	text, _ = strings.CutPrefix(text, "DPC: ")
	text = strings.TrimLeft(text, " ")
	switch {
	case strings.HasSuffix(text, " detected"), strings.HasPrefix(text, "unmasked uncorrectable error"):
		return true // the trigger in words; the status register has it
	case strings.HasPrefix(text, "rp_pio_status: "):
		e.RPPIOStatus = register(text, "rp_pio_status: ")
		e.RPPIOMask = register(text, "rp_pio_mask: ")
	case strings.HasPrefix(text, "RP PIO severity="):
		e.RPPIOSeverity = register(text, "severity=")
		e.RPPIOSysError = register(text, "syserror=")
		e.RPPIOException = register(text, "exception=")
	case strings.HasPrefix(text, "TLP "):
		words, ok := cutTLP(text)
		if ok {
			e.TLP = words
		}
		return ok
	case strings.HasPrefix(text, "["):
		var bit AERError // a name of the RP PIO status
		return bit.bit(text)
	default:
		return false
	}
	return true
}

func register(text, mark string) uint32 {
	word, _ := hexAfter(text, mark)
	return uint32(word)
}

// edr reads the lines of Error Disconnect Recover.
func (l *line) edr() Event {
	rest, ok := strings.CutPrefix(l.text, "EDR: ")
	if !ok {
		return nil
	}
	switch {
	case strings.HasPrefix(rest, "EDR event received"):
		return EDR{Step: EDRReceived}
	case strings.HasPrefix(rest, "Reported EDR dev: "):
		return EDR{Step: EDRReported, Port: addressAfter(rest, "dev: ")}
	case strings.HasPrefix(rest, "DPC port successfully recovered"):
		return EDR{Step: EDRRecovered, Port: l.device}
	case strings.HasPrefix(rest, "DPC port recovery failed"):
		return EDR{Step: EDRFailed, Port: l.device}
	case strings.HasPrefix(rest, "Status for "):
		status, _ := hexAfter(rest, ": ")
		return EDR{Step: EDRStatus, Port: addressAfter(rest, "Status for "), Status: int(status & 0xffff)}
	}
	return nil
}
