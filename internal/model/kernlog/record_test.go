package kernlog

import (
	"reflect"
	"strings"
	"testing"
)

// errorsOf gives the error records of a text.
func errorsOf(t *testing.T, text string) (entries []Entry, errors []AERError) {
	t.Helper()
	for _, e := range Parse(text) {
		if aer, ok := e.Event.(AERError); ok {
			entries, errors = append(entries, e), append(errors, aer)
		}
	}
	return entries, errors
}

func unindent(text string) string {
	return strings.ReplaceAll(strings.TrimPrefix(text, "\n"), "\t", "")
}

// TestAERWordings puts together the options of the wording, as kernels old and
// new combine them: each gives the same record.
func TestAERWordings(t *testing.T) {
	messages := []string{
		"AER: Multiple Corrected error received: id=0300",
		"AER: Multiple Corrected error received: 0000:03:00.0",
		"AER: Multiple Correctable error message received from 0000:03:00.0",
		"AER: Multiple Corrected error message received from 0000:03:00.0",
		"Multiple Correctable error message received from 0000:03:00.0",
	}
	heads := []string{
		"PCIe Bus Error: severity=Corrected, type=Data Link Layer, id=0300(Transmitter ID)",
		"PCIe Bus Error: severity=Corrected, type=Data Link Layer, id=0300 (Transmitter ID)",
		"PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
		"AER: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
		"PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter)",
	}
	bodies := []string{
		"  device [8086:1be0] error status/mask=00001100/00002000\n   [ 8] RELAY_NUM Rollover\n   [12] Replay Timer Timeout  (First)",
		"AER:   device [8086:1be0] error status/mask=00001100/00002000\nAER:    [ 8] Rollover\nAER:    [12] Timeout               (First)",
		"device [8086:1be0] error status/mask=00001100/00002000, devctl=0x000f\n[12] Timeout (First)",
	}
	want := AERError{
		Severity: Corrected, Layer: DataLinkLayer, Agent: Transmitter, Origin: Native,
		Port: "0000:00:01.0", Source: "0000:03:00.0", Multiple: true, Message: 1,
		Details: true, Status: 0x1100, Mask: 0x2000, First: 12, Vendor: 0x8086, ID: 0x1be0,
	}
	for _, message := range messages {
		for _, head := range heads {
			for _, body := range bodies {
				log := "[ 1.0] pcieport 0000:00:01.0: " + message + "\n"
				for _, piece := range append([]string{head}, strings.Split(body, "\n")...) {
					log += "[ 1.0] e1000e 0000:03:00.0: " + piece + "\n"
				}
				entries, errors := errorsOf(t, log)
				if len(errors) != 1 || !reflect.DeepEqual(errors[0], want) {
					t.Fatalf("%s\ngives %+v\nwant  %+v", log, errors, want)
				}
				if e := entries[0]; e.Device != "0000:03:00.0" || e.Line != 2 || len(e.Raw) < 3 {
					t.Fatalf("%s\nentry %+v", log, e)
				}
			}
		}
	}
}

func TestAERSeverities(t *testing.T) {
	for words, want := range map[string]Severity{
		"Corrected": Corrected, "Correctable": Corrected,
		"Uncorrected (Non-Fatal)": NonFatal, "Uncorrectable (Non-Fatal)": NonFatal,
		"Uncorrected (Fatal)": Fatal, "Uncorrectable (Fatal)": Fatal,
	} {
		_, errors := errorsOf(t, "x 0000:03:00.0: PCIe Bus Error: severity="+words+", type=Transaction Layer, (Requester ID)\n")
		if len(errors) != 1 || errors[0].Severity != want || errors[0].Agent != Requester {
			t.Errorf("%s: %+v", words, errors)
		}
	}
}

