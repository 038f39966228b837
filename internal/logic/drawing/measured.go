package drawing

import (
	"fmt"
	"slices"
	"strings"

	"ringlane/internal/model/topology"
)

// Measurement is what was found of the way from one GPU to another.
type Measurement struct {
	From, To string // addresses
	// Path is how they reach each other: PathPeer or PathHost.
	Path string
	Why  string // it is no better path
	// Push is the gigabytes a second that kernels of From write to To, Pull those
	// that they read from there, Latency the microseconds that a flag takes one
	// way. What is 0 was not measured.
	Push, Pull, Latency float64
}

// The paths between two GPUs.
const (
	PathPeer = "peer" // straight into each other's memory
	PathHost = "host" // through memory of the host
)

// Measure adds measurements to the sheet and orders the ring by them.
func (s *Sheet) Measure(found []Measurement) {
	*s = *NewSheet(s.Graph, bandwidths(s.Graph, found))
	s.Measured = found
}

// bandwidths are what the GPUs of g write to each other.
func bandwidths(g *topology.Graph, found []Measurement) topology.Bandwidths {
	index := map[string]int{}
	out := make(topology.Bandwidths, len(g.GPUs))
	for i, n := range g.GPUs {
		index[n.ID] = i
		out[i] = make([]float64, len(g.GPUs))
	}
	for _, m := range found {
		from, known := index[m.From]
		to, alsoKnown := index[m.To]
		if known && alsoKnown {
			out[from][to] = m.Push
		}
	}
	return out
}

// between finds what was measured from one GPU to another, nil if nothing was.
func (s *Sheet) between(from, to string) *Measurement {
	for i := range s.Measured {
		if m := &s.Measured[i]; m.From == from && m.To == to {
			return m
		}
	}
	return nil
}

// expected is the path of the tree between two GPUs, nil where the tree does not
// have both.
func (s *Sheet) expected(a, b string) *topology.Path {
	for i := range s.Paths {
		if p := &s.Paths[i]; p.A.ID == a && p.B.ID == b || p.A.ID == b && p.B.ID == a {
			return p
		}
	}
	return nil
}

// measured writes what was measured beside what the tree lets expect.
func (t *text) measured() {
	var gpus []string
	for _, m := range t.Measured {
		for _, id := range []string{m.From, m.To} {
			if !slices.Contains(gpus, id) {
				gpus = append(gpus, id)
			}
		}
	}
	if len(gpus) == 0 {
		return
	}
	names := make([]string, len(gpus))
	for i, id := range gpus {
		names[i] = t.gpuName(id)
	}
	matrix := func(title string, cell func(m *Measurement) string) {
		t.section(title)
		head := fmt.Sprintf("  %-14s", "")
		for _, name := range names {
			head += fmt.Sprintf(" %14s", name)
		}
		t.line("%s", head)
		for i, from := range gpus {
			line := fmt.Sprintf("  %-14s", names[i])
			for _, to := range gpus {
				text := "-"
				if m := t.between(from, to); m != nil {
					text = cell(m)
				}
				line += fmt.Sprintf(" %14s", text)
			}
			t.line("%s", line)
		}
	}
	matrix("Measured: GB/s that kernels of the row write to the column / read from it", func(m *Measurement) string {
		return rate(m.Push) + " / " + rate(m.Pull)
	})
	matrix("Measured: microseconds of a flag, one way", func(m *Measurement) string { return rate(m.Latency) })
	t.section("Measured beside expected")
	t.verdicts()
}

// rate is a measured number, "?" where there is none.
func rate(v float64) string {
	if v == 0 {
		return "?"
	}
	return fmt.Sprintf("%.3g", v)
}

// gpuName is the GPU as the rest of the text has it, or its address.
func (t *text) gpuName(id string) string {
	for _, n := range t.Graph.GPUs {
		if n.ID == id {
			return label(n)
		}
	}
	return topology.Printable(id)
}

// verdicts lists what was found of each pair, and what the tree let expect: those
// alike on one line.
func (t *text) verdicts() {
	var order []string
	pairs := map[string][]string{}
	for _, m := range t.Measured {
		if m.From > m.To && t.between(m.To, m.From) != nil {
			continue // a pair has one path
		}
		back := t.between(m.To, m.From)
		why := m.Why
		if back != nil && back.Why != why {
			why = strings.TrimPrefix(why+"; "+back.Why, "; ")
		}
		found := t.paint(green, "peer access works")
		if m.Path != PathPeer {
			found = t.paint(yellow, "through host memory")
		}
		if why != "" {
			found += ": " + topology.Printable(why)
		}
		expect := "the PCIe tree does not show them"
		if p := t.expected(m.From, m.To); p != nil {
			expect = "expected " + string(p.Peer.Verdict) + ": " + topology.Printable(p.Peer.Reason)
			if p.GBs > 0 {
				expect += fmt.Sprintf(" (%s, %s GB/s)", p.Kind, gbs(p.GBs))
			}
		}
		key := found + "\n    " + expect
		if pairs[key] == nil {
			order = append(order, key)
		}
		pairs[key] = append(pairs[key], t.gpuName(m.From)+"-"+t.gpuName(m.To))
	}
	for _, key := range order {
		t.line("  %s", key)
		t.line("    %s", strings.Join(pairs[key], " "))
	}
}

// measuredEntry is a measurement both ways in JSON.
type measuredEntry struct {
	Path    string       `json:"path"`
	Reason  string       `json:"reason,omitempty"`
	Push    [2]bandwidth `json:"push_gb_per_s"` // from a to b, from b to a
	Pull    [2]bandwidth `json:"pull_gb_per_s"` // that a reads from b, and b from a
	Latency bandwidth    `json:"latency_us"`
}

// measurementOf is what was measured between two GPUs, nil if nothing was.
func (s *Sheet) measurementOf(a, b string) *measuredEntry {
	there, back := s.between(a, b), s.between(b, a)
	if there == nil || back == nil {
		return nil
	}
	e := &measuredEntry{
		Path: there.Path, Reason: there.Why,
		Push:    [2]bandwidth{bandwidth(there.Push), bandwidth(back.Push)},
		Pull:    [2]bandwidth{bandwidth(there.Pull), bandwidth(back.Pull)},
		Latency: bandwidth(there.Latency),
	}
	if e.Reason == "" {
		e.Reason = back.Why
	}
	return e
}

// unseen are pairs that were measured and that the tree does not have.
func (s *Sheet) unseen() (pairs []pairEntry) {
	for _, m := range s.Measured {
		if m.From < m.To && s.expected(m.From, m.To) == nil {
			pairs = append(pairs, pairEntry{
				A: m.From, B: m.To, Kind: "unknown", P2P: topology.PeerUnknown,
				Reason: "the PCIe tree does not show them", Via: []string{}, Measured: s.measurementOf(m.From, m.To),
			})
		}
	}
	return pairs
}
