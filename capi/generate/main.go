// Command generate writes include/ringlane.h and capi/entry_gen.c from the
// exported functions of package capi: their signatures, their comments, and the
// constants of the Go packages behind them.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"strings"

	"ringlane/internal/model/dtype"
	"ringlane/internal/run/communicator"
)

func main() {
	log.SetFlags(0)
	header, entry, err := generate("capi_unsafe.go", "device_unsafe.go")
	if err != nil {
		log.Fatalf("generate: %v (run it by `go generate ./capi`)", err)
	}
	for path, text := range map[string][]byte{filepath.Join("..", "include", "ringlane.h"): header, "entry_gen.c": entry} {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			log.Fatalf("generate: %v", err)
		}
	}
}

// function is one entry of the ABI.
type function struct {
	name    string // without prefix
	doc     string
	returns string
	params  []param
}

type param struct{ name, typ, goes string } // goes is the type in Go

// inputs are the pointer parameters that the library only reads.
var inputs = map[string]bool{"in": true, "rendezvous": true, "job": true, "why": true, "ranks": true, "send_counts": true, "recv_counts": true, "messages": true}

// address is a pointer that is a number to Go.
const address = "C.rl_address"

var ctypes = map[string]string{
	"C.rl_comm": "rl_comm", "C.rl_device": "rl_device", "C.rl_request": "rl_request",
	"C.int32_t": "int32_t", "C.uint64_t": "uint64_t", "C.double": "double", address: "void *",
	"*C.rl_comm": "rl_comm *", "*C.rl_device": "rl_device *", "*C.rl_request": "rl_request *", "*C.rl_message": "rl_message *",
	"*C.int32_t": "int32_t *", "*C.uint64_t": "uint64_t *", "*C.char": "char *", "unsafe.Pointer": "void *", "*unsafe.Pointer": "void **",
}

func generate(sources ...string) (header, entry []byte, err error) {
	var functions []function
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		if err != nil {
			return nil, nil, err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "rlgo_") {
				continue
			}
			fn, err := describe(f)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", f.Name.Name, err)
			}
			functions = append(functions, fn)
		}
	}
	return writeHeader(functions), writeEntry(functions), nil
}

func describe(f *ast.FuncDecl) (function, error) {
	fn := function{name: strings.TrimPrefix(f.Name.Name, "rlgo_")}
	fn.doc = strings.TrimSpace(f.Doc.Text())
	if !strings.HasPrefix(fn.doc, "rl_"+fn.name+" ") {
		return fn, fmt.Errorf("its comment does not begin with rl_%s", fn.name)
	}
	if f.Type.Results == nil || len(f.Type.Results.List) != 1 {
		return fn, fmt.Errorf("it does not return one value")
	}
	fn.returns = ctypes[text(f.Type.Results.List[0].Type)]
	if fn.returns == "char *" {
		fn.returns = "const char *"
	}
	for _, field := range f.Type.Params.List {
		typ, ok := ctypes[text(field.Type)]
		if !ok {
			return fn, fmt.Errorf("no C type for %s", text(field.Type))
		}
		for _, n := range field.Names {
			t := typ
			if inputs[n.Name] {
				t = "const " + t
			}
			fn.params = append(fn.params, param{n.Name, t, text(field.Type)})
		}
	}
	return fn, nil
}

func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return "*" + text(e.X)
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}

func join(typ, name string) string {
	if strings.HasSuffix(typ, "*") {
		return typ + name
	}
	return typ + " " + name
}

func (fn function) prototype() string {
	var params []string
	for _, p := range fn.params {
		params = append(params, join(p.typ, p.name))
	}
	if params == nil {
		params = []string{"void"}
	}
	return fmt.Sprintf("%s(%s)", join(fn.returns, "rl_"+fn.name), strings.Join(params, ", "))
}

const generated = "/* Code generated from the exported functions of capi by `go generate ./capi`. DO NOT EDIT. */\n"

