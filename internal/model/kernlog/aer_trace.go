package kernlog

import "strings"

// The names of the bits of the status registers (PCI Express Base Specification
// 7.8.4): long ones, as the tracepoint and kernels up to 4.17 print them, and
// the short ones of corrected errors.
var (
	correctableNames = map[string]int{
		"Receiver Error": 0, "Bad TLP": 6, "Bad DLLP": 7, "RELAY_NUM Rollover": 8,
		"Replay Timer Timeout": 12, "Advisory Non-Fatal": 13, "Advisory Non-Fatal Error": 13,
		"Corrected Internal Error": 14, "Header Log Overflow": 15,
		"RxErr": 0, "BadTLP": 6, "BadDLLP": 7, "Rollover": 8,
		"Timeout": 12, "NonFatalErr": 13, "CorrIntErr": 14, "HeaderOF": 15,
	}
	uncorrectableNames = map[string]int{
		"Undefined": 0, "Data Link Protocol": 4, "Data Link Protocol Error": 4,
		"Surprise Down Error": 5, "Surprise Link Down": 5, "Poisoned TLP": 12,
		"Flow Control Protocol": 13, "Flow Control Protocol Error": 13,
		"Completion Timeout": 14, "Completer Abort": 15, "Unexpected Completion": 16,
		"Receiver Overflow": 17, "Malformed TLP": 18, "ECRC": 19, "ECRC Error": 19,
		"Unsupported Request": 20, "Unsupported Request Error": 20, "ACS Violation": 21,
		"Uncorrectable Internal Error": 22, "MC Blocked TLP": 23, "AtomicOp Egress Blocked": 24,
		"TLP Prefix Blocked Error": 25, "Poisoned TLP Egress Blocked": 26,
	}
)

// aerTrace reads the tracepoint: "aer_event: BDF (PCIe|CXL) Bus Error:
// severity=S, NAME, NAME, TLP Header=Not available".
func (l *line) aerTrace() Event {
	rest, found := after(l.message, "aer_event: ")
	if !found {
		return nil
	}
	device, rest := cutAddress(rest)
	kind, rest, found := strings.Cut(strings.TrimLeft(rest, " "), " Bus Error: severity=")
	if device == "" || !found {
		return nil
	}
	l.device = device
	e := AERError{Origin: Tracepoint, First: -1, Details: true, CXL: kind == "CXL"}
	severity, rest, _ := strings.Cut(rest, ",")
	names := uncorrectableNames
	switch {
	case severity == "Corrected":
		e.Severity, names = Corrected, correctableNames
	case severity == "Fatal" || severity == "Uncorrected, fatal":
		e.Severity = Fatal
	default:
		e.Severity = NonFatal
	}
	list, header, _ := strings.Cut(rest, "TLP Header=")
	for name := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == '|' }) {
		if bit, known := names[trimSpace(name)]; known {
			e.Status |= 1 << bit
		}
	}
	e.TLP = bracedWords(header)
	return e
}

// bracedWords reads "{0x40000001,0x0000000f,...}".
func bracedWords(text string) []uint32 {
	rest, ok := strings.CutPrefix(text, "{")
	var words []uint32
	for ok && len(words) < 32 {
		var value uint32
		if value, rest, ok = cutHex32(strings.TrimLeft(rest, " ,")); ok {
			words = append(words, value)
		}
	}
	return words
}
