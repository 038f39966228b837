package device

import (
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

func TestHealth(t *testing.T) {
	m := &machine.Machine{}
	a, b := pcie.BDF{Bus: 0x3b}, pcie.BDF{Bus: 0x5e}
	full, half := pcie.Link{Speed: pcie.Gen4, Width: 16}, pcie.Link{Speed: pcie.Gen4, Width: 8}
	m.Add(a).Link = &machine.KernelLink{Current: half, Max: full}
	m.Device(a).Counters = &machine.Counters{TotalCorrectable: 7, TotalFatal: 1}
	m.Add(b).Link = &machine.KernelLink{Current: full, Max: full}
	got := healthIn(m, []string{b.String(), a.String(), a.String(), "0000:99:00.0"})
	want := "; 0000:3b:00.0 has a link of " + half.String() + ", and could have " + full.String() +
		"; AER of 0000:3b:00.0 counts 7 correctable, 0 non-fatal, 1 fatal errors" +
		"; 0000:5e:00.0 has a link of " + full.String()
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
