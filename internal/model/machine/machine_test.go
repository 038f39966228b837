package machine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"ringlane/internal/model/pcie"
)

func bdf(s string) pcie.BDF { return pcie.MustParseBDF(s) }

func known(code uint16) ID { return ID{Code: code, Known: true} }

// box is a machine with one GPU below a switch.
func box() *Machine {
	m := &Machine{CommandLine: "ro quiet", NUMANodes: []NUMANode{{ID: 0}}}
	root, up, down := bdf("00:01.0"), bdf("01:00.0"), bdf("02:00.0")
	for _, d := range []Device{
		{BDF: bdf("03:00.0"), Parent: &down, ParentKnown: true, Vendor: known(VendorNVIDIA), Model: known(0x26b9), Class: Class{Code: 0x030200, Known: true},
			GPU: &GPU{Name: "NVIDIA L40S", UUID: "GPU-1"}, Registers: pcie.Registers{Express: &pcie.Express{Port: pcie.Endpoint,
				LnkCap: &pcie.LnkCap{Link: pcie.Link{Speed: pcie.Gen4, Width: 16}}, LnkSta: &pcie.LnkSta{Link: pcie.Link{Speed: pcie.Gen4, Width: 16}}}}},
		{BDF: down, Parent: &up, ParentKnown: true, Class: Class{Code: 0x060400, Known: true}},
		{BDF: up, Parent: &root, ParentKnown: true, Class: Class{Code: 0x060400, Known: true}},
		{BDF: root, ParentKnown: true, Class: Class{Code: 0x060400, Known: true}},
	} {
		*m.Add(d.BDF) = d
	}
	m.AddLog(LogPart{Input: "log"}, []string{"[    1.000000] Linux version 6.18.0", "[   52.000000] NVRM: Xid (PCI:0000:03:00): 79, pid=1, name=x, GPU has fallen off the bus."})
	return m
}

// Devices stay sorted and single in whatever order they come.
func TestAdd(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	m := &Machine{}
	want := map[pcie.BDF]*Device{}
	for range 2000 {
		b := pcie.BDF{Domain: rng.Uint32N(3), Bus: uint8(rng.IntN(8)), Device: uint8(rng.IntN(8)), Function: uint8(rng.IntN(3))}
		d := m.Add(b)
		if old := want[b]; old != nil && old != d {
			t.Fatalf("%v was added twice", b)
		}
		want[b] = d
	}
	if len(m.Devices) != len(want) {
		t.Fatalf("%d devices, want %d", len(m.Devices), len(want))
	}
	for i, d := range m.Devices {
		if i > 0 && m.Devices[i-1].BDF.Compare(d.BDF) >= 0 {
			t.Fatalf("%v after %v", d.BDF, m.Devices[i-1].BDF)
		}
		if m.Device(d.BDF) != d {
			t.Fatalf("%v is not found", d.BDF)
		}
	}
	if m.Device(bdf("ffff:ff:1f.7")) != nil {
		t.Error("a device that is not there was found")
	}
}

