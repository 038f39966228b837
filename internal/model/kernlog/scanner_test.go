package kernlog

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestWrappedLines joins what a mail wrapped, with and without time.
func TestWrappedLines(t *testing.T) {
	for _, c := range []struct{ wrapped, whole string }{
		{"x 0000:03:00.0: PCIe Bus Error: severity=Corrected,\ntype=Physical Layer, (Receiver ID)", "x 0000:03:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"},
		{"x 0000:03:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer,\n(Receiver ID)", "x 0000:03:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"},
		{"pcieport 0000:00:1c.0: AER: Corrected error received:\n0000:03:00.0", "pcieport 0000:00:1c.0: AER: Corrected error received: 0000:03:00.0"},
		{"pcieport 0000:00:1c.0: AER: Correctable error message received from\n0000:03:00.0 (no details found)", "pcieport 0000:00:1c.0: AER: Correctable error message received from 0000:03:00.0 (no details found)"},
		{"pcieport 0000:00:1c.0: AER: device recovery\nfailed", "pcieport 0000:00:1c.0: AER: device recovery failed"},
		{"pci 0000:05:00.0: BAR 1: failed to assign [mem\nsize 0x10000000 64bit pref]", "pci 0000:05:00.0: BAR 1: failed to assign [mem size 0x10000000 64bit pref]"},
		{"pci 0000:61:00.0: 31.504 Gb/s available PCIe bandwidth,\nlimited by 8.0 GT/s PCIe x4 link at 0000:5e:02.0\n(capable of 63.008 Gb/s with 8.0 GT/s PCIe x8 link)",
			"pci 0000:61:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:5e:02.0 (capable of 63.008 Gb/s with 8.0 GT/s PCIe x8 link)"},
		{"xe 0000:05:00.0: Unable to change power state from\nD3cold to D0, device inaccessible", "xe 0000:05:00.0: Unable to change power state from D3cold to D0, device inaccessible"},
		{"pci_bus 0002:63: busn_res: can not insert [bus 63] under\n[bus 62-61] (conflicts with (null) [bus 62-61])", "pci_bus 0002:63: busn_res: can not insert [bus 63] under [bus 62-61] (conflicts with (null) [bus 62-61])"},
		{"acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug\nPME AER]", "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME AER]"},
	} {
		for _, carrier := range []string{"", "[    1.000000] ", "> [    1.000000] "} {
			quote := ""
			if strings.HasPrefix(carrier, ">") {
				quote = "> "
			}
			wrapped := Parse(carrier + strings.ReplaceAll(c.wrapped, "\n", "\n"+quote))
			whole := Parse(carrier + c.whole)
			if len(wrapped) != 1 || len(whole) != 1 || !reflect.DeepEqual(wrapped[0].Event, whole[0].Event) {
				t.Errorf("%q\ngives %+v\nwant %+v", c.wrapped, wrapped, whole)
			}
		}
	}
}

// TestWrappedLinesThatAreNot keeps lines apart that merely follow each other.
func TestWrappedLinesThatAreNot(t *testing.T) {
	entries := Parse("[ 1.0] pcieport 0000:00:1c.0: AER: device recovery\n[ 1.0] failed\n")
	if len(entries) != 0 {
		t.Errorf("a line with its own time was joined: %+v", entries)
	}
	entries = Parse("pcieport 0000:00:1c.0: AER: Corrected error received:\npcieport 0000:00:1d.0: AER: device recovery failed\n")
	if len(entries) != 2 || entries[0].Event.(AERError).Source != "" || entries[1].Device != "0000:00:1d.0" {
		t.Errorf("two devices were joined: %+v", entries)
	}
	entries = Parse("pcieport 0000:00:1c.0: AER: Corrected error received:\n0000:03:00.0: BAR 1: no space for [mem size 0x1000]\n")
	if len(entries) != 2 || entries[0].Event.(AERError).Source != "" || entries[1].Event.(Resource).State != NoSpace {
		t.Errorf("a line that begins with its address was joined: %+v", entries)
	}
}

func TestKmsgFields(t *testing.T) {
	entries := Parse(unindent(`
		3,1,1000000,-;pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
		 SUBSYSTEM=pci
		 DEVICE=+pci:0000:00:1c.0
		3,2,1000001,-;pcieport 0000:00:1c.0:   device [8086:1be0] error status/mask=00000001/00002000
		 SUBSYSTEM=pci
	`))
	if len(entries) != 1 || entries[0].Event.(AERError).Status != 1 {
		t.Errorf("records of /dev/kmsg: %+v", entries)
	}
}

const report = `____________________________________________

Start of NVIDIA bug report log file.  Please include this file

____________________________________________

*** /proc/version
Linux version 6.1.0 (somebody)

____________________________________________

journalctl -b -0:

Nov 15 12:43:10 host kernel: NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.

____________________________________________

/var/log/Xorg.0.log

[     1.000] pcieport 0000:00:1c.0: AER: enabled with IRQ 24

____________________________________________

dmesg:

[ 7613.978864] NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.
`

