package drawing_test

import (
	"bytes"
	encodingjson "encoding/json"
	"io"
	"slices"
	"testing"

	"ringlane/internal/logic/drawing"
)

// measurements are made up: pairs next to each other by number are fast, one
// pair goes through host memory.
func measurements(s *drawing.Sheet) (found []drawing.Measurement) {
	for i, a := range s.Graph.GPUs {
		for j, b := range s.Graph.GPUs {
			m := drawing.Measurement{From: a.ID, To: b.ID, Path: drawing.PathPeer, Push: 21.7, Pull: 20.1, Latency: 1.23}
			switch {
			case i == j:
				continue
			case i+j == 3:
				m.Path, m.Why, m.Push, m.Latency = drawing.PathHost, "what rank 1 writes arrives changed", 9.81, 3.4
			case i > j:
				m.Pull = 0 // not measured
			}
			found = append(found, m)
		}
	}
	return found
}

func TestMeasuredText(t *testing.T) {
	s := machines(t)["two-levels-of-switches"]
	s.Measure(measurements(s))
	golden(t, "measured.txt", func(w io.Writer) error { return s.Text(w, false) })
}

func TestMeasuredJSON(t *testing.T) {
	s := machines(t)["two-levels-of-switches"]
	found := measurements(s)
	found = append(found, // of GPUs that the tree does not have
		drawing.Measurement{From: "0000:f0:00.0", To: "0000:f1:00.0", Path: drawing.PathPeer, Push: 1},
		drawing.Measurement{From: "0000:f1:00.0", To: "0000:f0:00.0", Path: drawing.PathPeer, Push: 2})
	s.Measure(found)
	var out bytes.Buffer
	if err := s.JSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Pairs []struct {
			A, B, Kind string
			Measured   *struct {
				Path, Reason string
				Push         [2]*float64 `json:"push_gb_per_s"`
				Pull         [2]*float64 `json:"pull_gb_per_s"`
				Latency      *float64    `json:"latency_us"`
			}
		}
	}
	if err := encodingjson.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	paths := map[string]int{}
	for _, p := range got.Pairs {
		if p.Measured == nil {
			t.Fatalf("%+v has no measurement", p)
		}
		paths[p.Measured.Path]++
		if p.Kind == "unknown" && (*p.Measured.Push[0] != 1 || *p.Measured.Push[1] != 2 || p.Measured.Latency != nil) {
			t.Errorf("%+v", p.Measured)
		}
	}
	n := len(s.Graph.GPUs)
	if len(got.Pairs) != n*(n-1)/2+1 || paths["host"] != 2 || got.Pairs[len(got.Pairs)-1].Kind != "unknown" {
		t.Errorf("%d pairs, %v", len(got.Pairs), paths)
	}
}

// The ring goes where it was measured to be fast.
func TestMeasuredRing(t *testing.T) {
	s := machines(t)["two-levels-of-switches"]
	gpus := s.Graph.GPUs
	want := []int{0, 3, 1, 2}
	var found []drawing.Measurement
	for i, a := range gpus {
		for j, b := range gpus {
			m := drawing.Measurement{From: a.ID, To: b.ID, Path: drawing.PathPeer, Push: 2}
			if at := slices.Index(want, i); i < 4 && j == want[(at+1)%4] {
				m.Push = 20
			}
			if i != j {
				found = append(found, m)
			}
		}
	}
	s.Measure(found)
	for i, n := range s.Ring.Order {
		if n != gpus[want[i]] {
			t.Fatalf("ring %v, want the order %v", s.Ring.Order, want)
		}
	}
}
