package ordering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// operations are the methods and functions that a design must mirror, by the
// last part of their name.
var operations = []string{
	"Load", "Store", "Add", "Swap", "CompareAndSwap", "And", "Or", // sync/atomic
	"Publish", "FutexWait", "FutexWake", "Ring", "Glance", "look", "load", "clear",
}

// source lists, for every function of the channel packages with an operation in
// it, the operations and the accesses to plain words, in their order.
func source(t *testing.T) map[string][]string {
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"simple", "ll"} {
		more, err := filepath.Glob(filepath.Join("..", p, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	functions := map[string][]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			full := file.Name.Name + "."
			if f.Recv != nil {
				full += strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*") + "."
			}
			calls, touches := accesses(f.Body)
			if touches {
				functions[full+f.Name.Name] = calls
			}
		}
	}
	return functions
}

// accesses lists what body does, runs of the same as one, and says whether there
// is an operation among it.
func accesses(body ast.Node) (calls []string, touches bool) {
	ast.Inspect(body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ParenExpr: // a conversion to a pointer is no access
			return false
		case *ast.StarExpr:
			calls = append(calls, "*"+types.ExprString(node.X))
		case *ast.AssignStmt:
			for _, left := range node.Lhs {
				if at, ok := left.(*ast.IndexExpr); ok {
					calls = append(calls, types.ExprString(at.X)+"[]")
				}
			}
		case *ast.CallExpr:
			text := types.ExprString(node.Fun)
			if strings.HasPrefix(text, "(") { // a word made on the spot
				text = text[strings.LastIndex(text, ".")+1:]
			}
			if last := text[strings.LastIndex(text, ".")+1:]; slices.Contains(operations, last) {
				touches = true
				if last == "clear" {
					text = types.ExprString(node)
				}
				calls = append(calls, text)
			}
		}
		return true
	})
	return slices.Compact(calls), touches
}

// TestDesignsMirrorTheSource compares every function that a design writes down
// with the code: nothing in another order, nothing made up, nothing forgotten.
func TestDesignsMirrorTheSource(t *testing.T) {
	code := source(t)
	mirrored := map[string]map[string]bool{}
	for _, p := range designs {
		for function, bodies := range p.build(change{}).bodies {
			want, ok := code[function]
			if !ok {
				t.Fatalf("%s: there is no function %s that touches an atomic", p.name, function)
			}
			if mirrored[function] == nil {
				mirrored[function] = map[string]bool{}
			}
			for _, calls := range bodies {
				rest := want
				for _, call := range slices.Compact(slices.Clone(calls)) {
					mirrored[function][call] = true
					at := slices.Index(rest, call)
					if at < 0 {
						t.Fatalf("%s: %s does %q, the code %q", p.name, function, calls, want)
					}
					rest = rest[at+1:]
				}
			}
		}
	}
	for function, calls := range code {
		for _, call := range calls {
			if !mirrored[function][call] {
				t.Errorf("no design mirrors %s in %s", call, function)
			}
		}
	}
}
