package kernels

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var twins = []any{Geometry{}, Peer{}, Exchange{}, State{}, Fault{}, Control{}, Way{}, Probe{}, Seen{}}

// TestParams has a C++ compiler say how it lays the structs of params.cuh out.
func TestParams(t *testing.T) {
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++ here: the structs of params.cuh are not compared with their Go twins")
	}
	var program, want strings.Builder
	program.WriteString("#include \"probe.cuh\"\n#include <cstddef>\nextern \"C\" int printf(const char *, ...);\nint main()\n{\n")
	say := func(name, expression string, value uintptr) {
		fmt.Fprintf(&program, "\tprintf(\"%s %%zu\\n\", (size_t)(%s));\n", name, expression)
		fmt.Fprintf(&want, "%s %d\n", name, value)
	}
	for _, twin := range twins {
		typ := reflect.TypeOf(twin)
		say(typ.Name(), "sizeof("+typ.Name()+")", typ.Size())
		for i := range typ.NumField() {
			if f := typ.Field(i); f.Name != "_" {
				say(typ.Name()+"."+f.Name, fmt.Sprintf("offsetof(%s, %s)", typ.Name(), snake(f.Name)), f.Offset)
			}
		}
	}
	for name, value := range map[string]uintptr{
		"max_ranks": MaxRanks, "max_blocks": MaxBlocks, "max_peers": MaxPeers, "streams": streams, "counters_bytes": countersBytes,
		"at_line": uintptr(AtLine), "at_head": uintptr(AtHead), "at_credit": uintptr(AtCredit),
		"probe_row": ProbeRow, "probe_flag": ProbeFlag, "first_pushes": FirstPushes, "second_pushes": SecondPushes,
	} {
		say(name, name, value)
	}
	program.WriteString("}\n")

	dir := t.TempDir()
	source, binary := filepath.Join(dir, "layout.cc"), filepath.Join(dir, "layout")
	if err := os.WriteFile(source, []byte(program.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// Nothing of the emulator is called, so nothing of it is linked.
	build := exec.Command(compiler, "-std=c++17", "-O1", "-w", "-I.", "-o", binary, source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	got, err := exec.Command(binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, []byte(want.String())) {
		t.Errorf("params.cuh has\n%swhere params.go has\n%s", got, want.String())
	}
}

var hump = regexp.MustCompile(`([a-z])([A-Z])`)

// snake is the name that a Go field has in C.
func snake(name string) string { return strings.ToLower(hump.ReplaceAllString(name, "${1}_${2}")) }
