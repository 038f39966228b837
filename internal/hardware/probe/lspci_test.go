package probe

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

func read(s string) *machine.Machine { return Text("test", strings.NewReader(s)) }

func asJSON(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	return string(b)
}

// differences shows the lines in which the JSON of two values differs.
func differences(want, got any) string {
	return lineDifferences(asJSON(want), asJSON(got))
}

func lineDifferences(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out strings.Builder
	for i := range max(len(wants), len(gots)) {
		w, g := "", ""
		if i < len(wants) {
			w = wants[i]
		}
		if i < len(gots) {
			g = gots[i]
		}
		if w != g {
			fmt.Fprintf(&out, "want %s\n got %s\n", w, g)
		}
	}
	return out.String()
}

// What the registers hold comes back from the text, whatever the version of
// lspci and whatever the text went through on its way.
func TestLspciRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	styles := map[string]style{
		"new":     {indent: "\t", eol: "\n"},
		"old":     {indent: "\t", eol: "\n", old: true},
		"blanks":  {indent: "        ", eol: "\n"},
		"one":     {indent: " ", eol: "\n"},
		"crlf":    {indent: "\t", eol: "\r\n"},
		"quoted":  {indent: "\t", eol: "\n", quote: "> "},
		"twice":   {indent: "  ", eol: "\r\n", quote: ">> "},
		"escaped": {indent: "\t", eol: "\x1b[0m\n", quote: "\x1b[1;32m"},
	}
	for name, s := range styles {
		for range 50 {
			want := randomRegisters(rng)
			out := render(s, "0000:3b:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20f1] (rev a1)", want)
			m := read(out)
			if len(m.Devices) != 1 || len(m.Problems) != 0 {
				t.Fatalf("%s: %d devices, problems %v from\n%s", name, len(m.Devices), m.Problems, out)
			}
			if got := &m.Devices[0].Registers; !reflect.DeepEqual(got, want) {
				t.Fatalf("%s:\n%sfrom\n%s", name, differences(want, got), out)
			}
		}
	}
}

// wrap breaks lines as mail programs do.
func wrap(text string, width int) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		for len(line) > width {
			i := strings.LastIndexByte(line[:width], ' ')
			if i < width/2 {
				break
			}
			out.WriteString(line[:i] + "\n")
			line = line[i+1:]
		}
		out.WriteString(line)
	}
	return out.String()
}

// Mail breaks lines anywhere; what finding codes rest on survives it.
func TestLspciWrapped(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range 200 {
		want := randomRegisters(rng)
		out := wrap(render(style{indent: "\t", eol: "\n"}, "0000:3b:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20f1] (rev a1)", want), 66+i%12)
		m := read(out)
		if len(m.Devices) != 1 {
			t.Fatalf("%d devices from\n%s", len(m.Devices), out)
		}
		got := &m.Devices[0].Registers
		if d := differences(want, got); d != "" {
			t.Fatalf("width %d:\n%sfrom\n%s", 66+i%12, d, out)
		}
	}
}

// A hexdump of the same device is believed more than the words around it.
func TestLspciHexdump(t *testing.T) {
	config := make([]byte, 256)
	copy(config, []byte{0xde, 0x10, 0xb9, 0x26, 6, 0, 0x10, 0, 0xa1, 0, 2, 3})
	copy(config[0x10:], []byte{0x00, 0x00, 0x00, 0xf8})
	config[0x34] = 0x60
	copy(config[0x60:], []byte{0x10, 0, 2, 0, 1, 0x80, 0, 0, 0x1f, 0x20, 0, 0, 4, 1, 0, 0, 0, 0, 1, 0x11}) // Gen4 x16, now Gen1 x16
	var dump strings.Builder
	for i := 0; i < len(config); i += 16 {
		fmt.Fprintf(&dump, "%02x: % x\n", i, config[i:i+16])
	}
	m := read("3b:00.0 3D controller: NVIDIA Corporation Device 26b9 (rev a1)\n" +
		"\tFlags: bus master, fast devsel, latency 0, IRQ 24, NUMA node 1, IOMMU group 17\n" +
		"\tMemory at f8000000 (32-bit, non-prefetchable) [size=16M]\n" +
		"\tCapabilities: [60] Express Endpoint, MSI 00\n" +
		"\tKernel driver in use: nvidia\n" + dump.String() + "\n")
	d := m.Device(pcie.MustParseBDF("3b:00.0"))
	if d == nil || len(m.Problems) > 0 {
		t.Fatalf("problems %v", m.Problems)
	}
	if l, ok := d.Current(); !ok || l != (pcie.Link{Speed: pcie.Gen1, Width: 16}) {
		t.Errorf("link %v", l)
	}
	if l, ok := d.Max(); !ok || l != (pcie.Link{Speed: pcie.Gen4, Width: 16}) {
		t.Errorf("can do %v", l)
	}
	if d.Registers.Readable != 256 || !d.Of(machine.VendorNVIDIA) || d.Model.Code != 0x26b9 || d.Class.Code != 0x030200 || !d.IsGPU() {
		t.Errorf("device %s", asJSON(d))
	}
	if *d.NUMA != 1 || *d.IOMMUGroup != 17 || d.Driver != "nvidia" {
		t.Errorf("flags: NUMA %v, group %v, driver %s", *d.NUMA, *d.IOMMUGroup, d.Driver)
	}
	if r := d.Resources; len(r) != 1 || r[0].Index != 0 || r[0].Size != 16<<20 || r[0].Address != 0xf8000000 {
		t.Errorf("resources %+v", r)
	}
	// A dump with a hole cannot be placed beyond it.
	lines := strings.SplitAfter(dump.String(), "\n")
	m = read("3b:00.0 3D controller: NVIDIA Corporation Device 26b9\n" + strings.Join(append(lines[:3:3], lines[4:]...), ""))
	if r := m.Devices[0].Registers; r.Readable != 48 {
		t.Errorf("%d bytes of a dump with a hole", r.Readable)
	}
}

