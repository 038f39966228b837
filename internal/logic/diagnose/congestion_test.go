package diagnose

import (
	"slices"
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// TestCongestionInTime: links that were late in the same minutes are one
// congestion, whichever of them the log names first.
func TestCongestionInTime(t *testing.T) {
	const portC, gpuC = "0000:02:02.0", "0000:07:00.0"
	late := func(start float64, port, gpu string) string {
		return stormFrom(start, port, gpu, "nvidia", "12] Timeout", 1<<12, 3, 5)
	}
	for _, c := range []struct {
		name string
		log  string
		want []string // the links
	}{
		{"all at once", late(1000, portA, gpuA) + late(1020, portB, gpuB) + late(1040, portC, gpuC), []string{linkA, portB + separator + gpuB, portC + separator + gpuC}},
		{"the first one earlier, alone", late(1000, portA, gpuA) + late(9000, portB, gpuB) + late(9020, portC, gpuC), []string{portB + separator + gpuB, portC + separator + gpuC}},
		{"one after another", late(1000, portA, gpuA) + late(2000, portB, gpuB) + late(3000, portC, gpuC), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := box()
			addBelow(m, upstream, portB, portC)
			addBelow(m, portC, gpuB, gpuC)
			logged(m, c.log)
			var got []string
			for _, f := range withCode(Run(m, DefaultThresholds), "fabric-congestion") {
				got = append(got, f.Also...)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("congested %q, want %q", got, c.want)
			}
		})
	}
}

// addBelow adds a device like another of the box.
func addBelow(m *machine.Machine, parent, like, address string) {
	d := m.Add(pcie.MustParseBDF(address))
	b := d.BDF
	*d = *at(m, like)
	up := pcie.MustParseBDF(parent)
	d.BDF, d.Parent = b, &up
}