func TestBugReport(t *testing.T) {
	entries := Parse(report)
	if len(entries) != 2 {
		t.Fatalf("%d entries, want 2: %+v", len(entries), entries)
	}
	if a, b := entries[0], entries[1]; a.Section != "journalctl -b -0:" || b.Section != "dmesg:" || a.Part == b.Part || a.Event.(Xid) != b.Event.(Xid) {
		t.Errorf("sections: %+v", entries)
	}
	// Outside a report a rule of underscores is nothing.
	if entries := Parse(strings.Replace(report, "NVIDIA bug report", "something", 1)); len(entries) != 4 {
		t.Errorf("without its head: %d entries, want 4", len(entries))
	}
}

// TestWrite splits a text into pieces of every size.
func TestWrite(t *testing.T) {
	log := unindent(`
		[    1.0] pcieport 0000:00:1c.0: AER: Corrected error received: 0000:03:00.0
		[    1.0] x 0000:03:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
		[    1.0] x 0000:03:00.0:   device [8086:1be0] error status/mask=00000001/00002000

		[    2.0] pcieport 0000:3a:01.0: pciehp: Slot(12): Link Down`)
	want := Parse(log)
	if len(want) != 2 {
		t.Fatalf("%d entries, want 2", len(want))
	}
	for size := 1; size <= len(log); size++ {
		var got []Entry
		s := NewScanner(func(e Entry) { got = append(got, e) })
		for rest := log; rest != ""; {
			n := min(size, len(rest))
			s.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		s.Flush()
		slices.SortFunc(got, func(a, b Entry) int { return a.Line - b.Line })
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("in pieces of %d: %+v\nwant %+v", size, got, want)
		}
		if lines := s.Stats().Lines; lines != 5 {
			t.Fatalf("in pieces of %d: %d lines, want 5", size, lines)
		}
	}
}

func TestLongLine(t *testing.T) {
	var got []Entry
	s := NewScanner(func(e Entry) { got = append(got, e) })
	line := "[    1.0] NVRM: Xid (PCI:0000:03:00): 13, " + strings.Repeat("x", 10*MaxLine)
	for i := 0; i < len(line); i += 1000 {
		s.Write([]byte(line[i:min(i+1000, len(line))]))
	}
	s.Write([]byte("\n[    2.0] pcieport 0000:3a:01.0: pciehp: Slot(12): Link Down\n"))
	s.Flush()
	if len(got) != 2 || len(got[0].Raw[0]) != MaxLine || s.Stats().Cut != 1 || got[1].Line != 2 {
		t.Errorf("%d entries, stats %+v", len(got), s.Stats())
	}
}

// TestBounded feeds what would grow a careless reader: records of ever new
// devices, a record without end, boots without end.
func TestBounded(t *testing.T) {
	s := NewScanner(func(e Entry) {
		if len(e.Raw) > MaxRaw {
			t.Fatalf("an entry of %d lines", len(e.Raw))
		}
	})
	for i := range 5000 {
		s.Line(fmt.Sprintf("[ 1.0] pcieport 0000:%02x:%02x.%x: AER: Corrected error received: 0000:01:00.0", i>>8&0xff, i>>3&0x1f, i&7))
		s.Line(fmt.Sprintf("[ 1.0] x 0001:%02x:%02x.%x: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", i>>8&0xff, i>>3&0x1f, i&7))
		for fn := range openRecords {
			s.Line(fmt.Sprintf("[ 1.0] x 0002:%02x:00.%d: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", i&0xff, fn))
			s.Line(fmt.Sprintf("[ 1.0] pcieport 0003:%02x:00.%d: AER: Corrected error received: 0000:01:00.0", i&0xff, fn))
		}
		s.Line("[ 1.0] x 0002:00:00.0:    [ 0] RxErr")
		s.Line("[ 1.0] {1}[Hardware Error]:   slot: 0")
		s.Line("x 0003:00:00.0: nothing that anybody knows")
		s.Line("and goes on")
		if len(s.ports) > openRecords || len(s.records) > openRecords {
			t.Fatalf("%d ports and %d records are open", len(s.ports), len(s.records))
		}
	}
}

func TestStats(t *testing.T) {
	s := NewScanner(func(Entry) {})
	s.Line("[ 1.0] pci 0000:00:1c.0: PME# supported from D0 D3hot")
	s.Line("[ 1.0] pci 0000:00:1c.0: a line of a kernel to come")
	s.Line("[ 1.0] usb 1-1: nothing about PCIe")
	s.Flush()
	if got := s.Stats(); got != (Stats{Lines: 3, Ignored: 1, Unknown: 1}) {
		t.Errorf("stats %+v", got)
	}
}

func TestIgnoredHaveReasons(t *testing.T) {
	for _, family := range ignoredLines {
		if family.reason == "" || (family.prefix == "") == (family.mark == "") {
			t.Errorf("family %+v", family)
		}
	}
}