func TestLspciHeaders(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"00:1f.0 ISA bridge: Intel Corporation Device 7a04 (rev 11)", "0000:00:1f.0 060100 8086:7a04 rev11"},
		{"0000:0e:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])", "0000:0e:00.0 060400 1000:???? revb0"},
		{"10000:e1:00.0 Non-Volatile memory controller [0108]: Samsung Electronics Co Ltd NVMe SSD [144d:a80a] (prog-if 02 [NVM Express])", "10000:e1:00.0 010802 144d:a80a"},
		{"3b:00.0 0302: 10de:2330 (rev a1)", "0000:3b:00.0 030200 10de:2330 reva1"},
		{"3b:00.0 Class 0302: 10de:2330 (rev a1)", "0000:3b:00.0 030200 10de:2330 reva1"},
		{"00:00.3 Generic system peripheral [0807]: Advanced Micro Devices, Inc. [AMD] Device 14a6", "0000:00:00.3 080700 1022:14a6"},
		{"05:00.0 3D controller: NVIDIA Corporation Device 20b0 (rev ff) (prog-if ff)", "0000:05:00.0 0302ff 10de:20b0 revff lost"},
		{"00:01.1/01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)", "0000:01:00.0 030000 10de:???? reva1 below 0000:00:01.1"},
		{`3b:00.0 "3D controller [0302]" "NVIDIA Corporation [10de]" "GH100 [2330]" -ra1 -p00 "NVIDIA Corporation [10de]" "Device [16c1]"`, "0000:3b:00.0 030200 10de:2330 reva1"},
		{"Slot:\t0000:3b:00.0\nClass:\t3D controller [0302]\nVendor:\tNVIDIA Corporation [10de]\nDevice:\tGH100 [2330]\nRev:\ta1\nNUMANode:\t1\n", "0000:3b:00.0 030200 10de:2330 reva1"},
	} {
		m := read(c.in + "\n")
		if len(m.Devices) != 1 {
			t.Errorf("%s: %d devices, %v", c.in, len(m.Devices), m.Problems)
			continue
		}
		d := m.Devices[0]
		id := func(i machine.ID) string {
			if !i.Known {
				return "????"
			}
			return fmt.Sprintf("%04x", i.Code)
		}
		got := fmt.Sprintf("%v %06x %s:%s", d.BDF, d.Class.Code, id(d.Vendor), id(d.Model))
		if d.Revision != nil {
			got += fmt.Sprintf(" rev%02x", *d.Revision)
		}
		if d.Lost {
			got += " lost"
		}
		if d.Parent != nil {
			got += " below " + d.Parent.String()
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.in, got, c.want)
		}
	}
	for _, in := range []string{"0000:3b:00.0", "00: de 10 06 1b 07 00 10 00 a1 00 00 03 00 00 80 00", "12:34.5 pm", "03:00.0 nothing with a colon",
		"10:20:30.1 host kernel: pci 0000:00:01.0: enabled", "ab:cd.e Thing: x"} {
		if m := read(in + "\n"); len(m.Devices) != 0 {
			t.Errorf("%q became a device: %v", in, m.Devices[0].BDF)
		}
	}
}

// What follows a listing is no part of its last device.
func TestLspciThenOther(t *testing.T) {
	const last = "3b:00.0 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
	for _, next := range []string{"user@example:~$ cat /proc/cmdline\n", "and then I tried the other slot, which did not help\n", "[   12.000000] pcieport 0000:3a:00.0: AER: enabled with IRQ 28\n"} {
		m := read(last + next)
		if len(m.Devices) != 1 || m.Devices[0].Model.Name != "MT2910 Family [ConnectX-7]" {
			t.Errorf("%q became part of %+v", next, m.Devices[0].Model)
		}
	}
}

