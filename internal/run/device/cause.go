package device

import (
	"slices"
	"strings"
	"sync"

	hardware "ringlane/internal/hardware/probe"
	"ringlane/internal/logic/diagnose"
)

// causes are what the doctor can say that makes peer access fail, the nearest
// cause first.
var causes = []diagnose.Code{"iommu-page-fault", "acs-redirect", "iommu-translated", "p2p-unavailable", "bar-unassigned", "device-lost"}

// diagnosis is what the doctor says of this machine. Only a way that fails asks.
var diagnosis = sync.OnceValue(func() []diagnose.Finding {
	m, err := hardware.Live("/")
	if err != nil {
		return nil
	}
	return diagnose.Run(m, diagnose.DefaultThresholds).Findings
})

// cause is what the doctor knows of peer access that fails between GPUs of two
// addresses, to follow what failed: " (acs-redirect at 0000:00:01.0: …)", or
// nothing.
func cause(a, b string) string { return causeIn(diagnosis(), a, b) }

func causeIn(findings []diagnose.Finding, a, b string) string {
	for _, code := range causes {
		for _, f := range findings {
			if f.Code == code && (slices.Contains(f.Affects, a) || slices.Contains(f.Affects, b)) {
				remedy, _, _ := strings.Cut(f.Remedy, "\n")
				return " (" + string(f.Code) + " at " + f.Component + ": " + remedy + ")"
			}
		}
	}
	return ""
}
