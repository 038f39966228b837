package tuning

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringlane/internal/logic/collective"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tree is a machine of two packages with a node and two CPUs each.
func tree(t *testing.T) string {
	root := t.TempDir()
	write(t, root+"/proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU\n")
	write(t, root+"/sys/devices/system/cpu/online", "0-3\n")
	for i, place := range []string{"0", "0", "1", "1"} {
		dir := root + "/sys/devices/system/cpu/cpu" + string(rune('0'+i)) + "/topology/"
		write(t, dir+"thread_siblings_list", string(rune('0'+i)))
		write(t, dir+"physical_package_id", place)
	}
	write(t, root+"/sys/devices/system/node/node0/cpulist", "0-1")
	write(t, root+"/sys/devices/system/node/node1/cpulist", "2-3")
	return root
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine(tree(t), 7)
	if m.CPU != "A CPU" || m.CPUs != 4 || m.Packages != 2 || m.Nodes != 2 || m.Layout != 7 || m.Kernel == "" {
		t.Errorf("%+v", m)
	}
	if real := ThisMachine("", 7); real.CPUs < 1 || real.Packages < 1 || real.Nodes < 1 {
		t.Errorf("%+v", real)
	}
	if bare := ThisMachine(t.TempDir(), 7); bare.CPU != "unknown" || bare.CPUs < 1 {
		t.Errorf("%+v", bare)
	}
}

// Every property of a machine changes the name of its file.
func TestPathNamesTheMachine(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/cache")
	m := Machine{CPU: "A CPU", CPUs: 4, Packages: 1, Nodes: 1, Kernel: "6", Arch: "amd64", Layout: 3}
	seen := map[string]bool{}
	for _, change := range []func(*Machine){
		func(*Machine) {}, func(m *Machine) { m.CPU = "B" }, func(m *Machine) { m.CPUs = 8 }, func(m *Machine) { m.Packages = 2 },
		func(m *Machine) { m.Nodes = 2 }, func(m *Machine) { m.Kernel = "7" }, func(m *Machine) { m.Arch = "arm64" }, func(m *Machine) { m.Layout = 4 },
	} {
		m := m
		change(&m)
		path, err := m.Path()
		if err != nil || filepath.Dir(path) != "/cache/ringlane" || seen[path] {
			t.Errorf("%+v: %s, %v", m, path, err)
		}
		seen[path] = true
	}
}

func TestFind(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	m := Machine{CPU: "A CPU"}
	path, err := m.Path()
	if err != nil {
		t.Fatal(err)
	}
	find := func(text string) InForce {
		t.Helper()
		f, err := Find(text, m)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	builtIn := collective.Defaults().String()
	if f := find(""); f.Table.String() != builtIn || f.Warning != nil {
		t.Errorf("without a file: %s, %v", f.Table, f.Warning)
	}
	if err := (File{Machine: m, Date: "2026-11-30", Table: "any=direct/ll"}).Save(path); err != nil {
		t.Fatal(err)
	}
	if f := find(""); f.Table.String() != "any=direct/ll" || len(f.Sources) != 1 || !strings.Contains(f.Sources[0], path) {
		t.Errorf("with a file: %s from %v", f.Table, f.Sources)
	}
	if f := find("barrier=ring"); f.Table.String() != "barrier=ring/simple;any=direct/ll" || len(f.Sources) != 2 {
		t.Errorf("with rules too: %s from %v", f.Table, f.Sources)
	}
	if f := find(BuiltIn); f.Table.String() != builtIn {
		t.Errorf("%s: %s", BuiltIn, f.Table)
	}
	if _, err := Find("magic", m); err == nil {
		t.Error("nonsense is taken")
	}
	other := m
	other.CPU = "another"
	for text, want := range map[string]string{
		"{":                           "unexpected end",
		`{"machine":{"cpu":"A CPU"}}`: "no rule fits every call",
		`{"machine":{"cpu":"A CPU"},"table":"any=magic"}`: "no collective has",
		strings.Repeat(" ", most+1):                       "unexpected end",
	} {
		write(t, path, text)
		if f := find(""); f.Table.String() != builtIn || f.Warning == nil || !strings.Contains(f.Warning.Error(), want) || !strings.Contains(f.Warning.Error(), "bench --tune") {
			t.Errorf("%.60s: %s, %v, want %q", text, f.Table, f.Warning, want)
		}
	}
	if err := (File{Machine: other, Table: "any=direct/ll"}).Save(path); err != nil {
		t.Fatal(err)
	}
	if f := find(""); f.Table.String() != builtIn || f.Warning == nil || !strings.Contains(f.Warning.Error(), "it was measured on") {
		t.Errorf("another machine's file: %s, %v", f.Table, f.Warning)
	}
}

func TestLoadNothing(t *testing.T) {
	if _, _, err := Load(t.TempDir()+"/none", Machine{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A file that cannot be written leaves the old one.
func TestSaveReplacesWhole(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/tune.json"
	if err := (File{Date: "old"}).Save(path); err != nil {
		t.Fatal(err)
	}
	if err := (File{Date: "new"}).Save(path); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	if f, _, err := Load(path, Machine{}); len(entries) != 1 || f.Date == "old" {
		t.Errorf("%v, %+v, %v", entries, f, err)
	}
	if err := (File{}).Save(dir + "/tune.json/below"); err == nil || !strings.Contains(err.Error(), "keep the tuning") {
		t.Error(err)
	}
}