func TestLspciRegions(t *testing.T) {
	for in, want := range map[string]string{
		"Region 0: Memory at 98000000 (32-bit, non-prefetchable) [size=16M]":            "bar 0 98000000 16777216 assigned",
		"Region 1: Memory at 27fe0000000 (64-bit, prefetchable) [disabled] [size=256M]": "bar 1 27fe0000000 268435456 disabled 64 pref",
		"Region 2: Memory at <unassigned> (64-bit, prefetchable) [size=128G]":           "bar 2 0 137438953472 unassigned 64 pref",
		"Region 3: [virtual] Memory at 90000000 (64-bit, non-prefetchable) [size=4K]":   "bar 3 90000000 4096 assigned 64",
		"Region 4: Memory at <ignored> (32-bit, non-prefetchable) [disabled]":           "bar 4 0 0 ignored",
		"Region 5: I/O ports at e000 [size=128]":                                        "bar 5 e000 128 assigned io",
		"I/O ports at <unassigned> [disabled]":                                          "bar -1 0 0 unassigned io",
		"Memory at f8000000 (32-bit, non-prefetchable) [size=16M]":                      "bar -1 f8000000 16777216 assigned",
		"[virtual] Expansion ROM at f9000000 [disabled] [size=512K]":                    "rom 6 f9000000 524288 disabled",
		"Expansion ROM at <ignored> [disabled]":                                         "rom 6 0 0 ignored",
		"Region 0: Memory at <broken-64-bit-slot> (64-bit, non-prefetchable) [size=1T]": "bar 0 0 1099511627776 unassigned 64",
	} {
		m := read("3b:00.0 3D controller: NVIDIA Corporation Device 2330\n\t" + in + "\n\n")
		r := m.Devices[0].Resources
		if len(r) != 1 {
			t.Errorf("%s: %+v", in, r)
			continue
		}
		got := fmt.Sprintf("%s %d %x %d %s", r[0].Kind, r[0].Index, r[0].Address, r[0].Size, r[0].State)
		for _, f := range []struct {
			on   bool
			name string
		}{{r[0].IO, " io"}, {r[0].Wide, " 64"}, {r[0].Prefetchable, " pref"}} {
			if f.on {
				got += f.name
			}
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", in, got, want)
		}
	}
}

// Without privilege the capabilities are unknown, and that is said.
func TestLspciDenied(t *testing.T) {
	m := read("3b:00.0 3D controller: NVIDIA Corporation Device 2330\n\tCapabilities: <access denied>\n\tKernel driver in use: nvidia\n\n")
	r := &m.Devices[0].Registers
	if !r.CapabilitiesDenied || r.ACS != nil || r.Express != nil || len(m.Problems) != 1 || m.Problems[0].Class != machine.Denied {
		t.Errorf("registers %+v, problems %v", r, m.Problems)
	}
	// A later run as root lifts it.
	m = read("3b:00.0 3D controller: NVIDIA Corporation Device 2330\n\tCapabilities: <access denied>\n\n" +
		"3b:00.0 3D controller: NVIDIA Corporation Device 2330\n\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n\n")
	if m.Devices[0].Registers.CapabilitiesDenied || len(m.Problems) != 0 {
		t.Errorf("still denied; problems %v", m.Problems)
	}
}

const tree = `-+-[0000:80]-+-00.0  Intel Corporation Device 09a2
 |           +-01.0-[81-84]----00.0-[82-84]--+-08.0-[83]--+-00.0  NVIDIA Corporation AD102GL [L40S]
 |           |                               |            \-00.1  NVIDIA Corporation AD102 High Definition Audio Controller
 |           |                               \-10.0-[84]----00.0  Mellanox Technologies MT2910 Family [ConnectX-7]
 |           \-02.0-[85]--
 \-[0000:00]---1f.0  Intel Corporation Device 7a04
`

