package device

import (
	"os"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/bytesize"
	"ringlane/internal/run/communicator"
)

// Options tune a communicator on GPUs. They must be the same on all ranks.
type Options struct {
	// P2P says whether kernels write into the memory of other GPUs: "auto" where
	// that works, "off" never, "on" always, or the join fails.
	P2P string
	// Algorithm overrides the choice by size; see collective.ParseDeviceOverride.
	Algorithm string
	// Window is the memory that a rank has for each peer, in bytes; 0 leaves it
	// to the number of ranks.
	Window int
	// Islands says which ranks reach each other without leaving the PCIe switch
	// that they share: "auto" finds out, "off" takes all for one island; else see
	// collective.ParseIslands.
	Islands string
}

const (
	islandsAuto = "auto"
	islandsOff  = "off"
)

// Values of Options.P2P.
const (
	P2PAuto = "auto"
	P2POff  = "off"
	P2POn   = "on"
)

// Environment lists the variables that Join reads.
var Environment = []communicator.Variable{
	{Name: "RINGLANE_P2P", Meaning: "whether GPUs reach each other's memory: auto, off, on (default auto: where a test shows that it works)"},
	{Name: "RINGLANE_DEVICE_ALGO", Meaning: "how collectives on GPUs run, such as oneshot:line128:16x512 or direct:slot:32x576; parts may be left out (default auto)"},
	{Name: "RINGLANE_DEVICE_WINDOW", Meaning: "memory that a rank has for each peer on GPUs (default 128M on the GPU, or 32M of host memory, 56M between two ranks, for all peers together)"},
	{Name: "RINGLANE_DEVICE_ISLANDS", Meaning: "which ranks have GPUs below one PCIe switch, such as 0-3/4-7; auto, off (default auto: as measured, else as the PCIe tree says)"},
}

// optionsFrom reads the environment.
func optionsFrom(get func(string) string) (Options, collective.DeviceOverride, error) {
	o := Options{P2P: get("RINGLANE_P2P"), Algorithm: get("RINGLANE_DEVICE_ALGO"), Islands: get("RINGLANE_DEVICE_ISLANDS")}
	if o.Islands == "" {
		o.Islands = islandsAuto
	}
	switch o.P2P {
	case "":
		o.P2P = P2PAuto
	case P2PAuto, P2POff, P2POn:
	default:
		return o, collective.DeviceOverride{}, failf(communicator.Argument, "join: RINGLANE_P2P is %q (it is one of auto, off, on)", o.P2P)
	}
	override, err := collective.ParseDeviceOverride(o.Algorithm)
	if err != nil {
		return o, override, failf(communicator.Argument, "join: RINGLANE_DEVICE_ALGO: %v", err)
	}
	if text := get("RINGLANE_DEVICE_WINDOW"); text != "" {
		if o.Window, err = bytesize.Parse(text); err != nil {
			return o, override, failf(communicator.Argument, "join: RINGLANE_DEVICE_WINDOW: %v", err)
		}
	}
	return o, override, nil
}

func optionsFromProcess() (Options, collective.DeviceOverride, error) { return optionsFrom(os.Getenv) }
