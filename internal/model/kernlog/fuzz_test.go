package kernlog

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func addSeeds(f *testing.F) {
	for _, c := range lines {
		f.Add([]byte("[    1.000000] " + c.text + "\n"))
		f.Add([]byte(c.text))
	}
	for _, seed := range []string{
		report,
		"<3>[ 1.0][ T1] pcieport 0000:00:1c.0: AER: Multiple Corrected error received: id=00e5\n",
		"3,1,1000000,-;pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected,\n SUBSYSTEM=pci\n type=Physical Layer, (Receiver ID)\n",
		"2024-02-29T13:47:22+0100 host kernel: pcieport 0000:00:1c.0: DPC: containment event, status:0x1f07 source:0x0000\n",
		"Feb 29 13:47:22 host kernel: {9}[Hardware Error]:   section_type: PCIe error\n",
		"> \x1b[31m[Feb29 13:47] x 0000:03:00.0: AER:   TLP Header: 40000001 0000000f\x1b[0m\r\n[  +0.1] x 0000:03:00.0:    [20] UnsupReq (First)\n",
		"x 0000:03:00.0: aer_status: 0x00100000, aer_mask: 0x00000000\nx 0000:03:00.0: aer_layer=Transaction Layer, aer_agent=Requester ID\n",
		"aer_event: 0000:03:00.0 PCIe Bus Error: severity=Fatal, Malformed TLP, TLP Header={0x60000040,0xc20000ff}\n",
		"NVRM: The NVIDIA GPU 0000:05:00.0\nNVRM: (PCI ID: 10de:2204) installed in this system has\nNVRM: fallen off the bus\n",
		"\x1b", "\x1b[", "x\x1b®", ">>>>", "{", "{1}", "[", "[[", ":::", "____________________________________________",
	} {
		f.Add([]byte(seed))
	}
}

// FuzzScanner holds what is true of any text: no panic, evidence that was in
// it and is short, addresses in canonical form, and the same events however the
// text is split.
func FuzzScanner(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, log []byte) {
		var whole []Entry
		s := NewScanner(func(e Entry) { whole = append(whole, e) })
		s.Write(log)
		s.Flush()
		for _, e := range whole {
			if e.Event == nil || e.Line < 1 || e.Line > s.stats.Lines || len(e.Raw) == 0 || len(e.Raw) > MaxRaw {
				t.Fatalf("entry %+v", e)
			}
			for _, raw := range e.Raw {
				if len(raw) > MaxLine || strings.ContainsAny(raw, "\x1b\r\n\x00") {
					t.Fatalf("evidence %q", raw)
				}
			}
			if e.Device != "" {
				if again, ok := ParseAddress(string(e.Device)); !ok || again != e.Device {
					t.Fatalf("address %q is not canonical", e.Device)
				}
			}
		}
		var split []Entry
		s = NewScanner(func(e Entry) { split = append(split, e) })
		for chunk := range slices.Chunk(log, 7) {
			s.Write(chunk)
		}
		s.Flush()
		if !reflect.DeepEqual(whole, split) {
			t.Fatalf("whole %+v\nsplit %+v", whole, split)
		}
		parsed := Parse(string(log))
		if len(parsed) != len(whole) {
			t.Fatalf("Parse gives %d entries, the scanner %d", len(parsed), len(whole))
		}
	})
}

// FuzzCarrier holds that what is left of a line is the end of it.
func FuzzCarrier(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, line []byte) {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		cleaned := clean(string(line))
		c := uncarry(cleaned)
		if !strings.HasSuffix(cleaned, c.text) {
			t.Fatalf("%q is not the end of %q", c.text, cleaned)
		}
		if s := c.stamp; s.mono < 0 || s.delta < 0 || s.mono > maxMono || s.delta > maxMono {
			t.Fatalf("stamp %+v", s)
		}
		if utf8.Valid(line) && !utf8.ValidString(cleaned) {
			t.Fatalf("%q is no text any more", cleaned)
		}
	})
}
