package probe

import (
	"reflect"
	"strings"
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

const matrix = "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n" +
	"GPU0\t X \tPXB\tPIX\t0-15,32-47\t0\t\tN/A\n" +
	"GPU1\tPXB\t X \tSYS\t16-31\t1\t\tN/A\n" +
	"NIC0\tPIX\tSYS\t X \t\t\t\t\n\n" +
	"Legend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n" +
	"  NV#  = Connection traversing a bonded set of # NVLinks\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"

func TestTopo(t *testing.T) {
	for name, in := range map[string]string{
		"tabs":   matrix,
		"blanks": strings.ReplaceAll(matrix, "\t", "        "),
		"crlf":   strings.ReplaceAll(matrix, "\n", "\r\n"),
		"quoted": "> " + strings.ReplaceAll(strings.TrimSuffix(matrix, "\n"), "\n", "\n> ") + "\n",
	} {
		m := read(in)
		if len(m.Problems) != 0 || !m.Saw(machine.KindTopo) || m.Saw(machine.KindKernelLog) {
			t.Errorf("%s: problems %v, inputs %v", name, m.Problems, m.Inputs)
		}
		zero, one := 0, 1
		want := &machine.Matrix{Kind: "topology", Names: []string{"GPU0", "GPU1", "NIC0"}, NICs: map[string]string{"NIC0": "mlx5_0"}, Rows: []machine.MatrixRow{
			{Name: "GPU0", Cells: []string{"X", "PXB", "PIX"}, CPUs: "0-15,32-47", NUMA: &zero},
			{Name: "GPU1", Cells: []string{"PXB", "X", "SYS"}, CPUs: "16-31", NUMA: &one},
			{Name: "NIC0", Cells: []string{"PIX", "SYS", "X"}},
		}}
		if !reflect.DeepEqual(m.Matrix, want) {
			t.Errorf("%s:\n%s", name, differences(want, m.Matrix))
		}
	}
	if c := read(matrix).Matrix.Cell("GPU1", "NIC0"); c != "SYS" {
		t.Errorf("cell %q", c)
	}
}

func TestTopoPeer(t *testing.T) {
	m := read(" \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n")
	if m.Matrix != nil || len(m.P2P) != 1 || m.P2P[0].Cell("GPU0", "GPU1") != "NS" || len(m.P2P[0].Rows) != 2 {
		t.Errorf("matrix %v, peers %+v", m.Matrix, m.P2P)
	}
	m = read("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X\n")
	if len(m.Problems) != 1 || m.Problems[0].Class != machine.Truncated {
		t.Errorf("short row: %v", m.Problems)
	}
}

const query = `
==============NVSMI LOG==============

Timestamp                                 : Tue Jan  6 10:00:00 2026
Driver Version                            : 580.10
CUDA Version                              : 13.0

Attached GPUs                             : 2
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA L40S
    MIG Mode
        Current                           : Enabled
        Pending                           : Disabled
    Serial Number                         : 1650000000001
    GPU UUID                              : GPU-11111111-2222-3333-4444-555555555555
    Minor Number                          : 1
    GPU Virtualization Mode
        Virtualization Mode               : Pass-Through
    PCI
        Device Id                         : 0x26B910DE
        Bus Id                            : 00000000:3B:00.0
        Sub System Id                     : 0x185110DE
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
                Device Current            : 1
                Device Max                : 4
                Host Max                  : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Replays Since Reset               : 7
        Replay Number Rollovers           : 0
    Performance State                     : P8
    FB Memory Usage
        Total                             : 46068 MiB
    BAR1 Memory Usage
        Total                             : 65536 MiB
    Clocks
        Graphics                          : 210 MHz
GPU 00000000:5E:00.0
    Product Name                          : Unknown Error
    PCI
        GPU Link Info
            PCIe Generation
                Current                   : N/A
    Performance State                     : GPU is lost
`

func TestQuery(t *testing.T) {
	m := read(query)
	if len(m.Problems) != 0 || m.Driver != (machine.Driver{Version: "580.10", CUDA: "13.0"}) || len(m.GPUs()) != 2 {
		t.Fatalf("problems %v, driver %v, %d GPUs", m.Problems, m.Driver, len(m.GPUs()))
	}
	zero, one, on, seven, none := 0, 1, true, uint64(7), uint64(0)
	d := m.Device(pcie.MustParseBDF("3b:00.0"))
	want := &machine.GPU{Index: &zero, Name: "NVIDIA L40S", UUID: "GPU-11111111-2222-3333-4444-555555555555", Serial: "1650000000001", Minor: &one,
		PState: "P8", MIG: &on, Virtualization: "Pass-Through", Replays: &seven, Rollovers: &none, Memory: 46068 << 20, BAR1: 64 << 30,
		Link: &machine.GPULink{Current: pcie.Link{Speed: pcie.Gen1, Width: 8}, Max: pcie.Link{Speed: pcie.Gen4, Width: 16}, DeviceMax: pcie.Gen4, HostMax: pcie.Gen5}}
	if !reflect.DeepEqual(d.GPU, want) {
		t.Errorf("GPU:\n%s", differences(want, d.GPU))
	}
	if !d.Of(machine.VendorNVIDIA) || d.Model.Code != 0x26b9 || d.SubsystemModel.Code != 0x1851 {
		t.Errorf("identity %+v %+v", d.Vendor, d.Model)
	}
	if l, ok := d.Current(); !ok || l.Width != 8 {
		t.Errorf("link %v", l)
	}
	if lost := m.GPUs()[1].GPU; lost.Broken != "GPU is lost" || lost.Link != nil || *lost.Index != 1 {
		t.Errorf("lost GPU %+v", lost)
	}
	if !m.Virtual.Likely() {
		t.Error("pass-through is no hint at a virtual machine")
	}
}

// The keys of one section do not leak into the next output.
func TestQueryThenLspci(t *testing.T) {
	m := read(query + "\n3b:00.0 3D controller: NVIDIA Corporation Device 26b9 (rev a1)\n\tNUMA node: 1\n\tKernel driver in use: nvidia\n\n[   12.000000] pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0\n")
	d := m.Device(pcie.MustParseBDF("3b:00.0"))
	if d.Driver != "nvidia" || *d.NUMA != 1 || d.GPU.Name != "NVIDIA L40S" || len(m.Log) == 0 {
		t.Errorf("device %s, %d log entries", asJSON(d), len(m.Log))
	}
}

// Where a GPU does not answer, one line is all that nvidia-smi prints.
func TestNoHandle(t *testing.T) {
	for _, c := range []struct{ line, broken string }{
		{"Unable to determine the device handle for GPU 0000:41:00.0: Unknown Error", "Unknown Error"},
		{"Unable to determine the device handle for GPU0000:41:00.0: Unknown Error", "Unknown Error"},
		{"Unable to determine the device handle for gpu 0000:41:00.0: Unknown Error", "Unknown Error"},
		{"Unable to determine the device handle for GPU3: 0000:41:00.0: GPU is lost.  Reboot the system to recover this GPU", "GPU is lost.  Reboot the system to recover this GPU"},
		{"Unable to determine the device handle for GPU 0000:41:00.0: Insufficient Permissions", ""},
	} {
		m := read(c.line + "\n")
		if !m.Saw(machine.KindQuery) || len(m.Problems) != 0 {
			t.Errorf("%s: not recognised: %v", c.line, m.Problems)
		}
		broken := ""
		if d := m.Device(pcie.MustParseBDF("0000:41:00.0")); d != nil && d.IsGPU() {
			broken = d.GPU.Broken
		}
		if broken != c.broken {
			t.Errorf("%s: broken %q, want %q", c.line, broken, c.broken)
		}
	}
	if m := read("Unable to determine the device handle for GPU: Not Found\n"); len(m.Devices) != 0 || m.Saw(machine.KindQuery) {
		t.Error("a line without address is taken")
	}
}