func TestAERHeader(t *testing.T) {
	log := func(tlp string) string {
		return "x 0000:03:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)\n" +
			"x 0000:03:00.0: AER:   TLP Header: " + tlp + "\n"
	}
	_, errors := errorsOf(t, log("40000001 0000000f b4c01000 00000000"))
	if want := []uint32{0x40000001, 0xf, 0xb4c01000, 0}; !reflect.DeepEqual(errors[0].TLP, want) || errors[0].AllOnes() {
		t.Errorf("header %x, want %x", errors[0].TLP, want)
	}
	_, errors = errorsOf(t, log("0x40000001 0x0000000f 0xb4c01000 0x00000000 0x1 0x2"))
	if len(errors[0].TLP) != 6 || errors[0].TLP[5] != 2 {
		t.Errorf("flit header %x", errors[0].TLP)
	}
	_, errors = errorsOf(t, log("ffffffff ffffffff ffffffff ffffffff"))
	if !errors[0].AllOnes() {
		t.Error("a header of ones is not seen as such")
	}
	_, errors = errorsOf(t, "x 0000:03:00.0: AER: CXL Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)\n")
	if !errors[0].AllOnes() || !errors[0].CXL || errors[0].Agent != Unregistered {
		t.Errorf("inaccessible: %+v", errors[0])
	}
}

func TestMessageWithoutDetails(t *testing.T) {
	for _, c := range []struct {
		name, log string
		device    Address
		count     int
	}{
		{"alone", "pcieport 0000:00:1c.1: AER: Correctable error message received from 0000:06:00.0\n", "0000:06:00.0", 1},
		{"told", "pcieport 0000:00:1c.1: AER: Correctable error message received from 0000:06:00.0 (no details found)\n", "0000:06:00.0", 1},
		{"told below", "pcieport 0000:00:1c.1: AER: Corrected error received: 0000:06:00.0\npcieport 0000:00:1c.1: AER: found no error details for 0000:06:00.0\n", "0000:06:00.0", 1},
		{"bogus source", "pcieport 0000:00:1c.1: AER: Corrected error received: 0000:00:00.0\n", "0000:00:1c.1", 1},
		{"source not found", "pcieport 0000:00:1c.1: AER: Corrected error received: id=0600\npcieport 0000:00:1c.1: AER: can't find device of ID0600\n", "0000:06:00.0", 1},
		{"two", strings.Repeat("pcieport 0000:00:1c.1: AER: Corrected error received: 0000:06:00.0\n", 2), "0000:06:00.0", 2},
	} {
		entries, errors := errorsOf(t, c.log)
		if len(errors) != c.count {
			t.Errorf("%s: %d records, want %d", c.name, len(errors), c.count)
			continue
		}
		for i, e := range errors {
			if e.Details || entries[i].Device != c.device || e.Port != "0000:00:1c.1" {
				t.Errorf("%s: %+v of %s, want one without details of %s", c.name, e, entries[i].Device, c.device)
			}
		}
	}
}

// TestBothEnds has both ends of a link answer one message, with another port's
// record and a stranger's line in between.
func TestBothEnds(t *testing.T) {
	entries, errors := errorsOf(t, unindent(`
		[    7.000001] pcieport 0000:00:1c.1: AER: Multiple Correctable error message received from 0000:00:1c.1
		[    7.000002] pcieport 0000:00:1c.1: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)
		[    7.000003] pcieport 0000:80:01.0: AER: Uncorrectable (Fatal) error message received from 0000:81:00.0
		[    7.000004] pcieport 0000:00:1c.1:   device [8086:7ab8] error status/mask=00000001/00002000
		[    7.000005] usb 1-1: reset high-speed USB device
		[    7.000006] pcieport 0000:00:1c.1:    [ 0] RxErr                  (First)
		[    7.000007] nvme 0000:81:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer, (Receiver ID)
		[    7.000008] pcieport 0000:00:1c.1: AER:   Error of this Agent is reported first
		[    7.000009] igc 0000:06:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Transmitter ID)
		[    7.000010] nvme 0000:81:00.0:   device [1c5c:2839] error status/mask=00000010/00000000
		[    7.000011] igc 0000:06:00.0:   device [8086:15f3] error status/mask=00001041/0000e000
		[    7.000012] nvme 0000:81:00.0:    [ 4] DLP                    (First)
	`))
	if len(errors) != 3 {
		t.Fatalf("%d records, want 3: %+v", len(errors), errors)
	}
	near, fatal, far := errors[0], errors[1], errors[2]
	if near.Message != 1 || far.Message != 1 || !near.Multiple || !far.Multiple || !near.ReportedFirst || near.Status != 1 || far.Status != 0x1041 {
		t.Errorf("ends of the link: %+v and %+v", near, far)
	}
	if fatal.Message != 3 || fatal.Status != 0x10 || fatal.Port != "0000:80:01.0" || entries[1].Device != "0000:81:00.0" {
		t.Errorf("the other port: %+v", fatal)
	}
}

