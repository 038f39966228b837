package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// sysTree builds a root directory with a /sys that has the symbolic links of a
// real one.
type sysTree struct {
	t    *testing.T
	root string
}

func (s sysTree) write(path, text string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s sysTree) link(path, target string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		s.t.Fatal(err)
	}
}

// device makes a device below others; path is "pci0000:00/0000:00:01.0".
func (s sysTree) device(path string, attributes map[string]string) {
	dir := "sys/devices/" + path
	for name, text := range attributes {
		s.write(dir+"/"+name, text)
	}
	s.link("sys/bus/pci/devices/"+filepath.Base(path), "../../../devices/"+path)
}

func newSysTree(t *testing.T) sysTree {
	s := sysTree{t, t.TempDir()}
	port := make([]byte, 64)
	copy(port, []byte{0x86, 0x80, 0x2a, 0x35, 6, 0, 0x10, 0, 0x20, 0, 4, 6, 0, 0, 1})
	port[0x19], port[0x1a] = 0x3b, 0x3b
	s.device("pci0000:3a/0000:3a:01.0", map[string]string{
		"vendor": "0x8086\n", "device": "0x352a\n", "class": "0x060400\n", "config": string(port), "numa_node": "1\n",
		"current_link_speed": "8.0 GT/s PCIe\n", "current_link_width": "8\n", "max_link_speed": "32.0 GT/s PCIe\n", "max_link_width": "16\n",
		"aer_dev_correctable":        "RxErr 0\nBadTLP 12\nBadDLLP 0\nRollover 0\nTimeout 3\nNonFatalErr 0\nCorrIntErr 0\nHeaderOF 0\nTOTAL_ERR_COR 15\n",
		"aer_dev_fatal":              "Undefined 0\nTOTAL_ERR_FATAL 0\n",
		"aer_dev_nonfatal":           "Completion Timeout 2\nTOTAL_ERR_NONFATAL 2\n",
		"aer_rootport_total_err_cor": "15\n", "aer_rootport_total_err_fatal": "0\n", "aer_rootport_total_err_nonfatal": "2\n",
	})
	s.device("pci0000:3a/0000:3a:01.0/0000:3b:00.0", map[string]string{
		"vendor": "0x10de\n", "device": "0x26b9\n", "class": "0x030200\n", "subsystem_vendor": "0x10de\n", "subsystem_device": "0x1851\n",
		"revision": "0xa1\n", "numa_node": "-1\n", "power_state": "D0\n",
		"current_link_speed": "Unknown\n", "current_link_width": "255\n", "max_link_speed": "16.0 GT/s PCIe\n", "max_link_width": "16\n",
		"resource": "0x00000000f8000000 0x00000000f8ffffff 0x0000000000040200\n" +
			"0x0000000000000000 0x0000000fffffffff 0x000000000014220c\n" +
			"0x0000000000000000 0x0000000000000000 0x0000000000000000\n",
	})
	s.link("sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0/driver", "../../../../bus/pci/drivers/nvidia")
	s.link("sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0/iommu_group", "../../../../kernel/iommu_groups/17")
	s.write("sys/kernel/iommu_groups/17/type", "DMA-FQ\n")
	s.write("sys/class/iommu/dmar0/x", "")
	s.write("sys/devices/system/node/node0/cpulist", "0-15\n")
	s.write("sys/devices/system/node/node1/cpulist", "16-31\n")
	s.write("sys/devices/system/node/node1/distance", "21 10\n")
	s.write("sys/devices/system/cpu/cpu16/topology/physical_package_id", "1\n")
	s.write("sys/class/dmi/id/sys_vendor", "Example\n")
	s.write("sys/class/dmi/id/product_name", "Box 4\n")
	s.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz ro iommu=pt\n")
	s.write("proc/sys/kernel/osrelease", "6.18.0\n")
	s.write("proc/uptime", "3600.25 100.0\n")
	return s
}

