package diagnose

import (
	"slices"
	"testing"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
)

const containedAt600 = `[  600.000] pcieport 0000:02:00.0: DPC: containment event, status:0x1f01 source:0x0000
[  600.001] pcieport 0000:02:00.0: DPC: unmasked uncorrectable error detected
[  600.002] pcieport 0000:02:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)
[  600.003] pcieport 0000:02:00.0:   device [10b5:8747] error status/mask=00040000/00180000
[  600.004] pcieport 0000:02:00.0:    [18] MalfTLP                (First)
`

const removedAt600 = `[  600.000] pcieport 0000:02:00.0: pciehp: Slot(3): Link Down
[  600.001] pcieport 0000:02:00.0: pciehp: Slot(3): Card not present
[  600.010] pcieport 0000:02:00.0: DPC: containment event, status:0x1f01 source:0x0000
[  600.011] pcieport 0000:02:00.0: DPC: unmasked uncorrectable error detected
[  600.012] pcieport 0000:02:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)
[  600.013] pcieport 0000:02:00.0:   device [10b5:8747] error status/mask=00000020/00180000
[  600.014] pcieport 0000:02:00.0:    [ 5] SDES                   (First)
`

var slotCases = []ruleCase{
	{code: "surprise-down", name: "link down, card present", want: linkA,
		log: "[  600.0] pcieport 0000:02:00.0: pciehp: Slot(3): Link Down\n[  601.0] pcieport 0000:02:00.0: pciehp: Slot(3): Card present"},
	{code: "surprise-down", name: "SDES", want: linkA,
		log: uncorrected("Fatal", "pcieport", portA, surprise, "")},
	{code: "surprise-down", name: "both lines of one event", want: linkA,
		log: uncorrected("Fatal", "pcieport", portA, surprise, "") + "[  500.1] pcieport 0000:02:00.0: pciehp: Slot(3): Link Down\n"},
	{code: "surprise-down", name: "a removal came first", log: removedAt600},
	{code: "surprise-down", name: "pulled out",
		log: "[  600.0] pcieport 0000:02:00.0: pciehp: Slot(3): Link Down\n[  600.1] pcieport 0000:02:00.0: pciehp: Slot(3): Card not present"},
	{code: "surprise-down", name: "by button",
		log: "[  600.0] pcieport 0000:02:00.0: pciehp: Slot(3): Button press: will power off in 5 sec\n[  605.0] pcieport 0000:02:00.0: pciehp: Slot(3): Link Down"},
	{code: "surprise-down", name: "DPC took it down",
		log: containedAt600 + "[  602.0] pcieport 0000:02:00.0: pciehp: Slot(3): Link Down"},

	{code: "dpc-contained", name: "contained", want: linkA, log: containedAt600},
	{code: "dpc-contained", name: "the driver starts",
		log: "[  1.0] pcieport 0000:02:00.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+ RP PIO Log 6, DL_ActiveErr+"},

	{code: "hotplug-removed", name: "removed", want: linkA, log: removedAt600},
	{code: "hotplug-removed", name: "inserted", want: linkA,
		log: "[  600.0] pcieport 0000:02:00.0: pciehp: Slot(3): Card present\n[  600.1] pcieport 0000:02:00.0: pciehp: Slot(3): Link Up"},
	{code: "hotplug-removed", name: "inserted, by the wall clock", want: linkA,
		log: "Nov 29 10:00:00 host kernel: pcieport 0000:02:00.0: pciehp: Slot(3): Card present\nNov 29 10:00:01 host kernel: pcieport 0000:02:00.0: pciehp: Slot(3): Link Up"},
	{code: "hotplug-removed", name: "found at boot, by the wall clock",
		log: "Nov 29 10:00:00 host kernel: Linux version 6.8.0\nNov 29 10:00:01 host kernel: pcieport 0000:02:00.0: pciehp: Slot(3): Card present"},
	{code: "hotplug-removed", name: "cards found at boot",
		log: "[  0.5] pcieport 0000:02:00.0: pciehp: Slot(3): Card present\n[  0.6] pcieport 0000:02:00.0: pciehp: Slot(3): Latch open"},
	{code: "hotplug-removed", name: "after a containment",
		log: containedAt600 + "[  602.0] pcieport 0000:02:00.0: pciehp: Slot(3): Card not present\n[  603.0] pcieport 0000:02:00.0: pciehp: Slot(3): Card present\n[  603.1] pcieport 0000:02:00.0: pciehp: Slot(3): Link Up"},
}

