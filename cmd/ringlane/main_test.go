package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"ringlane/internal/hardware/cuda/emulator"
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

// TestCommandLineOnGPUs runs testdata/gpu/*.txtar on two emulated GPUs.
func TestCommandLineOnGPUs(t *testing.T) {
	driver := emulator.Build(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/gpu",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TMPDIR", os.TempDir())
			env.Setenv("RINGLANE_CUDA_DRIVER", driver)
			env.Setenv("RINGLANE_EMULATOR", "gpus=2,sms=8,threads=256,memory=256M")
			return nil
		},
	})
}