func TestSysfs(t *testing.T) {
	s := newSysTree(t)
	m, err := Live(s.root)
	if err != nil || len(m.Problems) != 1 || m.Problems[0].Class != machine.Denied {
		t.Fatalf("%v, problems %v", err, m.Problems)
	}
	port, gpu := m.Device(pcie.MustParseBDF("3a:01.0")), m.Device(pcie.MustParseBDF("3b:00.0"))
	if port == nil || gpu == nil || port.Parent != nil || !port.ParentKnown || *port.RootBus != 0x3a || *gpu.Parent != port.BDF || *gpu.RootBus != 0x3a {
		t.Fatalf("tree:\n%s", asJSON(m.Devices))
	}
	if !port.Registers.CapabilitiesDenied || port.Registers.Readable != 64 || port.Registers.Bridge.Secondary != 0x3b {
		t.Errorf("registers %+v", port.Registers)
	}
	if l, _ := port.Current(); l != (pcie.Link{Speed: pcie.Gen3, Width: 8}) {
		t.Errorf("current link %v", l)
	}
	if l, _ := port.Max(); l != (pcie.Link{Speed: pcie.Gen5, Width: 16}) {
		t.Errorf("max link %v", l)
	}
	if _, ok := gpu.Current(); ok {
		t.Error("an unknown link is known")
	}
	c := port.Counters
	if c == nil || !reflect.DeepEqual(c.Correctable, map[string]uint64{"BadTLP": 12, "Timeout": 3}) || c.TotalCorrectable != 15 ||
		!reflect.DeepEqual(c.NonFatal, map[string]uint64{"CmpltTO": 2}) || c.Root == nil || c.Root.NonFatal != 2 {
		t.Errorf("counters %+v", c)
	}
	if gpu.Counters != nil {
		t.Error("counters that were not there are zero")
	}
	if *gpu.NUMA != -1 || *port.NUMA != 1 || gpu.Driver != "nvidia" || *gpu.IOMMUGroup != 17 || gpu.IOMMUDomain != "DMA-FQ" || !gpu.IsGPU() {
		t.Errorf("GPU %s", asJSON(gpu))
	}
	if want := []machine.Resource{{Kind: machine.BAR, Address: 0xf8000000, Size: 16 << 20, State: machine.Assigned},
		{Kind: machine.BAR, Index: 1, Size: 64 << 30, Wide: true, Prefetchable: true, State: machine.Unassigned}}; !reflect.DeepEqual(gpu.Resources, want) {
		t.Errorf("resources:\n%s", differences(want, gpu.Resources))
	}
	if n := m.NUMANodes; len(n) != 2 || n[1].CPUs != "16-31" || *n[1].Socket != 1 || !reflect.DeepEqual(n[1].Distance, []int{21, 10}) || n[0].Socket != nil {
		t.Errorf("nodes %s", asJSON(n))
	}
	if !m.IOMMU.UnitsSeen || !reflect.DeepEqual(m.IOMMU.Units, []string{"dmar0"}) || m.CommandLine != "BOOT_IMAGE=/vmlinuz ro iommu=pt" ||
		m.Kernel != "6.18.0" || *m.UptimeSeconds != 3600.25 || m.Product != "Example Box 4" || m.Virtual.Likely() {
		t.Errorf("machine %s", asJSON(m))
	}
	// The same by way of --from, as root directory and as /sys.
	for _, dir := range []string{s.root, filepath.Join(s.root, "sys"), filepath.Join(s.root, "sys/bus/pci/devices")} {
		again, err := Read([]string{dir}, nil)
		if err != nil || len(again.Devices) != 2 || again.Device(gpu.BDF).Parent == nil {
			t.Errorf("%s: %v, %d devices", dir, err, len(again.Devices))
		}
	}
}

