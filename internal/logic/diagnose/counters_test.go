package diagnose

import (
	"strings"
	"testing"

	"ringlane/internal/model/machine"
)

// TestUncorrectedCounters: what the counters know and the log does not is said,
// and what both know is said once.
func TestUncorrectedCounters(t *testing.T) {
	nonfatal := func(address, bit string, n uint64) func(*machine.Machine) {
		return func(m *machine.Machine) {
			at(m, address).Counters = &machine.Counters{NonFatal: map[string]uint64{bit: n}, TotalNonFatal: n}
		}
	}
	fatal := func(address, bit string, n uint64) func(*machine.Machine) {
		return func(m *machine.Machine) {
			at(m, address).Counters = &machine.Counters{Fatal: map[string]uint64{bit: n}, TotalFatal: n}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*machine.Machine)
		log    string
		want   string // code and component of what is said of uncorrected errors
	}{
		{"non-fatal", nonfatal(gpuA, "CmpltTO", 3), "", "aer-nonfatal " + gpuA},
		{"fatal", fatal(gpuA, "DLP", 1), "", "aer-fatal " + gpuA},
		{"a total alone", func(m *machine.Machine) { at(m, gpuA).Counters = &machine.Counters{TotalFatal: 2} }, "", "aer-fatal " + gpuA},
		{"zero", nonfatal(gpuA, "CmpltTO", 0), "", ""},
		{"the log has it", nonfatal(gpuA, "TLP", 1), uncorrected("Non-Fatal", "nvidia", gpuA, 1<<12, ""), "aer-nonfatal " + gpuA},
		{"the log has another", nonfatal(gpuA, "CmpltTO", 1), uncorrected("Non-Fatal", "nvidia", gpuA, 1<<12, ""), "aer-nonfatal " + gpuA},
		{"the log shows software", nonfatal(gpuA, "UnsupReq", 9), uncorrected("Non-Fatal", "nvidia", gpuA, unsupReq, inBAR), "software-access " + gpuA},
		{"surprise down", fatal(portA, "SDES", 1), "", "surprise-down " + linkA},
		{"surprise down in the log too", fatal(portA, "SDES", 1), uncorrected("Fatal", "pcieport", portA, surprise, ""), "surprise-down " + linkA},
		{"removed and put back", fatal(portA, "SDES", 1), "[ 600.0] pcieport 0000:02:00.0: pciehp: Slot(3): Card not present\n" +
			"[ 700.0] pcieport 0000:02:00.0: pciehp: Slot(3): Card present", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := box()
			c.change(m)
			if c.log != "" {
				logged(m, c.log)
			}
			var got []string
			for _, f := range Run(m, DefaultThresholds).Findings {
				switch f.Code {
				case "aer-nonfatal", "aer-fatal", "software-access", "surprise-down", "error-latched":
					got = append(got, string(f.Code)+" "+f.Component)
				}
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("said %q, want %q", got, c.want)
			}
		})
	}
}

// TestFunctionsOfOneCard: each function of a card prints an error of its link.
func TestFunctionsOfOneCard(t *testing.T) {
	second := strings.Replace(gpuA, ".0", ".1", 1)
	log := func(apart float64) string {
		return merged(storm(portA, gpuA, "nvidia", " 0] RxErr", 1, 8, 5), stormFrom(1000+apart, portA, second, "snd_hda_intel", " 0] RxErr", 1, 8, 5))
	}
	for _, c := range []struct {
		log  string
		want Code
	}{
		{log(0.005), "aer-corrected-rare"},
		{log(2), "aer-corrected-storm"},
		{merged(log(0.005), stormFrom(1000.003, portA, portA, "pcieport", " 0] RxErr", 1, 8, 5)), "aer-corrected-rare"},
		{merged(storm(portA, gpuA, "nvidia", " 0] RxErr", 1, 12, 0.006), stormFrom(1000.003, portA, second, "snd_hda_intel", " 0] RxErr", 1, 12, 0.006)), "aer-corrected-storm"},
	} {
		m := box()
		logged(m, c.log)
		if r := Run(m, DefaultThresholds); len(withCode(r, c.want)) != 1 {
			t.Errorf("no %s; findings %v of\n%s", c.want, codesOf(r), c.log[:200])
		}
	}
}

// TestAdviceOfLostLink: the advice to keep the node ends with the loss of the card.
func TestAdviceOfLostLink(t *testing.T) {
	for lost, want := range map[string]string{
		"": "Now: keep the node",
		"[ 1100.5] NVRM: Xid (PCI:0000:03:00): 79, pid=1, GPU has fallen off the bus.\n": "Now: drain the node",
	} {
		m := box()
		logged(m, storm(rootPort, gpuA, "nvidia", " 0] RxErr", 1, 20, 1)+lost)
		found := withCode(Run(m, DefaultThresholds), "aer-corrected-storm")
		if len(found) != 1 || !strings.HasPrefix(found[0].Remedy, want) {
			t.Errorf("%d storms, want one with the advice %q: %+v", len(found), want, found)
		}
	}
}
