package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cases are captures of real machines with the right answers beside them.
// They are kept outside the repository.
const cases = "../../../shared/cases"

// topologyExpectation is the part "topology" of expect.json.
type topologyExpectation struct {
	GPUs  int
	Nodes []struct{ GPUs []string }
	// Groups are the uplinks that GPUs share; nil where the case does not say.
	Groups []struct {
		Uplink string
		GPUs   []string
		GBs    float64 `json:"gb_per_s"`
		Inside string
	}
	Ring struct {
		Contiguous [][]string
		Crossings  *int `json:"node_crossings"`
	}
}

// topoAnswer is what the test reads of topo's JSON.
type topoAnswer struct {
	GPUs []struct {
		BDF, Name string
		NUMA      *int
	}
	Uplinks []struct {
		Component string
		GPUs      []string
		GBs       *float64 `json:"gb_per_s"`
	} `json:"shared_uplinks"`
	Ring []string
}

func TestTopologyOfCases(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join(cases, "*", "expect.json"))
	if err != nil || len(folders) == 0 {
		t.Skip("the folder of cases is not here")
	}
	judged := 0
	for _, file := range folders {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var expect struct{ Topology *topologyExpectation }
		if err := json.Unmarshal(text, &expect); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if expect.Topology == nil {
			continue
		}
		judged++
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			args := []string{"topo", "--format", "json", "--from"}
			inputs, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, input := range inputs {
				if base := filepath.Base(input); base != "about.md" && base != "expect.json" {
					args = append(args, input)
				}
			}
			var out, stderr bytes.Buffer
			if status := execute(args, &out, &stderr); status != 0 {
				t.Fatalf("exit status %d: %s", status, stderr.String())
			}
			var got topoAnswer
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			expect.Topology.judge(t, got)
		})
	}
	if judged == 0 {
		t.Error("no case expects a topology")
	}
}

func (e *topologyExpectation) judge(t *testing.T, got topoAnswer) {
	if len(got.GPUs) != e.GPUs {
		t.Errorf("%d GPUs, want %d", len(got.GPUs), e.GPUs)
	}
	byNode := map[int][]string{}
	for _, g := range got.GPUs {
		node := -1
		if g.NUMA != nil {
			node = *g.NUMA
		}
		byNode[node] = append(byNode[node], g.BDF)
	}
	var want []string
	node := map[string]int{}
	for i, n := range e.Nodes {
		want = append(want, key(n.GPUs))
		for _, g := range n.GPUs {
			node[g] = i
		}
	}
	var have []string
	for gpus := range maps.Values(byNode) {
		have = append(have, key(gpus))
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("NUMA nodes hold %q, want %q", have, want)
	}

	expected := map[int]bool{}
	for _, g := range e.Groups {
		at, inside := -1, g.Inside == ""
		for i, u := range got.Uplinks {
			if meets(g.Uplink, u.Component) && key(u.GPUs) == key(g.GPUs) {
				at = i
			}
			inside = inside || meets(g.Inside, u.Component) && len(u.GPUs) > len(g.GPUs)
		}
		if at < 0 || !inside {
			t.Errorf("no shared uplink %s of %s inside %q", g.Uplink, g.GPUs, g.Inside)
			continue
		}
		expected[at] = true
		if bw := got.Uplinks[at].GBs; g.GBs > 0 && (bw == nil || math.Abs(*bw-g.GBs) > g.GBs/100) {
			t.Errorf("uplink %s: wrong bandwidth, want %v", g.Uplink, g.GBs)
		}
	}
	for i, u := range got.Uplinks {
		if e.Groups != nil && len(u.GPUs) > 1 && !expected[i] {
			t.Errorf("%s is said to be shared by %s", u.Component, u.GPUs)
		}
	}

	crossings := 0
	for i, a := range got.Ring {
		if node[a] != node[got.Ring[(i+1)%len(got.Ring)]] {
			crossings++
		}
	}
	if e.Ring.Crossings != nil && crossings != *e.Ring.Crossings {
		t.Errorf("the ring crosses nodes %d times, want %d", crossings, *e.Ring.Crossings)
	}
	for _, together := range e.Ring.Contiguous {
		left := 0
		for i, a := range got.Ring {
			if slices.Contains(together, a) && !slices.Contains(together, got.Ring[(i+1)%len(got.Ring)]) {
				left++
			}
		}
		if left > 1 {
			t.Errorf("%s are not side by side on the ring %s", together, got.Ring)
		}
	}
	all := slices.Clone(got.Ring)
	slices.Sort(all)
	if len(slices.Compact(all)) != e.GPUs || len(got.Ring) != e.GPUs {
		t.Errorf("the ring does not take every GPU once: %s", got.Ring)
	}
}

// key is a set of GPUs as text.
func key(gpus []string) string {
	sorted := slices.Sorted(slices.Values(gpus))
	return strings.Join(sorted, " ")
}

// meets reports whether two components have an end in common.
func meets(a, b string) bool {
	for _, end := range strings.Split(a, "<->") {
		if slices.Contains(strings.Split(b, "<->"), end) {
			return true
		}
	}
	return false
}