// One bad device never aborts the listing.
func TestSysfsBroken(t *testing.T) {
	s := newSysTree(t)
	for i, a := range []map[string]string{
		{"vendor": "", "config": ""},
		{"vendor": "garbage\n", "class": "0x\n", "numa_node": "many\n", "resource": "x y z\n\x00\xff"},
		{"vendor": "0x10de\n", "config": strings.Repeat("\xff", 4096)},
		{"vendor": "0x10de\n", "config": "short"},
	} {
		s.device(fmt.Sprintf("pci0000:50/0000:50:%02x.0", i), a)
	}
	if err := os.MkdirAll(filepath.Join(s.root, "sys/devices/pci0000:50/0000:50:1f.0/config"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.write("sys/devices/pci0000:50/0000:50:1f.0/vendor", "0x8086\n")
	s.link("sys/bus/pci/devices/0000:50:1f.0", "../../../devices/pci0000:50/0000:50:1f.0")
	s.link("sys/bus/pci/devices/0000:50:1e.0", "../../../devices/gone")
	s.write("sys/bus/pci/devices/README", "no device")
	m, err := Live(s.root)
	if err != nil || len(m.Devices) != 7 || m.Device(pcie.MustParseBDF("3b:00.0")).Driver != "nvidia" {
		t.Fatalf("%v, %d devices, %v", err, len(m.Devices), m.Problems)
	}
	if !m.Device(pcie.MustParseBDF("50:02.0")).Unreachable() {
		t.Error("all ones are not recognised")
	}
	if len(m.Problems) == 0 {
		t.Error("nothing is said of the broken devices")
	}
	if _, err := Live(t.TempDir()); err == nil {
		t.Error("an empty root is a machine")
	}
}

// This machine, whatever it is, can be read.
func TestLive(t *testing.T) {
	m, err := Live("/")
	if err != nil {
		t.Skipf("no PCI bus here: %v", err)
	}
	t.Logf("%d devices, problems %v", len(m.Devices), m.Problems)
}

// A copy that followed the links has directories for them, and often no
// configuration space: bus numbers tell what is below what.
func TestSysfsCopied(t *testing.T) {
	s := sysTree{t, t.TempDir()}
	const devices = "sys/bus/pci/devices/"
	for name, text := range map[string]string{
		"0000:40:01.0/vendor": "0x8086\n", "0000:40:01.0/class": "0x060400\n",
		"0000:40:01.0/secondary_bus_number": "65\n", "0000:40:01.0/subordinate_bus_number": "66\n",
		"0000:41:00.0/vendor": "0x10de\n", "0000:41:00.0/class": "0x030200\n",
		"0000:41:00.0/current_link_speed": "Unknown\n", "0000:41:00.0/current_link_width": "63\n", "0000:41:00.0/max_link_width": "255\n",
		"0000:42:00.0/vendor": "0x10de\n", "0000:42:00.0/class": "0x030200\n",
		"0000:42:00.0/current_link_speed": "Unknown\n", "0000:42:00.0/current_link_width": "255\n",
	} {
		s.write(devices+name, text)
	}
	m, err := Live(s.root)
	if err != nil {
		t.Fatal(err)
	}
	port, dead, mute := m.Device(pcie.MustParseBDF("40:01.0")), m.Device(pcie.MustParseBDF("41:00.0")), m.Device(pcie.MustParseBDF("42:00.0"))
	if want := (pcie.Bridge{Primary: 0x40, Secondary: 0x41, Subordinate: 0x42}); port.Registers.Bridge == nil || *port.Registers.Bridge != want {
		t.Errorf("bus numbers %+v", port.Registers.Bridge)
	}
	if dead.Parent == nil || *dead.Parent != port.BDF || !dead.ParentKnown {
		t.Errorf("parent %v", dead.Parent)
	}
	if _, ok := dead.Current(); ok || !dead.Unreachable() {
		t.Error("a width of 63 is a width")
	}
	if mute.Unreachable() {
		t.Error("a link that the kernel does not know is a dead device")
	}
}
