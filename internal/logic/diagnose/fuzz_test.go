package diagnose

import (
	"math/rand/v2"
	"slices"
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// sound checks what holds of every report.
func sound(t *testing.T, r Report) {
	t.Helper()
	worst := StatusHealthy
	at := map[Reference]int{}
	for i, f := range r.Findings {
		if f.Code == "" || f.Component == "" || f.Explanation == "" || f.Remedy == "" || f.Also == nil || f.Affects == nil || f.Evidence == nil {
			t.Errorf("incomplete: %+v", f)
		}
		if !slices.Contains([]Severity{Fault, Warning, Notice, Blind}, f.Severity) {
			t.Errorf("%s is a %q", f.Code, f.Severity)
		}
		if f.CausedBy != nil {
			if j, told := at[*f.CausedBy]; !told || j >= i {
				t.Errorf("%s at %s stands before its cause %v", f.Code, f.Component, *f.CausedBy)
			}
		}
		if _, seen := at[f.reference()]; !seen {
			at[f.reference()] = i
		}
		switch f.Severity {
		case Fault:
			worst = StatusFault
		case Warning:
			worst = max(worst, StatusWarning)
		}
	}
	if r.Status != worst {
		t.Errorf("status %d, worst finding %d", r.Status, worst)
	}
}

func FuzzLog(f *testing.F) {
	for _, c := range ruleCases {
		if c.log != "" {
			f.Add(c.log)
		}
	}
	f.Fuzz(func(t *testing.T, log string) {
		m := box()
		logged(m, log)
		sound(t, Run(m, DefaultThresholds))
		bare := &machine.Machine{}
		logged(bare, log)
		sound(t, Run(bare, DefaultThresholds))
	})
}

// TestOddMachines: documents that no real machine would give do no harm.
func TestOddMachines(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		m := box()
		for range 1 + random.IntN(8) {
			d := m.Devices[random.IntN(len(m.Devices))]
			switch random.IntN(9) {
			case 0: // also cycles, and devices above themselves
				b := m.Devices[random.IntN(len(m.Devices))].BDF
				d.Parent = &b
			case 1:
				b := pcie.BDF{Bus: uint8(random.IntN(256)), Device: uint8(random.IntN(32))}
				d.Parent = &b
			case 2:
				d.Parent, d.ParentKnown = nil, random.IntN(2) == 0
			case 3:
				d.Registers = pcie.Registers{CapabilitiesDenied: random.IntN(2) == 0}
			case 4:
				d.Registers.Express.Port = pcie.PortType(random.IntN(14))
			case 5:
				d.Class.Code = []uint32{0x060400, 0x030200, 0x020000, 0x010802, 0, 0xffffff}[random.IntN(6)]
			case 6:
				d.Lost = true
			case 7:
				d.NUMA = nil
			case 8:
				d.Class.Known, d.Vendor.Known = false, false
			}
			if d.Registers.Express == nil {
				d.Registers.Express = &pcie.Express{}
			}
		}
		c := ruleCases[random.IntN(len(ruleCases))]
		if c.log != "" {
			logged(m, c.log)
		}
		t.Logf("seed %d", seed)
		sound(t, Run(m, DefaultThresholds))
		if t.Failed() {
			return
		}
	}
}
