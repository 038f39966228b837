package internal_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "ringlane"

// floors is the import law: a package may import those of the floors below it.
// The first prefix that fits a package's path in the module decides; "." is
// the root package.
var floors = []struct {
	prefix string
	may    []string // prefixes of this module's packages that it may import
	reason string
}{
	{"internal/model/dtype", nil, "an element type is a value that everything else counts in"},
	{"internal/model/bytesize", nil, "a size is text and a number"},
	{"internal/model/pcie", nil, "registers and link arithmetic stand on nothing"},
	{"internal/model/cpu", nil, "which CPUs share what is a value, read elsewhere"},
	{"internal/model/kernlog", nil, "a log line is text; what it means for a device is decided elsewhere"},
	{"internal/model/weakmem", nil, "a memory model is a law of processors, whatever runs on them"},
	{"internal/model/machine", []string{"internal/model/dtype", "internal/model/pcie", "internal/model/kernlog"}, "a machine is made of devices and events"},
	{"internal/model/topology", []string{"internal/model/dtype", "internal/model/pcie", "internal/model/kernlog", "internal/model/machine"}, "a topology is drawn from machines"},
	{"internal/model/schedule", []string{"internal/model"}, "a schedule runs over a topology: the top of the model"},
	{"internal/logic", []string{"internal/logic", "internal/model"}, "decisions run on a laptop, in simulation and under fuzzing, so they know no hardware"},
	{"internal/hardware", []string{"internal/hardware", "internal/model"}, "a window or a kernel is measured and replaced alone, so it knows no decisions"},
	{"internal/run", []string{"internal/run", "internal/logic", "internal/hardware", "internal/model"}, "processes are where a decision meets the machine"},
	{"cmd", []string{".", "internal"}, "flags in, text out: any floor below may be called"},
	{"capi", []string{".", "internal"}, "C functions over the same floors"},
	{"bench", []string{".", "internal"}, "measures any floor"},
	{"lab", []string{".", "internal"}, "tries any floor"},
	{".", []string{"internal"}, "the public API over the same floors"},
}

// modules is who may import which other module, tests apart. A module earns
// its place once, so what is not here is refused.
var modules = []struct {
	module string
	from   []string
	reason string
}{
	{"github.com/spf13/cobra", []string{"cmd"}, "the command line"},
	{"github.com/spf13/pflag", []string{"cmd"}, "cobra's flags"},
	{"golang.org/x/sys", []string{"internal/hardware", "internal/run", "bench"}, "system calls: the machine and its processes"},
	{"github.com/ebitengine/purego", []string{"internal/hardware/cuda"}, "calls a C library without cgo"},
	{"github.com/mmcloughlin/avo", []string{"internal/hardware/reduce/avo"}, "writes assembly, from a Go module of its own"},
	{"github.com/HdrHistogram/hdrhistogram-go", []string{"internal/run", "cmd", "bench"}, "latencies are recorded where collectives run"},
}

// testModules may be imported by any test.
var testModules = []string{
	"github.com/google/go-cmp", "github.com/rogpeppe/go-internal", "go.uber.org/goleak",
	"golang.org/x/sys", "pgregory.net/rapid",
}

// notInModel is what a package of values and laws has no use for.
var notInModel = map[string]string{
	"os":      "touches the machine",
	"net":     "touches the network",
	"syscall": "touches the machine",
	"unsafe":  "belongs to hardware",
	"sync":    "serves concurrency, and values have none",
	"time":    "brings the clock",
}

// clock is what of package time reads the clock or waits for it.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// seeded is what of math/rand and math/rand/v2 takes its seed from the caller.
var seeded = []string{"Rand", "Source", "Source64", "New", "NewSource", "NewPCG", "PCG", "NewChaCha8", "ChaCha8", "Zipf", "NewZipf"}

// vagueNames are refused for folders and files: they say what nobody decided.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "misc"}

const maxLines = 600

var generated = regexp.MustCompile(`(?m)^(//|#) Code generated .* DO NOT EDIT\.?$`)