func writeHeader(functions []function) []byte {
	var b bytes.Buffer
	b.WriteString(generated)
	b.WriteString(`
/* Ringlane: collectives among the processes of one machine.
 *
 * Every function that returns int32_t returns RL_OK or a failure, whose story
 * rl_last_error tells. All may be called from any thread. One collective at a
 * time may be under way inside a blocking call of a communicator; another
 * thread's collective then fails with RL_EBUSY.
 *
 * A collective with request NULL returns when it is complete. Otherwise it is
 * started, and *request receives 0 if it is complete already, or a handle for
 * rl_wait and rl_test; its buffers must stay as they are until then. Counts are
 * in elements. Buffers need no alignment.
 *
 * The rl_device_ functions do the same on memory that a GPU reaches: each puts
 * its work into stream (a CUstream or cudaStream_t; NULL is the default one) and
 * returns. They can be captured into CUDA graphs. Calls of one device
 * communicator run in the order in which they are made, whatever their streams
 * and threads, and every rank makes the same; its host communicator may be used
 * in between. What goes wrong on the GPU is the status of a later call. */
#ifndef RINGLANE_H
#define RINGLANE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opaque handles; 0 is no communicator, and a request that is complete. */
typedef uint64_t rl_comm;
typedef uint64_t rl_device;
typedef uint64_t rl_request;

/* One send or receive of rl_device_exchange. */
typedef struct rl_message {
	void *buffer;
	uint64_t count;
	int32_t dtype;
	int32_t peer; /* the rank that it goes to or comes from */
	int32_t send; /* 1 is a send, 0 a receive */
} rl_message;

/* Status. */
enum {
	RL_OK = 0,
`)
	for _, c := range communicator.Codes {
		fmt.Fprintf(&b, "\tRL_E%s = %d, /* %v */\n", strings.ToUpper(c.Name()), int(c), c)
	}
	b.WriteString("};\n\n/* Element types. */\nenum {\n")
	for _, t := range dtype.Types {
		fmt.Fprintf(&b, "\tRL_%s = %d,\n", strings.ToUpper(t.String()), t)
	}
	b.WriteString("};\n\n/* Reduction operators. */\nenum {\n")
	for _, o := range dtype.Ops {
		fmt.Fprintf(&b, "\tRL_%s = %d,\n", strings.ToUpper(o.String()), o)
	}
	b.WriteString("};\n\n/* The text of the calling thread's last failure; valid until its next call. */\nconst char *rl_last_error(void);\n")
	for _, fn := range functions {
		fmt.Fprintf(&b, "\n/* %s */\n%s;\n", strings.ReplaceAll(fn.doc, "\n", "\n * "), fn.prototype())
	}
	b.WriteString("\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
	return b.Bytes()
}

func writeEntry(functions []function) []byte {
	var b bytes.Buffer
	b.WriteString(generated)
	b.WriteString("#include \"ringlane.h\"\n#include \"_cgo_export.h\"\n#include \"guard.h\"\n")
	for _, fn := range functions {
		var args []string
		for _, p := range fn.params {
			arg := p.name
			switch {
			case p.goes == address:
				arg = "(rl_address)" + p.name
			case strings.HasPrefix(p.typ, "const "):
				arg = fmt.Sprintf("(%s)%s", strings.TrimSpace(strings.TrimPrefix(p.typ, "const ")), p.name)
			}
			args = append(args, arg)
		}
		fmt.Fprintf(&b, "\n%s {\n", fn.prototype())
		if fn.returns == "int32_t" {
			fmt.Fprintf(&b, "\tif (rl_in_forked_child()) return rl_refuse_forked(\"rl_%s\");\n", fn.name)
		} else {
			b.WriteString("\tif (rl_in_forked_child()) return \"unknown\";\n")
		}
		fmt.Fprintf(&b, "\treturn rlgo_%s(%s);\n}\n", fn.name, strings.Join(args, ", "))
	}
	return b.Bytes()
}