func TestSaveLoad(t *testing.T) {
	m := box()
	var doc bytes.Buffer
	if err := m.Save(&doc); err != nil {
		t.Fatal(err)
	}
	text := doc.String()
	again, err := Load(&doc)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.Devices, m.Devices) || !reflect.DeepEqual(again.Log, m.Log) || !reflect.DeepEqual(again.LogParts, m.LogParts) {
		t.Errorf("came back as %+v", again)
	}
	var second bytes.Buffer
	if err := again.Save(&second); err != nil || second.String() != text {
		t.Errorf("the second document differs from the first: %v", err)
	}
	for in, want := range map[string]string{"": "EOF", "{}": "no version", `{"version":2}`: "newer", `{"version":1,"devices":[{"bdf":"x"}]}`: "address"} {
		if _, err := Load(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestTree(t *testing.T) {
	m := box()
	if c := m.Children(bdf("01:00.0")); len(c) != 1 || c[0].BDF != bdf("02:00.0") {
		t.Errorf("children %v", c)
	}
	if g := m.GPUs(); len(g) != 1 || g[0].Name() != "NVIDIA L40S" {
		t.Errorf("GPUs %v", g)
	}
}

func TestIsGPU(t *testing.T) {
	for name, c := range map[string]struct {
		d    Device
		want bool
	}{
		"data centre GPU":          {Device{Vendor: known(VendorNVIDIA), Class: Class{Code: 0x030200, Known: true}}, true},
		"GPU of older NCCL files":  {Device{Class: Class{Code: 0x030200, Known: true}}, true},
		"audio of a GPU":           {Device{Vendor: known(VendorNVIDIA), Class: Class{Code: 0x040300, Known: true}}, false},
		"NVSwitch":                 {Device{Vendor: known(VendorNVIDIA), Class: Class{Code: 0x068000, Known: true}}, false},
		"Instinct":                 {Device{Vendor: known(VendorAMD), Class: Class{Code: 0x120000, Known: true}}, true},
		"Radeon":                   {Device{Vendor: known(VendorAMD), Class: Class{Code: 0x030000, Known: true}}, true},
		"APU":                      {Device{Vendor: known(VendorAMD), Class: Class{Code: 0x030000, Known: true}, Model: ID{Name: "Raphael"}}, false},
		"graphics in an Intel CPU": {Device{BDF: bdf("00:02.0"), Vendor: known(VendorIntel), Class: Class{Code: 0x030000, Known: true}}, false},
		"management console":       {Device{Vendor: known(0x1a03), Class: Class{Code: 0x030000, Known: true}}, false},
		"emulated display":         {Device{Vendor: known(0x1234), Class: Class{Code: 0x030000, Known: true}}, false},
		"marked by nvidia-smi":     {Device{GPU: &GPU{}}, true},
		"seen in a tree":           {Device{Vendor: known(VendorNVIDIA), Model: ID{Name: "AD102GL [L40S]"}}, true},
		"NVSwitch in a tree":       {Device{Vendor: known(VendorNVIDIA), Model: ID{Name: "GH100 [H100 NVSwitch]"}}, false},
		"unknown":                  {Device{}, false},
	} {
		if got := c.d.IsGPU(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestEmulated(t *testing.T) {
	for name, c := range map[string]struct {
		d    Device
		want string
	}{
		"root port of QEMU":   {Device{Vendor: known(0x1b36), Model: known(0x000c)}, "QEMU"},
		"host bridge of QEMU": {Device{Vendor: known(VendorIntel), Model: known(0x29c0), SubsystemVendor: known(redHat), SubsystemModel: known(qemuChipset)}, "QEMU"},
		"real Q35":            {Device{Vendor: known(VendorIntel), Model: known(0x29c0), SubsystemVendor: known(0x1028)}, ""},
		"virtio":              {Device{Vendor: known(redHat), Model: known(0x1041)}, "virtio"},
		"GPU passed through":  {Device{Vendor: known(VendorNVIDIA), Model: known(0x2330)}, ""},
		"unknown":             {Device{}, ""},
	} {
		if got := c.d.Emulated(); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	m := &Machine{}
	port := bdf("00:02.0")
	*m.Add(port) = Device{BDF: port, Vendor: known(0x1b36), Model: known(0x000c)}
	m.Add(bdf("01:00.0")).Parent = &port
	if !m.EmulatedLink(bdf("01:00.0")) || !m.EmulatedLink(port) || m.EmulatedLink(bdf("05:00.0")) {
		t.Error("EmulatedLink is wrong")
	}
}

func TestDiff(t *testing.T) {
	a, b := box(), box()
	if c := Diff(a, b); len(c) != 0 {
		t.Errorf("nothing changed, but %v", c)
	}
	d := b.Device(bdf("03:00.0"))
	d.Registers.Express.LnkSta.Width = 8
	b.CommandLine = "ro"
	want := "[0000:03:00.0 registers.express.lnksta.width: 16 -> 8 command_line: ro quiet -> ro]"
	if got := fmt.Sprint(Diff(a, b)); got != want {
		t.Errorf("diff %s", got)
	}
}

// A GPU that kept its UUID is the same GPU at another address.
func TestDiffMoved(t *testing.T) {
	a, b := box(), box()
	at, old := bdf("05:00.0"), b.Device(bdf("03:00.0"))
	b.Devices = b.Devices[:3]
	moved := *old
	moved.BDF = at
	*b.Add(at) = moved
	got := Diff(a, b)
	if len(got) != 1 || got[0].Fact != "moved" || got[0].Old != "0000:03:00.0" || *got[0].Device != at {
		t.Errorf("diff %v", got)
	}
	// Another card in the same place is one removed and one added.
	c := box()
	c.Device(bdf("03:00.0")).GPU.UUID = "GPU-2"
	facts := map[string]int{}
	for _, change := range Diff(a, c) {
		facts[change.Fact]++
	}
	if facts["added"] != 1 || facts["removed"] != 1 || len(facts) != 2 {
		t.Errorf("exchange: %v", facts)
	}
}

func TestMatrixCell(t *testing.T) {
	m := &Matrix{Names: []string{"GPU0", "GPU1"}, Rows: []MatrixRow{{Name: "GPU0", Cells: []string{"X"}}}}
	if m.Cell("GPU0", "GPU0") != "X" || m.Cell("GPU0", "GPU1") != "" || m.Cell("GPU9", "GPU0") != "" || (*Matrix)(nil).Cell("a", "b") != "" {
		t.Error("Cell is wrong")
	}
}

// Without -nn lspci prints names only, and some of them in more than one way.
func TestEmulatedByName(t *testing.T) {
	for _, c := range []struct {
		d    Device
		want string
	}{
		{Device{Vendor: ID{Name: "Red Hat, Inc.", Code: redHat, Known: true}, Model: ID{Name: "QEMU PCIe Root port"}}, "QEMU"},
		{Device{Vendor: ID{Name: "Red Hat, Inc.", Code: redHat, Known: true}, Model: ID{Name: "Virtio network device"}}, "virtio"},
		{Device{Vendor: known(redHat), Model: known(0x1041)}, "virtio"},
		{Device{Model: ID{Name: "Bochs Graphics Adapter"}}, "QEMU"},
		{Device{Vendor: ID{Name: "Intel Corporation"}, SubsystemVendor: ID{Name: "Red Hat, Inc."}, SubsystemModel: ID{Name: "QEMU Virtual Machine"}}, "QEMU"},
		{Device{Vendor: ID{Name: "Microsoft Corporation"}, Model: ID{Name: "Hyper-V virtual VGA"}}, "Hyper-V"},
		{Device{Vendor: ID{Name: "VMware"}, Model: ID{Name: "PCI Express Root Port"}}, "VMware"},
		{Device{Vendor: ID{Name: "InnoTek Systemberatung GmbH"}, Model: ID{Name: "VirtualBox Graphics Adapter"}}, "VirtualBox"},
		{Device{Vendor: ID{Name: "XenSource, Inc."}, Model: ID{Name: "Xen Platform Device"}}, "Xen"},
		{Device{Vendor: ID{Name: "Amazon.com, Inc.", Code: VendorAmazon, Known: true}, Model: known(0x1111)}, "Amazon EC2"},
		{Device{Vendor: ID{Name: "Amazon.com, Inc."}, Model: ID{Name: "NVMe EBS Controller"}}, "Amazon EC2"},
		{Device{Vendor: ID{Name: "Google, Inc."}, Model: ID{Name: "Compute Engine Virtual Ethernet [gVNIC]"}}, "Google Compute Engine"},
		{Device{Vendor: ID{Name: "NVIDIA Corporation", Code: VendorNVIDIA, Known: true}, Model: ID{Name: "AD102GL [L40S]"}}, ""},
		{Device{Vendor: ID{Name: "Microsoft Corporation"}, Model: known(0xb111)}, ""},
		{Device{Vendor: ID{Name: "Intel Corporation"}, Model: ID{Name: "82443BX/ZX/DX Host bridge"}}, ""},
	} {
		if got := c.d.Emulated(); got != c.want {
			t.Errorf("%s: emulated by %q, want %q", c.d.Name(), got, c.want)
		}
	}
}

func TestRDMAByName(t *testing.T) {
	for _, c := range []struct {
		vendor ID
		model  ID
		class  uint32
		want   bool
	}{
		{ID{Name: "Broadcom Inc. and subsidiaries"}, ID{Name: "BCM57508 NetXtreme-E 10Gb/25Gb/40Gb/50Gb/100Gb/200Gb Ethernet"}, 0x020000, true},
		{ID{Name: "Broadcom Inc. and subsidiaries"}, ID{Name: "BCM57608 25Gb/50Gb/100Gb/200Gb/400Gb Ethernet"}, 0x020000, true},
		{ID{Name: "Broadcom Inc. and subsidiaries"}, ID{Name: "NetXtreme BCM5720 Gigabit Ethernet PCIe"}, 0x020000, false},
		{ID{Name: "Intel Corporation"}, ID{Name: "Ethernet Controller E810-C for QSFP"}, 0x020000, true},
		{ID{Name: "Intel Corporation"}, ID{Name: "I350 Gigabit Network Connection"}, 0x020000, false},
		{ID{}, ID{Name: "MT2910 Family [ConnectX-7]"}, 0x020000, true},
		{ID{}, ID{Name: "MT43244 BlueField-3 integrated ConnectX-7 network controller"}, 0x020000, true},
		{ID{}, ID{Name: "MT43244 BlueField-3 SoC Management Interface"}, 0x080100, false},
		{ID{Name: "Amazon.com, Inc."}, ID{Name: "Elastic Fabric Adapter (EFA)"}, 0x020000, true},
		{known(VendorAmazon), known(0xefa2), 0x020000, true},
		{known(VendorAmazon), known(0xec20), 0x020000, false},
	} {
		d := Device{Vendor: c.vendor, Model: c.model, Class: Class{Code: c.class, Known: true}}
		if got := d.IsRDMA(); got != c.want {
			t.Errorf("%s %04x: RDMA %v, want %v", d.Name(), d.Model.Code, got, c.want)
		}
	}
}
