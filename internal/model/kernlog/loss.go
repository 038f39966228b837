package kernlog

import "strings"

// LossScope is which lines are missing.
type LossScope string

// The scopes.
const (
	LostAER   LossScope = "aer"   // error messages: counts from text are too low
	LostOther LossScope = "other" // of another subsystem
	LostAny   LossScope = "any"   // of the whole log
)

// LinesLost says that the kernel or the log daemon dropped lines, or that AER
// dropped errors. Count is how many, 0 where it does not say.
type LinesLost struct {
	Scope LossScope
	Count int
	Total int    // errors in all by then, where AER raises its limit
	By    string // who dropped them: a kernel function, "printk", "journald"
}

func (LinesLost) event() {}

const suppressed = "callbacks suppressed"

// loss reads the lines that say so.
func (l *line) loss() Event {
	m := l.message
	if by, rest, ok := strings.Cut(m, ": "); ok && strings.HasSuffix(rest, suppressed) {
		count, after, ok := cutDecimal(rest)
		if !ok || trimSpace(after) != suppressed {
			return nil
		}
		if i := strings.LastIndexByte(by, ' '); i >= 0 {
			by = by[i+1:]
		}
		scope := LostOther
		for _, mark := range [...]string{"aer", "pci", "dpc", "ghes", "cper"} {
			if strings.Contains(by, mark) {
				scope = LostAER
			}
		}
		return LinesLost{Scope: scope, Count: int(count), By: by}
	}
	if rest, ok := strings.CutPrefix(m, "** "); ok {
		count, rest, ok := cutDecimal(rest)
		if ok && strings.HasPrefix(rest, " printk messages dropped") {
			return LinesLost{Scope: LostAny, Count: int(count), By: "printk"}
		}
		return nil
	}
	if rest, ok := strings.CutPrefix(m, "Missed "); ok && l.program == "systemd-journald" {
		count, rest, ok := cutDecimal(rest)
		if ok && strings.HasPrefix(rest, " kernel messages") {
			return LinesLost{Scope: LostAny, Count: int(count), By: "journald"}
		}
		return nil
	}
	text := trimPrefix(trimPrefix(m, "AER: "), "AER recover: ")
	if l.device != "" {
		text = trimPrefix(l.text, "AER: ")
	}
	switch {
	case strings.HasPrefix(text, "Over ") && strings.Contains(text, "Errors"):
		total, _ := cutInt(text[len("Over "):])
		return LinesLost{Scope: LostAER, Total: total, By: "AER"}
	case strings.HasPrefix(text, "Exceeded max allowed"), strings.HasPrefix(text, "Buffer overflow when recovering AER"),
		strings.HasPrefix(text, "buffer overflow in recovery"):
		return LinesLost{Scope: LostAER, By: "AER"}
	}
	return nil
}
