package device

import (
	"fmt"
	"slices"

	hardware "ringlane/internal/hardware/probe"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// health says what the links and error counters of GPUs are like now, to follow
// what failed: "; 0000:3b:00.0 has …", or nothing where that cannot be seen.
func health(addresses ...string) string {
	m, err := hardware.Live("/")
	if err != nil {
		return ""
	}
	return healthIn(m, addresses)
}

func healthIn(m *machine.Machine, addresses []string) (text string) {
	slices.Sort(addresses)
	for _, address := range slices.Compact(addresses) {
		at, err := pcie.ParseBDF(address)
		if err != nil {
			continue
		}
		g := m.Device(at)
		if g == nil {
			continue
		}
		if link, ok := g.Current(); ok {
			text += fmt.Sprintf("; %s has a link of %v", address, link)
			if most, ok := g.Max(); ok && (link.Slower(most) || link.Narrower(most)) {
				text += fmt.Sprintf(", and could have %v", most)
			}
		}
		if c := g.Counters; c != nil {
			text += fmt.Sprintf("; AER of %s counts %d correctable, %d non-fatal, %d fatal errors", address, c.TotalCorrectable, c.TotalNonFatal, c.TotalFatal)
		}
	}
	return text
}
