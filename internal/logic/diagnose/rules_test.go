package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// ruleCase is one machine on which a rule speaks, or must not.
type ruleCase struct {
	code   Code
	name   string
	change func(m *machine.Machine)
	log    string
	want   string // the component; "" if it must not be said
}

const (
	linkA    = portA + separator + gpuA
	nicLink  = nicPort + separator + nic
	nvmeLink = nvmePort + separator + nvme
	uplink   = rootPort + separator + upstream
)

// storm prints n corrected errors of a device, one each step seconds.
func storm(port, device, driver, bit string, status uint32, n int, step float64) string {
	return stormFrom(1000, port, device, driver, bit, status, n, step)
}

func stormFrom(start float64, port, device, driver, bit string, status uint32, n int, step float64) string {
	var b strings.Builder
	for i := range n {
		t := start + float64(i)*step
		fmt.Fprintf(&b, "[%12.6f] pcieport %s: AER: Corrected error received: %s\n", t, port, device)
		fmt.Fprintf(&b, "[%12.6f] %s %s: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)\n", t, driver, device)
		fmt.Fprintf(&b, "[%12.6f] %s %s:   device [10de:2204] error status/mask=%08x/00002000\n", t, driver, device, status)
		fmt.Fprintf(&b, "[%12.6f] %s %s:    [%s]\n", t, driver, device, bit)
	}
	return b.String()
}

// merged puts the lines of logs in the order of their times.
func merged(logs ...string) string {
	all := strings.Split(strings.TrimSpace(strings.Join(logs, "")), "\n")
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(a[:14], b[:14]) })
	return strings.Join(all, "\n") + "\n"
}

func uncorrected(severity, driver, device string, status uint32, tlp string) string {
	text := fmt.Sprintf(`[  500.000001] pcieport 0000:00:01.0: AER: Uncorrected (%[1]s) error received: %[3]s
[  500.000002] %[2]s %[3]s: PCIe Bus Error: severity=Uncorrected (%[1]s), type=Transaction Layer, (Requester ID)
[  500.000003] %[2]s %[3]s:   device [10de:2204] error status/mask=%08[4]x/00000000
`, severity, driver, device, status)
	if tlp != "" {
		text += fmt.Sprintf("[  500.000004] %s %s:   TLP Header: %s\n", driver, device, tlp)
	}
	return text
}

var ruleCases = slices.Concat(linkCases, peerCases, errorCases, slotCases, resourceCases, blindCases)

func TestRules(t *testing.T) {
	for _, c := range ruleCases {
		t.Run(string(c.code)+"/"+c.name, func(t *testing.T) {
			m := box()
			if c.change != nil {
				c.change(m)
			}
			if c.log != "" {
				logged(m, c.log)
			}
			r := Run(m, DefaultThresholds)
			found := withCode(r, c.code)
			switch {
			case c.want == "" && len(found) > 0:
				t.Errorf("said of %s: %v", found[0].Component, found[0].Evidence)
			case c.want != "" && len(found) == 0:
				t.Errorf("not said; findings: %v", codesOf(r))
			case c.want != "" && found[0].Component != c.want:
				t.Errorf("said of %s, want %s", found[0].Component, c.want)
			case c.want != "" && (len(found[0].Evidence) == 0 || found[0].Explanation == "" || found[0].Remedy == ""):
				t.Errorf("said without evidence, explanation or remedy: %+v", found[0])
			case len(found) > 1:
				t.Errorf("one incident is %d findings: %v", len(found), found)
			}
		})
	}
}

func codesOf(r Report) []string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, string(f.Code)+" "+f.Component)
	}
	return out
}

// TestEveryRuleTried keeps the table complete: each rule is true of one machine
// and must not be said of another.
func TestEveryRuleTried(t *testing.T) {
	for _, r := range Rules() {
		said, missed := false, false
		for _, c := range ruleCases {
			if c.code == r.Code {
				said = said || c.want != ""
				missed = missed || c.want == ""
			}
		}
		if !said || !missed {
			t.Errorf("%s: said %v, near miss %v", r.Code, said, missed)
		}
	}
}

// TestBlind: a rule whose facts are missing says so, and never that all is well.
func TestBlind(t *testing.T) {
	m := &machine.Machine{}
	for _, a := range []string{gpuA, gpuB} {
		d := m.Add(pcie.MustParseBDF(a))
		d.GPU = &machine.GPU{}
	}
	text := ""
	for _, f := range withCode(Run(m, DefaultThresholds), "not-measured") {
		text += strings.Join(f.Evidence, "\n") + "\n"
	}
	empty := Run(&machine.Machine{}, DefaultThresholds)
	for _, r := range Rules() {
		if r.Severity == Blind {
			continue
		}
		if len(r.Needs) == 0 {
			t.Errorf("%s needs no fact", r.Code)
		}
		if !strings.Contains(text, string(r.Code)) && !strings.Contains(fmt.Sprint(withCode(empty, "not-measured")), string(r.Code)) {
			t.Errorf("%s is silent where it sees nothing; blind: %s", r.Code, text)
		}
	}
	if empty.Status != StatusHealthy {
		t.Errorf("blind spots alone made the status %d", empty.Status)
	}
}