func TestFilteredRecord(t *testing.T) {
	_, errors := errorsOf(t, unindent(`
		[    7.0] pcieport 0000:00:1c.5: AER:   device [8086:1be4] error status/mask=00001000/00002000
		[    7.0] pcieport 0000:00:1c.5: AER:    [12] Timeout
		[    7.1] pcieport 0000:00:1c.5: AER:   device [8086:1be4] error status/mask=00001000/00002000
		[    7.1] pcieport 0000:00:1c.5: AER:    [12] Timeout
	`))
	if len(errors) != 2 || errors[0].Status != 0x1000 || errors[0].Severity != Corrected || errors[0].Port != "" {
		t.Errorf("a record without head: %+v", errors)
	}
}

func TestFirmwareRecords(t *testing.T) {
	entries, errors := errorsOf(t, unindent(`
		[   61.250185] {9}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4
		[   61.250188] {9}[Hardware Error]: It has been corrected by h/w and requires no further action
		[   61.250190] {9}[Hardware Error]: event severity: corrected
		[   61.250191] {9}[Hardware Error]:  Error 0, type: corrected
		[   61.250191] perf: interrupt took too long
		[   61.250191] {9}[Hardware Error]:  fru_text: Slot7
		[   61.250192] {9}[Hardware Error]:   section_type: PCIe error
		[   61.250193] {9}[Hardware Error]:   port_type: 0, PCIe end point
		[   61.250195] {9}[Hardware Error]:   device_id: 0000:61:00.0
		[   61.250196] {9}[Hardware Error]:   slot: 7
		[   61.250196] {9}[Hardware Error]:   secondary_bus: 0x62
		[   61.250197] {9}[Hardware Error]:   vendor_id: 0x1c5c, device_id: 0x2839
		[   61.250198] {9}[Hardware Error]:   class_code: 020801
		[   61.250223] nvme 0000:61:00.0: AER: aer_status: 0x00000001, aer_mask: 0x00002000
		[   61.250227] nvme 0000:61:00.0:    [ 0] RxErr                  (First)
		[   61.250229] nvme 0000:61:00.0: AER: aer_layer=Physical Layer, aer_agent=Receiver ID
		[   90.382169] nvme 0000:61:00.0: aer_status: 0x00100000, aer_mask: 0x00000000
		[   90.382173] nvme 0000:61:00.0:    [20] UnsupReq               (First)
		[   90.382176] nvme 0000:61:00.0: aer_layer=Transaction Layer, aer_agent=Requester ID
		[   90.382176] nvme 0000:61:00.0: aer_uncor_severity: 0x00062030
	`))
	if len(errors) != 2 {
		t.Fatalf("%d records, want 2: %+v", len(errors), errors)
	}
	first, second := errors[0], errors[1]
	record := FirmwareRecord{Source: 4, Counter: 9, FRU: "Slot7", PortType: "PCIe end point", Device: "0000:61:00.0", Slot: 7, SecondaryBus: 0x62, Vendor: 0x1c5c, ID: 0x2839, Class: "020801"}
	if first.FirmwareRecord == nil || *first.FirmwareRecord != record {
		t.Errorf("firmware's part: %+v\nwant %+v", first.FirmwareRecord, record)
	}
	if first.Severity != Corrected || first.Status != 1 || first.Mask != 0x2000 || first.First != 0 || first.Layer != PhysicalLayer || first.Agent != Receiver || first.Origin != Firmware || entries[0].Line != 1 {
		t.Errorf("driver's part: %+v", first)
	}
	if second.FirmwareRecord != nil || second.Severity != NonFatal || second.UncorSeverity != 0x62030 {
		t.Errorf("driver lines alone: %+v", second)
	}
}