// under reports whether a path of the module lies at or under prefix.
func under(name, prefix string) bool {
	return name == prefix || strings.HasPrefix(name, prefix+"/")
}

func underAny(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return under(name, prefix) })
}

// violations checks a source tree against the laws above, whatever the build
// constraints of its files are.
func violations(tree fs.FS) ([]string, error) {
	var found []string
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if foreign(tree, name) {
				return fs.SkipDir
			}
		} else if !entry.Type().IsRegular() {
			return nil
		}
		report := func(format string, args ...any) {
			found = append(found, name+": "+fmt.Sprintf(format, args...))
		}
		base := strings.TrimSuffix(path.Base(name), path.Ext(name))
		base = strings.TrimSuffix(strings.TrimPrefix(base, "test_"), "_test")
		if slices.Contains(vagueNames, base) {
			report("%q says nothing (name it after what it holds)", base)
		}
		if entry.IsDir() {
			return nil
		}
		extension := path.Ext(name)
		if extension == ".s" && !underAny(name, "internal/hardware/reduce", "internal/hardware/sys") {
			report("assembly outside internal/hardware/reduce and internal/hardware/sys")
		}
		if extension != ".go" && extension != ".py" {
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if lines := bytes.Count(source, []byte("\n")); lines >= maxLines && !generated.Match(source) {
			report("%d lines (split it: files stay under %d)", lines, maxLines)
		}
		if extension == ".go" {
			return checkGo(name, source, report)
		}
		return nil
	})
	return found, err
}

// foreign reports a folder whose files are not ours or not source: hidden
// ones, build outputs, captured data, Python's virtual environments.
func foreign(tree fs.FS, name string) bool {
	base := path.Base(name)
	if name != "." && (base[0] == '.' || base[0] == '_') {
		return true
	}
	if slices.Contains([]string{"testdata", "build", "dist", "node_modules"}, base) {
		return true
	}
	_, err := fs.Stat(tree, path.Join(name, "pyvenv.cfg"))
	return err == nil
}

// checkGo checks the imports and the fences of one Go file.
func checkGo(name string, source []byte, report func(string, ...any)) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	test := strings.HasSuffix(name, "_test.go")
	calls := map[string]string{} // name in this file -> package with names that are fenced off
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		checkImport(name, imported, test, report)
		switch imported {
		case "time", "math/rand", "math/rand/v2":
			local := strings.TrimSuffix(imported, "/v2")
			local = path.Base(local)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			calls[local] = imported
		}
	}
	if test {
		return nil
	}
	model, pure := under(name, "internal/model"), underAny(name, "internal/model", "internal/logic")
	if _, dot := calls["."]; dot && pure {
		report("imports time or math/rand under no name: its clock and randomness cannot be told apart")
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt:
			if model {
				report("starts a goroutine in model")
			}
		case *ast.SelectorExpr:
			owner, ok := node.X.(*ast.Ident)
			if !ok || !pure {
				break
			}
			switch imported := calls[owner.Name]; {
			case imported == "time" && slices.Contains(clock, node.Sel.Name):
				report("uses time.%s (the clock is an argument)", node.Sel.Name)
			case strings.HasPrefix(imported, "math/rand") && !slices.Contains(seeded, node.Sel.Name):
				report("uses %s.%s (randomness is an argument)", imported, node.Sel.Name)
			}
		}
		return true
	})
	return nil
}

