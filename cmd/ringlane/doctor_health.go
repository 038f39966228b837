package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"ringlane/internal/logic/diagnose"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// The exit statuses of node-problem-detector's custom plugins.
const (
	detectorOK      = 0
	detectorProblem = 1
	detectorUnknown = 2
)

// detectorMessage is the length to which node-problem-detector cuts a message
// unless it is told otherwise (max_output_length).
const detectorMessage = 80

// detectorLine answers node-problem-detector: one short line.
func detectorLine(w io.Writer, m *machine.Machine, r diagnose.Report) (int, error) {
	status, text := detectorOK, "no PCIe fault"
	if r.Status == diagnose.StatusFault {
		status, text = detectorProblem, reason(m, r)
	}
	if cut := []rune(text); len(cut) > detectorMessage {
		text = string(cut[:detectorMessage-3]) + "..."
	}
	_, err := fmt.Fprintln(w, text)
	return status, err
}

// slurmLine prints the reason to drain the node, and nothing if there is none.
func slurmLine(w io.Writer, m *machine.Machine, r diagnose.Report) (int, error) {
	if r.Status != diagnose.StatusFault {
		return 0, nil
	}
	_, err := fmt.Fprintln(w, "ringlane: "+reason(m, r))
	return 1, err
}

// reason is the worst fault in one line: a lost GPU before any other lost
// device, and that before what else is wrong, with its cause behind it.
func reason(m *machine.Machine, r diagnose.Report) string {
	rank := func(f *diagnose.Finding) int {
		lost := f.Code == "device-lost"
		switch {
		case lost && isGPU(m, f.Component):
			return 0
		case lost:
			return 1
		}
		return 2
	}
	var worst *diagnose.Finding
	faults := map[diagnose.Reference]bool{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Severity != diagnose.Fault {
			continue
		}
		faults[diagnose.Reference{Code: f.Code, Component: f.Component}] = true
		if worst == nil || rank(f) < rank(worst) {
			worst = f
		}
	}
	if worst == nil {
		return ""
	}
	text, named := fmt.Sprintf("%s at %s", worst.Code, worst.Component), 1
	if c := worst.CausedBy; c != nil {
		port, _, _ := strings.Cut(c.Component, "<->")
		text += fmt.Sprintf(" after %s at %s", c.Code, port)
		if faults[*c] {
			named++
		}
	}
	if more := len(faults) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// isGPU reports whether the machine knows the component as a GPU; what only a
// log speaks of may be one.
func isGPU(m *machine.Machine, component string) bool {
	b, err := pcie.ParseBDF(component)
	if err != nil {
		return false
	}
	d := m.Device(b)
	return d == nil || d.IsGPU()
}

// slurmHealth drains the node that it runs on: Slurm leaves that to the
// program, which it gives 60 seconds.
type slurmHealth struct {
	node string
	run  func(name string, args ...string) (string, error)
}

func (s slurmHealth) check(w io.Writer, m *machine.Machine, r diagnose.Report) (int, error) {
	status, err := slurmLine(w, m, r)
	if status == 0 || err != nil {
		return status, err
	}
	state, err := s.run("scontrol", "show", "node", s.node)
	if err != nil {
		return status, fmt.Errorf("drain %s: %w (run this where scontrol works, as SlurmUser or root)", s.node, err)
	}
	if strings.Contains(state, "DRAIN") {
		return status, nil // somebody has, and gave a reason that is worth keeping
	}
	if _, err := s.run("scontrol", "update", "NodeName="+s.node, "State=DRAIN", "Reason=ringlane: "+reason(m, r)); err != nil {
		return status, fmt.Errorf("drain %s: %w (scontrol needs SlurmUser or root)", s.node, err)
	}
	return status, nil
}

// slurmNode is the name that Slurm has for this node.
func slurmNode() string {
	if name := os.Getenv("SLURMD_NODENAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}
