package probe

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what was read over the golden files (look at the difference before committing)")

// TestMachines reads the machines in testdata and compares each with its
// golden document.
func TestMachines(t *testing.T) {
	const root = "../../../testdata/machines"
	dirs, err := filepath.Glob(root + "/*/README.md")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no machines in %s: %v", root, err)
	}
	for _, readme := range dirs {
		dir := filepath.Dir(readme)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			inputs, err := filepath.Glob(dir + "/*.txt")
			if err != nil || len(inputs) == 0 {
				t.Skip("no text inputs")
			}
			m, err := Read(inputs, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range m.Inputs {
				m.Inputs[i].Name = filepath.Base(m.Inputs[i].Name)
			}
			for i := range m.Problems {
				if p := &m.Problems[i]; p.Input != "" {
					p.Input = filepath.Base(p.Input)
				}
			}
			for i := range m.LogParts {
				m.LogParts[i].Input = filepath.Base(m.LogParts[i].Input)
			}
			var got bytes.Buffer
			if err := m.Save(&got); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join(dir, "machine.json")
			if *rewrite {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s differs from what was read:\n%s", golden, lineDifferences(string(want), got.String()))
			}
		})
	}
}
