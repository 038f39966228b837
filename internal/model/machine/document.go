package machine

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Save writes the document as indented JSON.
func (m *Machine) Save(w io.Writer) error {
	out := *m
	out.Version = Version
	if len(out.LogText) == 0 {
		out.LogText = m.logTexts()
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	if err := e.Encode(out); err != nil {
		return fmt.Errorf("write machine document: %w", err)
	}
	return nil
}

// Load reads a document that Save wrote, in this version or an older one.
func Load(r io.Reader) (*Machine, error) {
	var m Machine
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		return nil, fmt.Errorf("read machine document: %w", err)
	}
	switch {
	case m.Version < 1:
		return nil, fmt.Errorf("read machine document: it has no version (is it a capture of ringlane?)")
	case m.Version > Version:
		return nil, fmt.Errorf("read machine document: version %d is newer than %d (use a newer ringlane)", m.Version, Version)
	}
	m.Devices = slices.DeleteFunc(m.Devices, func(d *Device) bool { return d == nil })
	slices.SortStableFunc(m.Devices, func(a, b *Device) int { return a.BDF.Compare(b.BDF) })
	m.Devices = slices.CompactFunc(m.Devices, func(a, b *Device) bool { return a.BDF == b.BDF })
	for _, t := range m.LogText {
		m.AddLog(t.LogPart, t.Lines)
	}
	return &m, nil
}
