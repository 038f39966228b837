// Command avo writes the assembly of package reduce to a folder: for each element type and
// instruction set one .s file with a routine for each operator, and a .go file
// that declares them. What a routine must compute is said in package reduce;
// how its loops run is said in loop.go.
package main

import (
	"fmt"
	"go/token"
	"go/types"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

// files lists for each element type the kernels that a file holds.
var files = []struct {
	typ     string
	kernels func(*assembler) []kernel
}{
	{"f32", f32Kernels},
	{"f64", f64Kernels},
	{"f16", f16Kernels},
	{"bf16", bf16Kernels},
	{"i8", i8Kernels},
	{"u8", u8Kernels},
	{"i32", i32Kernels},
	{"i64", i64Kernels},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: avo FOLDER")
		os.Exit(2)
	}
	for _, file := range files {
		for _, err := range []error{
			write(os.Args[1], file.typ, file.kernels, false),
			write(os.Args[1], file.typ, file.kernels, true),
			writeNEON(os.Args[1], file.typ),
		} {
			if err != nil {
				fmt.Fprintf(os.Stderr, "avo: write %s: %v\n", file.typ, err)
				os.Exit(1)
			}
		}
	}
}

func write(folder, typ string, kernels func(*assembler) []kernel, avx512 bool) error {
	a := &assembler{Context: build.NewContext(), avx512: avx512}
	set := "avx2"
	if avx512 {
		set = "avx512"
	}
	a.ConstraintExpr("amd64")
	signature, err := signature()
	if err != nil {
		return err
	}
	for _, k := range kernels(a) {
		a.Function(set + k.name)
		a.Pragma("noescape")
		a.Attributes(attr.NOSPLIT)
		a.Signature(signature)
		a.routine(k)
	}
	f, err := a.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(f); err != nil {
		return err
	}
	cfg := printer.Config{Name: "reduce/avo", Pkg: "reduce"}
	for ext, p := range map[string]printer.Printer{".s": printer.NewGoAsm(cfg), ".go": printer.NewStubs(cfg)} {
		text, err := p.Print(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, typ+"_"+set+"_amd64"+ext), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// parameters are those of every routine.
const parameters = "(dst, also *byte, srcs *Source, terms, lo, hi int, wide bool, scale uint64)"

// signature is that of every routine. Type Source is opaque here.
func signature() (*gotypes.Signature, error) {
	pkg := types.NewPackage("ringlane/internal/hardware/reduce", "reduce")
	source := types.NewTypeName(token.NoPos, pkg, "Source", nil)
	types.NewNamed(source, types.NewStruct(nil, nil), nil)
	pkg.Scope().Insert(source)
	return gotypes.ParseSignatureInPackage(pkg, "func"+parameters)
}
