package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"ringlane/internal/hardware/probe"
	"ringlane/internal/logic/diagnose"
	"ringlane/internal/model/machine"
)

// A machine whose log grows from look to look.
func TestWatchReportsWhatChanges(t *testing.T) {
	quiet := "[    0.000000] Linux version 6.8.0 (gcc) #1 SMP\n[    1.000000] pci 0000:01:00.0: [10de:2684] type 00 class 0x030000 PCIe Endpoint\n"
	lost := quiet + "[ 4000.000000] NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
	for _, asJSON := range []bool{false, true} {
		logs := []string{quiet, quiet, lost, lost}
		ctx, stop := context.WithCancel(context.Background())
		var out bytes.Buffer
		w := watch{
			limits: diagnose.DefaultThresholds, json: asJSON, out: &out,
			now:  func() time.Time { return time.Date(2026, 11, 29, 3, 4, 5, 0, time.UTC) },
			look: func() (*machine.Machine, error) { return probe.Text("kernel log", strings.NewReader(logs[0])), nil },
			wait: func(time.Duration) {
				if logs = logs[1:]; len(logs) == 0 {
					stop()
				}
			},
		}
		status, err := w.run(ctx)
		if err != nil || status != diagnose.StatusFault {
			t.Errorf("status %d, %v", status, err)
		}
		if asJSON {
			var told struct {
				Time, Change string
				Finding      diagnose.Finding
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &told); err != nil {
				t.Fatal(err)
			}
			if told.Time != "2026-11-29T03:04:05Z" || told.Change != "new" || told.Finding.Code != "device-lost" {
				t.Errorf("the last line is %s", lines[len(lines)-1])
			}
			continue
		}
		_, after, ok := strings.Cut(out.String(), "Watching for changes")
		if !ok || strings.Count(after, "device-lost") != 1 || !strings.Contains(after, "03:04:05  new     fault  device-lost  0000:01:00.0") {
			t.Errorf("said:\n%s", out.String())
		}
	}
}
