package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/logic/drawing"
	"ringlane/internal/run/communicator"
	"ringlane/internal/run/device"
	"ringlane/internal/run/launch"
)

// measureRankCommand is what each rank of topo --measure runs.
const measureRankCommand = "measure-rank"

// measureTimeout is the deadline of the ranks: a GPU that has fallen off the bus
// keeps nobody waiting for ever.
const measureTimeout = 30 * time.Second

func newMeasureRankCommand() *cobra.Command {
	return &cobra.Command{
		Use:    measureRankCommand,
		Short:  "Try the paths of one GPU (started by topo --measure)",
		Hidden: true,
		Args:   noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			cfg, err := communicator.FromProcess()
			if err != nil {
				return err
			}
			c, err := communicator.Join(cfg)
			if err != nil {
				return err
			}
			d, err := device.Join(c, c.Rank())
			if err != nil {
				return errors.Join(err, c.Close())
			}
			if c.Rank() == 0 {
				err = json.NewEncoder(command.OutOrStdout()).Encode(d.Paths())
			}
			return errors.Join(err, d.Close(), c.Close())
		},
	}
}

// measureGPUs tries every pair of this machine's GPUs, by a rank on each.
func measureGPUs() ([]drawing.Measurement, error) {
	driver, err := cuda.Open()
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	gpus := driver.Devices()
	if len(gpus) < 2 {
		return nil, fmt.Errorf("measure: there is one GPU here, %v, and a path has two ends (does CUDA_VISIBLE_DEVICES hide others?)", gpus[0])
	}
	if len(gpus) > communicator.MaxRanks {
		return nil, fmt.Errorf("measure: there are %d GPUs, and at most %d can be measured (name them in CUDA_VISIBLE_DEVICES)", len(gpus), communicator.MaxRanks)
	}
	var paths []device.Path
	if err := startSelf(launch.Spec{
		Ranks: len(gpus), Environ: os.Environ(), Timeout: measureTimeout, Bind: launch.BindNone,
	}, func(line []byte) error { return json.Unmarshal(line, &paths) }, measureRankCommand); err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	var found []drawing.Measurement
	for _, p := range paths {
		m := drawing.Measurement{
			From: gpus[p.From].Address.String(), To: gpus[p.To].Address.String(), Path: drawing.PathHost, Why: p.Why,
			Push: p.Push, Pull: p.Pull, Latency: float64(p.Latency) / float64(time.Microsecond),
		}
		if p.Kind == device.Peer {
			m.Path = drawing.PathPeer
		}
		found = append(found, m)
	}
	return found, nil
}
