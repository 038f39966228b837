package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringlane/internal/hardware/probe"
	"ringlane/internal/logic/diagnose"
	"ringlane/internal/model/machine"
)

// A capture of what people sent says the same as what they sent: no finding is
// lost or made on the way through the file, identities replaced.
func TestCapturesSayTheSame(t *testing.T) {
	folders, _ := filepath.Glob("../../testdata/machines/*")
	real, _ := filepath.Glob(doctorCases + "/*/expect.json")
	if len(real) == 0 {
		t.Log("SKIPPED for captures of real machines: the folder of cases is not here")
	}
	for _, path := range real {
		folders = append(folders, filepath.Dir(path))
	}
	for _, folder := range folders {
		files, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		var inputs []string
		for _, f := range files {
			if n := f.Name(); !strings.HasSuffix(n, ".md") && n != "expect.json" && n != "machine.json" {
				inputs = append(inputs, filepath.Join(folder, n))
			}
		}
		direct, err := captured(inputs, nil)
		if err != nil {
			t.Fatal(err)
		}
		masked, err := withoutIdentity(direct, []byte("test"))
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := writeCapture(&file, masked); err != nil {
			t.Fatal(err)
		}
		got, want := verdicts(probe.Text("capture", &file)), verdicts(direct)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the capture says\n%s\nwant\n%s", filepath.Base(folder), strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func verdicts(m *machine.Machine) (list []string) {
	for _, f := range diagnose.Run(m, diagnose.DefaultThresholds).Findings {
		list = append(list, fmt.Sprintf("%s %s %s", f.Severity, f.Code, f.Component))
	}
	slices.Sort(list)
	return list
}
