package kernels

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var twins = []any{Geometry{}, Peer{}, Exchange{}, State{}, Fault{}, Control{}, Way{}, Probe{}, Seen{}, Flags{}, Turn{}}

var (
	structs = regexp.MustCompile(`(?s)struct (\w+) \{\n(.*?)\n\};`)
	comment = regexp.MustCompile(`//.*`)
	names   = regexp.MustCompile(`(\w+)(?:\[[^\]]*\])*[,;]`)
)

// TestParamsNames has every field that a kernel reads written by someone.
func TestParamsNames(t *testing.T) {
	fields := map[string][]string{}
	for _, file := range []string{"params.cuh", "probe.cuh", "engine.cuh"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range structs.FindAllStringSubmatch(string(text), -1) {
			for _, name := range names.FindAllStringSubmatch(comment.ReplaceAllString(s[2], ""), -1) {
				fields[s[1]] = append(fields[s[1]], name[1])
			}
		}
	}
	for _, twin := range twins {
		typ := reflect.TypeOf(twin)
		var ours []string
		for i := range typ.NumField() {
			if name := snake(typ.Field(i).Name); name == "_" {
				ours = append(ours, "unused")
			} else {
				ours = append(ours, name)
			}
		}
		if theirs := fields[typ.Name()]; !slices.Equal(ours, theirs) {
			t.Errorf("%s has the fields %v in C++ and %v in Go", typ.Name(), theirs, ours)
		}
	}
}

// TestParams has a C++ compiler say how it lays the structs of params.cuh out.
func TestParams(t *testing.T) {
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++ here: the structs of params.cuh are not compared with their Go twins")
	}
	var program, want strings.Builder
	program.WriteString("#include \"probe.cuh\"\n#include \"engine.cuh\"\n#include <cstddef>\nextern \"C\" int printf(const char *, ...);\nint main()\n{\n")
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
		"at_line": uintptr(AtLine), "at_head": uintptr(AtHead), "at_credit": uintptr(AtCredit), "at_piece": uintptr(AtPiece), "at_room": uintptr(AtRoom), "at_row": uintptr(AtRow), "flag_bytes": FlagBytes, "flag_emptied": FlagEmptied, "given_up": uintptr(FlagGivenUp),
		"row_bytes": RowBytes, "probe_flag": ProbeFlag, "first_pushes": FirstPushes, "second_pushes": SecondPushes, "first_verifies": FirstVerifies, "second_verifies": SecondVerifies,
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