// checkImport checks one import of the file name against law and fences.
func checkImport(name, imported string, test bool, report func(string, ...any)) {
	switch imported {
	case "C":
		if !under(name, "capi") {
			report("cgo outside capi")
		}
		return
	case "unsafe":
		fenced := strings.HasSuffix(strings.TrimSuffix(name, "_test.go"), "_unsafe") || strings.HasSuffix(name, "_unsafe.go")
		if !fenced || !underAny(name, "internal/hardware", "capi") {
			report("unsafe outside the *_unsafe.go files of internal/hardware and capi")
		}
		return
	case "crypto/rand":
		if underAny(name, "internal/model", "internal/logic") && !test {
			report("imports crypto/rand (randomness is an argument)")
		}
		return
	}
	if target, ours := strings.CutPrefix(imported+"/", module+"/"); ours {
		checkFloor(name, path.Clean(target), report)
		return
	}
	first, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(first, ".") { // the standard library
		if why, no := notInModel[first]; no && under(name, "internal/model") && !test {
			report("imports %s, which %s", imported, why)
		}
		return
	}
	if test && underAny(imported, testModules...) {
		return
	}
	for _, m := range modules {
		if under(imported, m.module) {
			if !underAny(name, m.from...) {
				report("imports %s, which is for %s (%s)", imported, strings.Join(m.from, ", "), m.reason)
			}
			return
		}
	}
	report("imports %s (a new dependency needs a line in this test, with its reason)", imported)
}

// checkFloor checks an import of one package of this module by another.
func checkFloor(name, target string, report func(string, ...any)) {
	from := path.Dir(name)
	if underAny(target, "cmd", "capi") && from != target {
		report("imports %s: nothing imports a command", target)
		return
	}
	for _, floor := range floors {
		if floor.prefix == "." && from != "." || !under(from, floor.prefix) {
			continue
		}
		if under(target, floor.prefix) || underAny(target, floor.may...) {
			return
		}
		report("%s imports %s: %s", from, target, floor.reason)
		return
	}
	report("%s has no floor (give it a line in this test, with its reason)", from)
}

