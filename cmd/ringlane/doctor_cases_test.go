package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringlane/internal/logic/diagnose"
)

// doctorCases holds captures of real machines with the right answer beside
// each, where it is at hand; they are not part of this repository.
const doctorCases = "../../../shared/cases"

// doctorEntry is one line of a case's expect.json.
type doctorEntry struct {
	Code      string `json:"code"`
	Component string `json:"component"`
	N         int    `json:"n"`
	Why       string `json:"why"`
	Unsure    bool   `json:"unsure"`
}

type doctorExpect struct {
	Must         []doctorEntry `json:"must"`
	MustNot      []doctorEntry `json:"must_not"`
	AtMost       []doctorEntry `json:"at_most"`
	Status       *int          `json:"status"`
	StatusUnsure bool          `json:"status_unsure"`
}

func TestDoctorCases(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join(doctorCases, "*", "expect.json"))
	if err != nil || len(folders) == 0 {
		t.Skip("the folder of cases is not here")
	}
	for _, path := range folders {
		folder := filepath.Dir(path)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var want doctorExpect
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			args := []string{"doctor", "--json", "--from"}
			files, err := os.ReadDir(folder)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if n := f.Name(); n != "about.md" && n != "expect.json" && !strings.HasPrefix(n, "README") {
					args = append(args, filepath.Join(folder, n))
				}
			}
			var stdout, stderr bytes.Buffer
			status := execute(args, &stdout, &stderr)
			var got diagnose.Report
			if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
				t.Fatalf("exit %d, %v: %s", status, err, stderr.String())
			}
			checkDoctor(t, want, got, status)
		})
	}
}

func checkDoctor(t *testing.T, want doctorExpect, got diagnose.Report, status int) {
	t.Helper()
	for _, e := range want.Must {
		if !e.Unsure && !slices.ContainsFunc(got.Findings, func(f diagnose.Finding) bool { return doctorMeets(e, f) }) {
			t.Errorf("missing %s at %s: %s", e.Code, e.Component, e.Why)
		}
	}
	for _, e := range want.MustNot {
		for _, f := range got.Findings {
			if !e.Unsure && doctorAccuses(e, f) {
				t.Errorf("false %s at %s: %s", f.Code, f.Component, e.Why)
			}
		}
	}
	for _, e := range want.AtMost {
		n := 0
		for _, f := range got.Findings {
			if string(f.Code) == e.Code {
				n++
			}
		}
		if !e.Unsure && n > e.N {
			t.Errorf("%d findings %s, at most %d", n, e.Code, e.N)
		}
	}
	if want.Status != nil && !want.StatusUnsure && (status != *want.Status || got.Status != *want.Status) {
		t.Errorf("exit status %d, in the answer %d, want %d", status, got.Status, *want.Status)
	}
}

// doctorMeets reports whether one of the wanted names is in the finding.
func doctorMeets(e doctorEntry, f diagnose.Finding) bool {
	if string(f.Code) != e.Code {
		return false
	}
	var all []string
	for _, c := range slices.Concat([]string{f.Component}, f.Also, f.Affects) {
		all = append(all, strings.Split(c, "<->")...)
	}
	for _, part := range strings.Split(e.Component, "|") {
		if part == "*" || part == "host" || slices.ContainsFunc(strings.Split(part, "<->"), func(n string) bool { return slices.Contains(all, n) }) {
			return true
		}
	}
	return false
}

// doctorAccuses reports whether the finding's own component holds all of a name.
func doctorAccuses(e doctorEntry, f diagnose.Finding) bool {
	if string(f.Code) != e.Code {
		return false
	}
	own := strings.Split(f.Component, "<->")
	for _, part := range strings.Split(e.Component, "|") {
		if part == "*" || !slices.ContainsFunc(strings.Split(part, "<->"), func(n string) bool { return !slices.Contains(own, n) }) {
			return true
		}
	}
	return false
}