func TestFirmwareRecordAlone(t *testing.T) {
	entries := Parse(unindent(`
		[    1.0] BERT: Error records from previous boot:
		[    1.0] [Hardware Error]: event severity: fatal
		[    1.0] [Hardware Error]:  Error 0, type: fatal
		[    1.0] [Hardware Error]:   section_type: PCIe error
		[    1.0] [Hardware Error]:   port_type: 4, root port
		[    1.0] [Hardware Error]:   device_id: 0000:40:01.1
		[    1.0] [Hardware Error]:   aer_uncor_status: 0x00040000, aer_uncor_mask: 0x04500000
		[    1.0] [Hardware Error]:   TLP Header: 60000040 c20000ff 00000001 7a3c1000
		[    1.0] [Hardware Error]:  Error 1, type: recoverable
		[    1.0] [Hardware Error]:   section_type: memory error
		[    9.0] {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1
		[    9.0] {1}[Hardware Error]: event severity: info
		[    9.0] {1}[Hardware Error]:   section_type: memory error
	`))
	if len(entries) != 3 {
		t.Fatalf("%d entries, want 3: %+v", len(entries), entries)
	}
	aer, ok := entries[0].Event.(AERError)
	if !ok || aer.Severity != Fatal || aer.Origin != PreviousBoot || aer.Status != 0x40000 || aer.Mask != 0x4500000 || len(aer.TLP) != 4 || entries[0].Device != "0000:40:01.1" {
		t.Errorf("BERT: %+v", entries[0])
	}
	if memory := (FirmwareError{Severity: NonFatal, Section: "memory error", PreviousBoot: true}); entries[1].Event != memory {
		t.Errorf("second section: %+v, want %+v", entries[1].Event, memory)
	}
	if e, ok := entries[2].Event.(FirmwareError); !ok || e.PreviousBoot {
		t.Errorf("a running record after BERT: %+v", entries[2].Event)
	}
}

// TestFirmwareWords has both kinds of status words in one section: those of
// its severity count.
func TestFirmwareWords(t *testing.T) {
	const words = "{1}[Hardware Error]:   port_type: 4, root port\n" +
		"{1}[Hardware Error]:   aer_uncor_status: 0x00040000, aer_uncor_mask: 0x04500000\n" +
		"{1}[Hardware Error]:   aer_cor_status: 0x00002000, aer_cor_mask: 0x00006000\n" +
		"{1}[Hardware Error]:   aer_uncor_severity: 0x00062030\n"
	for severity, want := range map[string][2]uint32{
		"corrected": {0x2000, 0x6000}, "recoverable": {0x40000, 0x4500000}, "fatal": {0x40000, 0x4500000},
	} {
		_, errors := errorsOf(t, "{1}[Hardware Error]: event severity: "+severity+"\n"+words)
		if len(errors) != 1 || [2]uint32{errors[0].Status, errors[0].Mask} != want || errors[0].UncorSeverity != 0x62030 {
			t.Errorf("%s: %+v, want %x", severity, errors, want)
		}
	}
}