// TestCauses: each log is one chain of cause and consequence, and the report
// tells it in that order.
func TestCauses(t *testing.T) {
	for _, c := range []struct {
		name, log string
		status    int
		want      []string // code and what it follows from
	}{
		{"removal", removedAt600, StatusHealthy, []string{
			"hotplug-removed <- ", "aer-fatal <- hotplug-removed", "dpc-contained <- hotplug-removed"}},
		{"containment, then a lost GPU", containedAt600 + "[  600.5] NVRM: Xid (PCI:0000:03:00): 79, pid=1, GPU has fallen off the bus.\n",
			StatusFault, []string{"dpc-contained <- ", "aer-fatal <- dpc-contained", "device-lost <- dpc-contained"}},
		{"a payload that does not fit", `[  3.2] pci 0000:03:00.0: can't set Max Payload Size to 256; if necessary, use "pci=pcie_bus_safe" and report a bug` + "\n" + containedAt600,
			StatusFault, []string{"mps-mismatch <- ", "dpc-contained <- mps-mismatch", "aer-fatal <- dpc-contained"}},
		{"the effect is printed first", "[  599.9] NVRM: GPU 0000:03:00.0: GPU has fallen off the bus.\n" + containedAt600,
			StatusFault, []string{"dpc-contained <- ", "aer-fatal <- dpc-contained", "device-lost <- dpc-contained"}},
		{"lost after a storm", storm(rootPort, gpuA, "nvidia", " 0] RxErr", 1, 20, 1) + "[ 1030.5] NVRM: Xid (PCI:0000:03:00): 79, pid=1, GPU has fallen off the bus.\n",
			StatusFault, []string{"aer-corrected-storm <- ", "device-lost <- aer-corrected-storm"}},
		{"other Xids of a lost GPU", "[ 700.1] NVRM: Xid (PCI:0000:03:00): 119, pid=1, Timeout waiting for RPC from GSP0\n[ 700.5] NVRM: Xid (PCI:0000:03:00): 79, pid=1, GPU has fallen off the bus.\n",
			StatusFault, []string{"device-lost <- ", "gpu-fault <- device-lost"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := box()
			logged(m, c.log)
			r := Run(m, DefaultThresholds)
			var got []string
			for _, f := range r.Findings {
				if f.Code == "uplink-shared" || f.Severity == Blind {
					continue
				}
				cause := ""
				if f.CausedBy != nil {
					cause = string(f.CausedBy.Code)
				}
				got = append(got, string(f.Code)+" <- "+cause)
				if f.CausedBy != nil && f.CausedBy.Code == "hotplug-removed" && f.Severity != Notice {
					t.Errorf("%s follows from a removal and is a %s", f.Code, f.Severity)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("chain %q, want %q", got, c.want)
			}
			if r.Status != c.status {
				t.Errorf("status %d, want %d", r.Status, c.status)
			}
		})
	}
}

// TestLogAlone: without a tree a port may lead to the next bus, and to no other.
func TestLogAlone(t *testing.T) {
	const (
		pulled = "[ 900.0] pcieport 0000:40:02.0: pciehp: Slot(4): Card not present\n"
		down   = "[ 900.1] pcieport 0000:40:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)\n" +
			"[ 900.1] pcieport 0000:40:01.0:   device [8086:347a] error status/mask=00000020/00000000\n"
		lost = "[ 900.5] NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n"
		far  = "[ 900.5] NVRM: Xid (PCI:0000:a1:00): 79, pid=1, GPU has fallen off the bus.\n"
	)
	for _, c := range []struct {
		name, log string
		severity  Severity
		cause     Code
	}{
		{"the slot's own card", pulled + lost, Notice, "hotplug-removed"},
		{"a card far away", pulled + far, Fault, ""},
		{"another link of the bus went down", pulled + down + lost, Fault, "surprise-down"},
		{"no removal", down + lost, Fault, "surprise-down"},
		{"a link far away", down + far, Fault, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine.Machine{}
			logged(m, c.log)
			found := withCode(Run(m, DefaultThresholds), "device-lost")
			if len(found) != 1 {
				t.Fatalf("%d lost devices, want 1", len(found))
			}
			var cause Code
			if found[0].CausedBy != nil {
				cause = found[0].CausedBy.Code
			}
			if found[0].Severity != c.severity || cause != c.cause {
				t.Errorf("a %s after %q, want a %s after %q", found[0].Severity, cause, c.severity, c.cause)
			}
		})
	}
}

// TestBefore looks back through two texts of the same hours: in each it finds
// what is near, also behind what is too late, and not what is too old.
func TestBefore(t *testing.T) {
	var events []containment
	line := 0
	add := func(part int, seconds ...kernlog.Micros) {
		for _, s := range seconds {
			line++
			events = append(events, containment{index: line, entry: &kernlog.Entry{
				Line: line, Part: part, Time: kernlog.Timestamp{HasWall: true, Wall: s * kernlog.Second}}})
		}
	}
	add(0, 10, 90, 500)
	add(1, 20, 95, 100, 101)
	var got []kernlog.Micros
	for c := range before(events, events[5].entry) {
		got = append(got, c.entry.Time.Wall/kernlog.Second)
	}
	if want := []kernlog.Micros{95, 90}; !slices.Equal(got, want) {
		t.Errorf("before 100 s: %v, want %v", got, want)
	}
}

// TestOrder: cycles and dangling causes do no harm, and a mild cause of a fault
// stands before milder things.
func TestOrder(t *testing.T) {
	f := func(code Code, s Severity, cause Code) Finding {
		x := Finding{Code: code, Severity: s, Component: Host}
		if cause != "" {
			x.CausedBy = &Reference{cause, Host}
		}
		return x
	}
	got := order([]Finding{
		f("notice", Notice, ""), f("effect", Fault, "cause"), f("warning", Warning, ""), f("cause", Notice, ""),
		f("a", Warning, "b"), f("b", Warning, "a"), f("dangling", Fault, "nobody"),
	})
	var codes []string
	for _, x := range got {
		codes = append(codes, string(x.Code))
	}
	want := []string{"cause", "effect", "dangling", "warning", "a", "b", "notice"}
	if !slices.Equal(codes, want) {
		t.Errorf("order %q, want %q", codes, want)
	}
}
