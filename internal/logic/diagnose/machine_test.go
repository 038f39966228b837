package diagnose

import (
	"strings"
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// The healthy box of these tests: a switch with two GPUs below one root port,
// a NIC and a drive on root ports of their own.
//
//	00:01.0 ─ 01:00.0 ┬ 02:00.0 ─ 03:00.0 GPU
//	                  └ 02:01.0 ─ 04:00.0 GPU
//	00:02.0 ─ 05:00.0 NIC
//	00:03.0 ─ 06:00.0 NVMe
const (
	rootPort = "0000:00:01.0"
	upstream = "0000:01:00.0"
	portA    = "0000:02:00.0"
	portB    = "0000:02:01.0"
	gpuA     = "0000:03:00.0"
	gpuB     = "0000:04:00.0"
	nicPort  = "0000:00:02.0"
	nic      = "0000:05:00.0"
	nvmePort = "0000:00:03.0"
	nvme     = "0000:06:00.0"
)

var (
	gen4x16 = pcie.Link{Speed: pcie.Gen4, Width: 16}
	gen1x16 = pcie.Link{Speed: pcie.Gen1, Width: 16}
	gen4x8  = pcie.Link{Speed: pcie.Gen4, Width: 8}
	gen3x16 = pcie.Link{Speed: pcie.Gen3, Width: 16}
)

func box() *machine.Machine {
	m := &machine.Machine{Inputs: []machine.Input{{Name: "box", Kinds: []machine.Kind{machine.KindLspci, machine.KindKernelLog}}}}
	add := func(at, parent string, class uint32, port pcie.PortType, slot bool) *machine.Device {
		d := m.Add(pcie.MustParseBDF(at))
		d.ParentKnown = true
		if parent != "" {
			b := pcie.MustParseBDF(parent)
			d.Parent = &b
		}
		d.Class = machine.Class{Code: class, Known: true}
		d.Vendor = machine.ID{Code: machine.VendorIntel, Known: true}
		d.Model = machine.ID{Code: 0x1, Known: true}
		node := 0
		d.NUMA = &node
		d.Registers = pcie.Registers{
			Control:      &pcie.Control{Memory: true, BusMaster: true},
			Capabilities: []pcie.Capability{{ID: pcie.CapExpress}},
			AER:          &pcie.AER{},
			Express: &pcie.Express{
				Port: port, SlotImplemented: slot,
				DevCap: &pcie.DevCap{MaxPayload: 512}, DevCtl: &pcie.DevCtl{MaxPayload: 256}, DevSta: &pcie.DevSta{},
				LnkCap: &pcie.LnkCap{Link: gen4x16}, LnkCtl: &pcie.LnkCtl{}, LnkSta: &pcie.LnkSta{Link: gen4x16},
				LnkCtl2: &pcie.LnkCtl2{Target: pcie.Gen4},
			},
		}
		if port.Downward() {
			d.Registers.ACS = &pcie.ACS{Enabled: pcie.ACSSourceValidation | pcie.ACSUpstreamForwarding}
		}
		if class>>16 != 6 {
			d.Resources = []machine.Resource{{Kind: machine.BAR, Index: 0, Address: 0x9000_0000, Size: 0x10_0000, State: machine.Assigned}}
		}
		return d
	}
	add(rootPort, "", 0x060400, pcie.RootPort, true)
	add(upstream, rootPort, 0x060400, pcie.UpstreamPort, false)
	add(portA, upstream, 0x060400, pcie.DownstreamPort, true)
	add(portB, upstream, 0x060400, pcie.DownstreamPort, true)
	for _, p := range [][2]string{{gpuA, portA}, {gpuB, portB}} {
		add(p[0], p[1], 0x030200, pcie.Endpoint, false).Vendor = machine.ID{Code: machine.VendorNVIDIA, Known: true}
	}
	add(nicPort, "", 0x060400, pcie.RootPort, true)
	add(nic, nicPort, 0x020000, pcie.Endpoint, false).Vendor = machine.ID{Code: machine.VendorMellanox, Known: true}
	add(nvmePort, "", 0x060400, pcie.RootPort, true)
	add(nvme, nvmePort, 0x010802, pcie.Endpoint, false)
	m.Matrix = &machine.Matrix{Kind: "topology", Names: []string{"GPU0", "GPU1"}, Rows: []machine.MatrixRow{
		{Name: "GPU0", Cells: []string{"X", "PIX"}}, {Name: "GPU1", Cells: []string{"PIX", "X"}},
	}}
	m.P2P = []machine.Matrix{{Kind: "read", Names: m.Matrix.Names, Rows: []machine.MatrixRow{
		{Name: "GPU0", Cells: []string{"X", "OK"}}, {Name: "GPU1", Cells: []string{"OK", "X"}},
	}}}
	m.IOMMU.UnitsSeen = true
	return m
}

// at returns a device of the box.
func at(m *machine.Machine, address string) *machine.Device {
	return m.Device(pcie.MustParseBDF(address))
}

func express(m *machine.Machine, address string) *pcie.Express {
	return at(m, address).Registers.Express
}

// runs sets the negotiated link between two ends.
func runs(m *machine.Machine, l pcie.Link, ends ...string) {
	for _, e := range ends {
		express(m, e).LnkSta.Link = l
	}
}

// logged reads lines into the kernel log.
func logged(m *machine.Machine, lines string) {
	m.AddLog(machine.LogPart{Input: "dmesg"}, strings.Split(strings.TrimSpace(lines), "\n"))
}

func withCode(r Report, code Code) []Finding {
	var out []Finding
	for _, f := range r.Findings {
		if f.Code == code {
			out = append(out, f)
		}
	}
	return out
}

func TestHealthyBox(t *testing.T) {
	r := Run(box(), DefaultThresholds)
	for _, f := range r.Findings {
		if f.Severity != Notice {
			t.Errorf("%s %s %v %v", f.Severity, f.Code, f.Component, f.Evidence)
		}
	}
	if r.Status != StatusHealthy {
		t.Errorf("status %d", r.Status)
	}
}