func TestLspciTree(t *testing.T) {
	m := read(tree)
	got := map[string]string{}
	for _, d := range m.Devices {
		parent := "root " + fmt.Sprintf("%02x", *d.RootBus)
		if d.Parent != nil {
			parent = d.Parent.String()
		}
		if !d.ParentKnown {
			parent += "?"
		}
		got[d.BDF.String()] = parent
	}
	want := map[string]string{
		"0000:80:00.0": "root 80", "0000:80:01.0": "root 80", "0000:80:02.0": "root 80", "0000:81:00.0": "0000:80:01.0",
		"0000:82:08.0": "0000:81:00.0", "0000:82:10.0": "0000:81:00.0", "0000:83:00.0": "0000:82:08.0", "0000:83:00.1": "0000:82:08.0",
		"0000:84:00.0": "0000:82:10.0", "0000:00:1f.0": "root 00",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("tree:\n%s", differences(want, got))
	}
	if d := m.Device(pcie.MustParseBDF("83:00.0")); d.Model.Name != "AD102GL [L40S]" || !d.Of(machine.VendorNVIDIA) {
		t.Errorf("name %+v %+v", d.Vendor, d.Model)
	}
	if r := m.Device(pcie.MustParseBDF("80:01.0")).Registers.Bridge; r == nil || r.Secondary != 0x81 || r.Subordinate != 0x84 {
		t.Errorf("bridge %+v", r)
	}
	// Mail that squeezed the blanks makes a problem, not a wrong tree.
	squeezed := strings.ReplaceAll(tree, " |           ", " | ")
	m = read(squeezed)
	if len(m.Problems) == 0 {
		t.Error("a tree without columns was read as if it were whole")
	}
	for _, d := range m.Devices {
		if w, ok := want[d.BDF.String()]; !ok || d.Parent != nil && d.Parent.String() != w {
			t.Errorf("squeezed: %v below %v", d.BDF, d.Parent)
		}
	}
}

// A line that moved by some columns belongs to no bus that can be told.
func TestLspciTreeShifted(t *testing.T) {
	lines := strings.SplitAfter(tree, "\n")
	lines[3] = strings.Replace(lines[3], " |           |", " |           |  ", 1)
	m := read(strings.Join(lines, ""))
	if m.Device(pcie.MustParseBDF("84:00.0")) != nil || len(m.Devices) != 8 || len(m.Problems) != 1 || m.Problems[0].Line != 4 {
		t.Errorf("%d devices, problems %v", len(m.Devices), m.Problems)
	}
}

// Parents come from bus numbers where nothing else tells.
func TestParents(t *testing.T) {
	bridge := func(at string, primary, secondary, subordinate int) string {
		return fmt.Sprintf("%s PCI bridge: Broadcom / LSI Device c030\n\tBus: primary=%02x, secondary=%02x, subordinate=%02x, sec-latency=0\n\n", at, primary, secondary, subordinate)
	}
	m := read("00:00.0 Host bridge: Intel Corporation Device 09a2\n\n" + bridge("00:01.0", 0, 1, 5) + bridge("01:00.0", 1, 2, 5) + bridge("02:00.0", 2, 3, 3) +
		"03:00.0 3D controller: NVIDIA Corporation Device 26b9\n\n04:00.0 3D controller: NVIDIA Corporation Device 26b9\n\n" +
		"40:00.0 3D controller: NVIDIA Corporation Device 26b9\n\n" + bridge("00:02.0", 0, 0, 0))
	want := map[string]string{
		"0000:00:00.0": "root", "0000:00:01.0": "root", "0000:00:02.0": "root", "0000:01:00.0": "0000:00:01.0", "0000:02:00.0": "0000:01:00.0",
		"0000:03:00.0": "0000:02:00.0",
		"0000:04:00.0": "0000:01:00.0 or below", // the port with secondary 4 is not in the listing
		"0000:40:00.0": "unknown",
	}
	got := map[string]string{}
	for _, d := range m.Devices {
		switch {
		case d.Parent != nil && d.ParentKnown:
			got[d.BDF.String()] = d.Parent.String()
		case d.Parent != nil:
			got[d.BDF.String()] = d.Parent.String() + " or below"
		case d.ParentKnown:
			got[d.BDF.String()] = "root"
		default:
			got[d.BDF.String()] = "unknown"
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("parents:\n%s", differences(want, got))
	}
}

// Without SR-IOV capability only the name tells a virtual function.
func TestVirtualFunctionByName(t *testing.T) {
	const bar = "\tRegion 0: Memory at <unassigned> (64-bit, prefetchable)\n"
	m := read("05:00.0 Ethernet controller: Intel Corporation Ethernet Controller E810-C for QSFP\n" + bar +
		"\n05:01.0 Ethernet controller: Intel Corporation Ethernet Adaptive Virtual Function\n" + bar +
		"\n06:00.0 Ethernet controller: Intel Corporation Ethernet Adaptive Virtual Function\n" + bar)
	for _, c := range []struct {
		at, physical string
		bars         int
	}{{"05:00.0", "", 1}, {"05:01.0", "0000:05:00.0", 0}, {"06:00.0", "", 0}} {
		d := m.Device(pcie.MustParseBDF(c.at))
		physical := ""
		if d.PhysicalFunction != nil {
			physical = d.PhysicalFunction.String()
		}
		if physical != c.physical || len(d.Resources) != c.bars {
			t.Errorf("%s: physical function %q, %d BARs; want %q, %d", c.at, physical, len(d.Resources), c.physical, c.bars)
		}
	}
}