func TestContainment(t *testing.T) {
	for _, c := range []struct {
		lines string
		want  DPC
	}{
		{"DPC: containment event, status:0x1f01 source:0x0000\nDPC: unmasked uncorrectable error detected", DPC{Status: 0x1f01, Trigger: UnmaskedUncorrectable}},
		{"DPC: containment event, status:0x1f03 source:0x0200\nDPC: ERR_NONFATAL detected", DPC{Status: 0x1f03, Trigger: ErrNonFatal, Source: "0000:02:00.0"}},
		{"DPC: containment event, status:0x000d, ERR_FATAL received from 0000:02:00.0", DPC{Status: 0xd, Trigger: ErrFatal, Source: "0000:02:00.0"}},
		{"DPC: containment event, status:0x0009: unmasked uncorrectable error detected", DPC{Status: 9, Trigger: UnmaskedUncorrectable}},
		{"DPC: containment event, status:0x1f27 source:0x0000\nDPC: software trigger detected", DPC{Status: 0x1f27, Trigger: Software}},
		{"DPC: containment event, status:0x1f07 source:0x0000\nDPC: RP PIO error detected\nDPC: rp_pio_status: 0x00010000, rp_pio_mask: 0x00000303\nDPC: RP PIO severity=0x00000000, syserror=0x00000001, exception=0x00000002\nDPC: [16] CTO\nDPC: TLP Header: 0x1 0x2 0x3 0x4",
			DPC{Status: 0x1f07, Trigger: RPPIO, RPPIOStatus: 0x10000, RPPIOMask: 0x303, RPPIOSysError: 1, RPPIOException: 2, TLP: []uint32{1, 2, 3, 4}}},
		{"DPC: ERR_FATAL detected", DPC{Trigger: ErrFatal}},
	} {
		entries := Parse("pcieport 0000:01:00.0: " + strings.ReplaceAll(c.lines, "\n", "\npcieport 0000:01:00.0: "))
		if len(entries) != 1 || !reflect.DeepEqual(entries[0].Event, c.want) {
			t.Errorf("%s\ngives %+v\nwant %+v", c.lines, entries, c.want)
		}
	}
	_, errors := errorsOf(t, unindent(`
		[    1.0] pcieport 0000:80:01.0: AER: Uncorrected (Fatal) error received: 0000:81:00.0
		[    1.0] pcieport 0000:97:03.0: DPC: containment event, status:0x1f01 source:0x0000
		[    1.0] pcieport 0000:97:03.0: DPC: unmasked uncorrectable error detected
		[    1.0] pcieport 0000:97:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)
		[    1.0] pcieport 0000:97:03.0:   device [8086:352a] error status/mask=00000020/00100000
		[    1.0] pcieport 0000:97:03.0:    [ 5] SDES                   (First)
	`))
	if len(errors) != 2 || !errors[1].Contained || errors[1].Port != "" || errors[1].First != 5 || errors[0].Details {
		t.Errorf("the record of a contained port: %+v", errors)
	}
}

func TestTracepoint(t *testing.T) {
	for _, before := range []string{"", "<...>-123 [002] ....  12.345678: ", "Feb 29 13:47:22 host rasdaemon[12]: "} {
		entries, errors := errorsOf(t, before+"aer_event: 0000:03:00.0 PCIe Bus Error: severity=Corrected, Receiver Error, Replay Timer Timeout, TLP Header=Not available\n")
		if len(errors) != 1 || errors[0].Origin != Tracepoint || errors[0].Status != 0x1001 || errors[0].Severity != Corrected || entries[0].Device != "0000:03:00.0" {
			t.Errorf("%q: %+v", before, errors)
		}
	}
	_, errors := errorsOf(t, "aer_event: 0000:03:00.0 PCIe Bus Error: severity=Fatal, Malformed TLP, TLP Header={0x60000040,0xc20000ff,0x00000001,0x7a3c1000}\n")
	if len(errors) != 1 || errors[0].Severity != Fatal || errors[0].Status != 1<<18 || len(errors[0].TLP) != 4 {
		t.Errorf("fatal: %+v", errors)
	}
}

func TestProbeFailure(t *testing.T) {
	entries := Parse(unindent(`
		[    5.0] NVRM: The NVIDIA GPU 0000:05:00.0
		          NVRM: (PCI ID: 10de:2204) installed in this system has
		[    5.0] NVRM: fallen off the bus and is not responding to commands.
		[    6.0] NVRM: GPU 0000:05:00.0: GPU has fallen off the bus.
	`))
	if len(entries) != 2 || entries[0].Event != (GPULost{AtProbe: true}) || entries[0].Device != "0000:05:00.0" || entries[1].Event != (GPULost{}) {
		t.Errorf("probe failure: %+v", entries)
	}
}

func TestOSCOfBridge(t *testing.T) {
	entries := Parse(unindent(`
		[    1.0] ACPI: PCI Root Bridge [PC00] (domain 0000 [bus 00-3f])
		[    1.0] acpi PNP0A08:00: _OSC: platform does not support [AER LTR DPC]
		[    1.0] PCI host bridge to bus 0000:00
		[    1.0] ACPI: PCI Root Bridge [PC01] (domain 0000 [bus 40-7f])
		[    1.0] acpi PNP0A08:01: _OSC: OS now controls [AER]
	`))
	refused, ok := entries[1].Event.(OSC)
	if !ok || refused.Bus != "0000:00" || !refused.Has("AER") || refused.Has("PME") {
		t.Errorf("first bridge: %+v", entries[1])
	}
	if controls, ok := entries[4].Event.(OSC); !ok || controls.Bus != "0000:40" {
		t.Errorf("second bridge: %+v", entries[4])
	}
}