func TestLaws(t *testing.T) {
	found, err := violations(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range found {
		t.Error(violation)
	}
}

// TestLawsCanFail shows the checker what it must refuse, and what it must not.
func TestLawsCanFail(t *testing.T) {
	code := func(imports ...string) string {
		text := "package p\n"
		for _, i := range imports {
			text += "import " + i + "\n"
		}
		return text
	}
	for _, c := range []struct{ file, source, want string }{
		{"internal/logic/cost/a.go", code(`"ringlane/internal/hardware/window"`), "know no hardware"},
		{"internal/logic/cost/a_test.go", code(`"ringlane/internal/hardware/window"`), "know no hardware"},
		{"internal/hardware/channel/a.go", code(`"ringlane/internal/logic/cost"`), "knows no decisions"},
		{"internal/hardware/channel/a.go", code(`"ringlane/internal/run/launch"`), "knows no decisions"},
		{"internal/model/pcie/a.go", code(`"ringlane/internal/model/machine"`), "stand on nothing"},
		{"internal/model/topology/a.go", code(`"ringlane/internal/model/schedule"`), "drawn from machines"},
		{"internal/model/schedule/a.go", code(`"ringlane/internal/logic/collective"`), "top of the model"},
		{"internal/run/launch/a.go", code(`"ringlane"`), "a decision meets the machine"},
		{"internal/run/launch/a.go", code(`"ringlane/cmd/ringlane"`), "nothing imports a command"},
		{"cmd/ringlane/a.go", code(`"ringlane/capi"`), "nothing imports a command"},
		{"ringlane.go", code(`"ringlane/cmd/ringlane"`), "nothing imports a command"},
		{"internal/extra/a.go", code(`"ringlane/internal/model/pcie"`), "no floor"},
		{"internal/run/launch/a.go", code(`"github.com/spf13/cobra"`), "is for cmd"},
		{"internal/logic/cost/a.go", code(`"golang.org/x/sys/unix"`), "system calls"},
		{"cmd/ringlane/a.go", code(`"example.org/new"`), "new dependency"},
		{"cmd/ringlane/a.go", code(`"pgregory.net/rapid"`), "new dependency"},
		{"internal/hardware/sys/a.go", code(`"unsafe"`), "unsafe outside"},
		{"internal/run/launch/a_unsafe.go", code(`"unsafe"`), "unsafe outside"},
		{"internal/hardware/sys/a_test.go", code(`"unsafe"`), "unsafe outside"},
		{"internal/hardware/sys/a.go", code(`"C"`), "cgo outside"},
		{"internal/hardware/window/a.s", "TEXT", "assembly outside"},
		{"internal/model/pcie/a.go", code(`"os/exec"`), "touches the machine"},
		{"internal/model/pcie/a.go", code(`"net/http"`), "touches the network"},
		{"internal/model/pcie/a.go", code(`"sync/atomic"`), "values have none"},
		{"internal/model/pcie/a.go", code(`"time"`), "clock"},
		{"internal/model/pcie/a.go", code() + "func f() { go f() }", "goroutine"},
		{"internal/logic/sim/a.go", code(`"time"`) + "var t = time.Now()", "time.Now"},
		{"internal/logic/sim/a.go", code(`t "time"`) + "var now = t.Now", "time.Now"},
		{"internal/logic/sim/a.go", code(`. "time"`), "under no name"},
		{"internal/logic/sim/a.go", code(`"math/rand"`) + "var n = rand.Int()", "rand.Int"},
		{"internal/logic/sim/a.go", code(`"math/rand/v2"`) + "var n = rand.N(3)", "rand/v2.N"},
		{"internal/logic/sim/a.go", code(`"crypto/rand"`), "crypto/rand"},
		{"python/ringlane/a.py", strings.Repeat("x = 1\n", maxLines), "600 lines"},
		{"cmd/ringlane/a.go", code() + strings.Repeat("\n", maxLines), "lines (split it"},
		{"internal/run/utils/a.go", code(), `"utils" says nothing`},
		{"internal/run/launch/helpers_test.go", code(), `"helpers" says nothing`},
		{"python/ringlane/common.py", "", `"common" says nothing`},

		{"internal/logic/sim/a.go", code(`"time"`, `"math/rand/v2"`) + "var d = time.Second\nvar r = rand.New(rand.NewPCG(1, 2))", ""},
		{"internal/logic/sim/a_test.go", code(`"time"`, `"pgregory.net/rapid"`) + "var t = time.Now()", ""},
		{"internal/model/schedule/a.go", code(`"ringlane/internal/model/topology"`, `"math"`), ""},
		{"internal/model/pcie/a_test.go", code(`"os"`, `"ringlane/internal/model/pcie"`), ""},
		{"internal/run/communicator/a.go", code(`"ringlane/internal/logic/collective"`, `"ringlane/internal/hardware/channel/ll"`, `"golang.org/x/sys/unix"`), ""},
		{"internal/hardware/sys/map_unsafe.go", code(`"unsafe"`), ""},
		{"internal/hardware/sys/map_unsafe_test.go", code(`"unsafe"`), ""},
		{"internal/hardware/reduce/sum_amd64.s", "TEXT", ""},
		{"capi/export_unsafe.go", code(`"C"`, `"unsafe"`, `"ringlane"`), ""},
		{"cmd/ringlane/a.go", code(`"github.com/spf13/cobra"`, `"ringlane/internal/model/pcie"`), ""},
		{"ringlane_test.go", code(`"ringlane"`, `"ringlane/internal/run/communicator"`), ""},
		{"internal/model/pcie/a.go", "// Code generated by x. DO NOT EDIT.\n" + code() + strings.Repeat("\n", maxLines), ""},
		{"build/utils/a.go", "not Go", ""},
		{"venv/lib/utils.py", "", ""},
	} {
		found, err := violations(fstest.MapFS{c.file: {Data: []byte(c.source)}, "venv/pyvenv.cfg": {}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(found, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%.200s\ngives %q, want %q", c.file, c.source, got, c.want)
		}
	}
}

// TestCommandBuildsWithoutCgo keeps the command one binary that runs anywhere.
func TestCommandBuildsWithoutCgo(t *testing.T) {
	build := exec.Command("go", "build", "-o", filepath.Join(t.TempDir(), "ringlane"), "./cmd/ringlane")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
