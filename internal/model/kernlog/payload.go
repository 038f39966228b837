package kernlog

import "strings"

// PayloadChange is what happened to a device's Max Payload Size.
type PayloadChange string

// The changes. PayloadSet is information; the other three say that a device
// on the path may send more than a port accepts.
const (
	PayloadSet       PayloadChange = "set"
	PayloadSetBridge PayloadChange = "set upstream" // the bridge was lowered to fit
	PayloadMismatch  PayloadChange = "mismatch"     // "Max Payload Size 128, but upstream set to 256"
	PayloadFailed    PayloadChange = "can't set"
)

// Payload is a Max Payload Size, in bytes, of Entry.Device (of PayloadSetBridge
// that of the bridge above it); 0 for what was not printed.
type Payload struct {
	Change   PayloadChange
	Size     int // now; of PayloadFailed what was wanted
	Was      int
	Max      int     // what the device can
	Upstream Address // of PayloadMismatch
	Above    int     // of PayloadMismatch: what upstream is set to
}

// ASPMChange is what the kernel did about link power states.
type ASPMChange string

// The changes.
const (
	ASPMCommonClock   ASPMChange = "common clock reconfigured" // harmless
	ASPMPre11         ASPMChange = "disabled on pre-1.1 device"
	ASPMNoFirmware    ASPMChange = "firmware says unsupported"
	ASPMDisabled      ASPMChange = "disabled"
	ASPMRetrainFailed ASPMChange = "link not retrained"
)

// ASPM is one such change; Entry.Device is "" where it holds for the host.
type ASPM struct {
	Change ASPMChange
}

func (Payload) event() {}
func (ASPM) event()    {}

// payload reads the lines about Max Payload Size.
func (l *line) payload() Event {
	text := l.text
	e := Payload{Change: PayloadSet}
	switch {
	case strings.HasPrefix(text, "Upstream bridge's Max Payload Size set to "):
		e.Change = PayloadSetBridge
	case strings.HasPrefix(text, "can't set Max Payload Size to "):
		e.Change = PayloadFailed
		e.Size, _ = intAfter(text, "Size to ")
		return e
	case strings.HasPrefix(text, "Max Payload Size set to "):
	case strings.HasPrefix(text, "Max Payload Size "):
		size, rest, ok := cutDecimal(text[len("Max Payload Size "):])
		above, found := after(rest, "but upstream ")
		if !ok || !found {
			return nil
		}
		e.Change, e.Size = PayloadMismatch, int(size)
		e.Upstream, above = cutAddress(above)
		e.Above, _ = intAfter(above, "set to ")
		return e
	default:
		return nil
	}
	// "256 (was 128, max 512)"; up to 3.x " 256/ 512 (was  128), Max Read Rq  512"
	_, rest, _ := strings.Cut(text, "set to ")
	size, rest, ok := cutDecimal(strings.TrimLeft(rest, " "))
	if !ok {
		return nil
	}
	e.Size = int(size)
	if strings.HasPrefix(rest, "/") {
		e.Max, rest = cutInt(strings.TrimLeft(rest[1:], " "))
	}
	if e.Was, ok = intAfter(rest, "(was "); !ok && !l.partial {
		return nil
	}
	if limit, found := intAfter(rest, "max "); found {
		e.Max = limit
	} else if e.Max == 0 && !l.partial {
		return nil
	}
	return e
}

// aspm reads the lines about ASPM of a device or of the host.
func (l *line) aspm() Event {
	text := l.text
	if l.device == "" {
		text = l.message
	}
	if strings.HasPrefix(text, "ACPI FADT declares the system doesn't support PCIe ASPM") {
		return ASPM{ASPMNoFirmware}
	}
	if l.device == "" {
		if strings.HasPrefix(text, "PCIe ASPM is disabled") {
			return ASPM{ASPMDisabled}
		}
		return nil
	}
	text = trimPrefix(text, "ASPM: ")
	switch {
	case strings.HasPrefix(text, "current common clock configuration"):
		return ASPM{ASPMCommonClock}
	case strings.HasPrefix(text, "disabling ASPM on pre-1.1"):
		return ASPM{ASPMPre11}
	case strings.HasPrefix(text, "Could not configure common clock"):
		return ASPM{ASPMRetrainFailed}
	case strings.HasPrefix(text, "can't disable ASPM; OS doesn't have ASPM control"):
		return ASPM{ASPMNoFirmware}
	case strings.HasPrefix(text, "Disabling ASPM"), strings.HasPrefix(text, "disabling ASPM"):
		return ASPM{ASPMDisabled}
	}
	return nil
}
