package machine

import (
	"cmp"
	"slices"

	"ringlane/internal/model/kernlog"
)

// LogPart says where a part of the kernel log came from: Machine.LogParts[i]
// is that of the entries whose Part is i. Parts often repeat one log (syslog,
// journal, dmesg), so what is counted is counted in one part.
type LogPart struct {
	Input   string `json:"input"`
	Section string `json:"section,omitempty"`
}

// LogText is a part of the kernel log as it is saved: the lines themselves,
// so that a newer version can read more from them.
type LogText struct {
	LogPart
	Lines []string `json:"lines"`
}

// AddLog reads a text into the kernel log as parts of their own.
func (m *Machine) AddLog(from LogPart, lines []string) {
	sink := m.LogSink(from.Input)
	s := kernlog.NewScanner(func(e kernlog.Entry) {
		if from.Section != "" {
			e.Section = from.Section
		}
		sink(e)
	})
	for _, l := range lines {
		s.Line(l)
	}
	s.Flush()
}

// LogSink returns a function that takes the entries of one text: it gives
// their parts numbers that no other text has.
func (m *Machine) LogSink(input string) func(kernlog.Entry) {
	parts := map[int]int{}
	return func(e kernlog.Entry) {
		part, ok := parts[e.Part]
		if !ok {
			part = len(m.LogParts)
			parts[e.Part] = part
			m.LogParts = append(m.LogParts, LogPart{Input: input, Section: e.Section})
		}
		e.Part = part
		m.Log = append(m.Log, e)
	}
}

// logTexts are the lines of the log's entries, part by part.
func (m *Machine) logTexts() []LogText {
	texts := make([]LogText, len(m.LogParts))
	for i := range texts {
		texts[i].LogPart = m.LogParts[i]
	}
	// In the order of the lines: a record is complete, and in the log, only after
	// what stood between its lines.
	order := make([]int, len(m.Log))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(m.Log[a].Line, m.Log[b].Line) })
	for _, i := range order {
		t := &texts[m.Log[i].Part]
		t.Lines = append(t.Lines, m.Log[i].Raw...)
	}
	return texts
}
