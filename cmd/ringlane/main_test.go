package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ringlane": main})
}

// TestCommandLine runs testdata/*.txtar: what the commands say and how they end.
func TestCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TMPDIR", os.TempDir()) // the script's own folder is too long for sockets
			return nil
		},
	})
}
