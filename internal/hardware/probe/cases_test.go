package probe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringlane/internal/model/machine"
)

// TestCases reads every capture of real machines beside the repository.
func TestCases(t *testing.T) {
	dirs, _ := filepath.Glob("../../../../shared/cases/*/about.md")
	if len(dirs) == 0 {
		t.Skip("no ../shared/cases beside the repository")
	}
	for _, about := range dirs {
		dir := filepath.Dir(about)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			files, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			listed := false
			for _, f := range files {
				if f.Name() == "about.md" || f.Name() == "expect.json" {
					continue
				}
				paths = append(paths, filepath.Join(dir, f.Name()))
				listed = listed || strings.HasPrefix(f.Name(), "lspci") || strings.HasSuffix(f.Name(), ".xml") || strings.HasPrefix(f.Name(), "nvidia-bug")
			}
			m, err := Read(paths, nil)
			if err != nil {
				t.Fatal(err)
			}
			if listed && len(m.Devices) == 0 {
				t.Error("no devices")
			}
			for _, p := range m.Problems {
				if p.Class == machine.Unrecognised {
					t.Errorf("problem: %+v", p)
				} else {
					t.Logf("problem: %+v", p)
				}
			}
			unknown := 0
			for _, d := range m.Devices {
				if !d.ParentKnown {
					unknown++
				}
			}
			t.Logf("%d devices (%d without known parent), %d GPUs, %d log entries, inputs %+v", len(m.Devices), unknown, len(m.GPUs()), len(m.Log), m.Inputs)
		})
	}
}
