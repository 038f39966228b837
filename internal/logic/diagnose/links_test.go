package diagnose

import (
	"slices"
	"strings"
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

const vendorQEMU = 0x1b36

func emulate(m *machine.Machine, ports ...string) {
	for _, p := range ports {
		at(m, p).Vendor.Code, at(m, p).Model.Code = vendorQEMU, 0x000c
	}
}

var linkCases = []ruleCase{
	{code: "link-degraded", name: "GPU at half its width", want: linkA,
		change: func(m *machine.Machine) { runs(m, gen4x8, portA, gpuA) }},
	{code: "link-degraded", name: "NIC one generation down", want: nicLink,
		change: func(m *machine.Machine) { runs(m, gen3x16, nicPort, nic) }},
	{code: "link-degraded", name: "busy GPU at low speed", want: linkA,
		change: func(m *machine.Machine) {
			runs(m, gen1x16, portA, gpuA)
			at(m, gpuA).GPU = &machine.GPU{PState: "P0", Link: &machine.GPULink{Current: gen1x16, Max: gen4x16}}
		}},
	{code: "link-degraded", name: "too few lanes below a port with a low target", want: nicLink,
		change: func(m *machine.Machine) {
			runs(m, pcie.Link{Speed: pcie.Gen3, Width: 8}, nicPort, nic)
			express(m, nicPort).LnkCtl2.Target = pcie.Gen3
		}},
	{code: "link-degraded", name: "soldered with fewer lanes, and a low target",
		change: func(m *machine.Machine) {
			runs(m, pcie.Link{Speed: pcie.Gen3, Width: 8}, nicPort, nic)
			express(m, nicPort).LnkCtl2.Target = pcie.Gen3
			express(m, nicPort).SlotImplemented = false
		}},
	{code: "link-degraded", name: "idle GPU at full width",
		change: func(m *machine.Machine) { runs(m, gen1x16, portA, gpuA) }},
	{code: "link-degraded", name: "the slot cannot do more",
		change: func(m *machine.Machine) {
			runs(m, gen4x8, portA, gpuA)
			express(m, portA).LnkCap.Link = gen4x8
		}},
	{code: "link-degraded", name: "soldered device",
		change: func(m *machine.Machine) {
			runs(m, gen4x8, nicPort, nic)
			express(m, nicPort).SlotImplemented = false
		}},
	{code: "link-degraded", name: "virtual port",
		change: func(m *machine.Machine) {
			runs(m, gen4x8, portA, gpuA)
			emulate(m, portA)
		}},
	{code: "link-degraded", name: "Thunderbolt port",
		change: func(m *machine.Machine) {
			runs(m, gen1x16, nicPort, nic)
			at(m, nicPort).Model.Name = "JHL7540 Thunderbolt 3 Bridge"
		}},
	{code: "link-degraded", name: "inside a switch chip",
		change: func(m *machine.Machine) { runs(m, gen1x16, portA); runs(m, gen4x16, gpuA) }},
	{code: "link-degraded", name: "the other end is not known",
		change: func(m *machine.Machine) {
			runs(m, gen4x8, nic)
			express(m, nicPort).LnkCap = nil
		}},

	{code: "link-idle-speed", name: "idle GPU", want: linkA,
		change: func(m *machine.Machine) { runs(m, gen1x16, portA, gpuA) }},
	{code: "link-idle-speed", name: "by nvidia-smi alone", want: gpuA,
		change: func(m *machine.Machine) {
			*at(m, gpuA) = machine.Device{BDF: at(m, gpuA).BDF, GPU: &machine.GPU{PState: "P8", Link: &machine.GPULink{Current: gen1x16, Max: gen4x16}}}
		}},
	{code: "link-idle-speed", name: "virtual port",
		change: func(m *machine.Machine) { runs(m, gen1x16, portA, gpuA); emulate(m, portA) }},
	{code: "link-idle-speed", name: "NIC at low speed",
		change: func(m *machine.Machine) { runs(m, gen1x16, nicPort, nic) }},

	{code: "link-narrow-slot", name: "x8 port", want: linkA,
		change: func(m *machine.Machine) {
			runs(m, gen4x8, portA, gpuA)
			express(m, portA).LnkCap.Link = gen4x8
		}},
	{code: "link-narrow-slot", name: "x8 port, and the GPU idles", want: linkA,
		change: func(m *machine.Machine) {
			runs(m, pcie.Link{Speed: pcie.Gen1, Width: 8}, portA, gpuA)
			express(m, portA).LnkCap.Link = gen4x8
		}},
	{code: "link-narrow-slot", name: "wired so", want: nicLink,
		change: func(m *machine.Machine) {
			runs(m, gen4x8, nicPort, nic)
			express(m, nicPort).SlotImplemented = false
		}},
	{code: "link-narrow-slot", name: "kernel line alone", want: nicLink,
		change: func(m *machine.Machine) {
			for _, a := range []string{nicPort, nic} {
				at(m, a).Registers.Express = nil
			}
		},
		log: "[  1.5] mlx5_core 0000:05:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:00:02.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"},
	{code: "link-narrow-slot", name: "the port could do more than the card",
		change: func(m *machine.Machine) {
			runs(m, gen3x16, nicPort, nic)
			express(m, nic).LnkCap.Link = gen3x16
		}},
	{code: "link-narrow-slot", name: "a switch's own endpoint",
		change: func(m *machine.Machine) {
			apart(m)
			b := pcie.MustParseBDF(portB)
			d, p := m.Add(pcie.MustParseBDF("0000:0c:00.0")), m.Add(b)
			*p = *at(m, portA)
			p.BDF, d.Parent = b, &b
			wired := *express(m, portA)
			wired.SlotImplemented, wired.LnkCap, wired.LnkSta = false, &pcie.LnkCap{Link: pcie.Link{Speed: pcie.Gen1, Width: 1}}, &pcie.LnkSta{Link: pcie.Link{Speed: pcie.Gen1, Width: 1}}
			p.Registers.Express = &wired
			own := *express(m, nvme)
			own.LnkSta = wired.LnkSta
			d.Registers.Express = &own
			d.Vendor, d.Class = p.Vendor, machine.Class{Code: 0x088000, Known: true}
		}},
	{code: "link-narrow-slot", name: "what a Thunderbolt port always says",
		log: "[  1.5] mlx5_core 0000:0a:00.0: 8.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x4 link at 0000:09:01.0 (capable of 31.504 Gb/s with 8.0 GT/s PCIe x4 link)"},

	{code: "link-target-capped", name: "target below both ends", want: nicLink,
		change: func(m *machine.Machine) {
			runs(m, gen3x16, nicPort, nic)
			express(m, nicPort).LnkCtl2.Target = pcie.Gen3
		}},
	{code: "link-target-capped", name: "and too few lanes", want: nicLink,
		change: func(m *machine.Machine) {
			runs(m, pcie.Link{Speed: pcie.Gen3, Width: 8}, nicPort, nic)
			express(m, nicPort).LnkCtl2.Target = pcie.Gen3
		}},
	{code: "link-target-capped", name: "retrained by the kernel", want: "0000:0a:04.0<->0000:0b:00.0",
		log: `[  9.1] pcieport 0000:0a:04.0: broken device, retraining non-functional downstream link at 2.5GT/s
[  9.9] pci 0000:0b:00.0: 8.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x4 link at 0000:0a:04.0 (capable of 126.028 Gb/s with 32.0 GT/s PCIe x4 link)`},
	{code: "link-target-capped", name: "target of the card is low, and the link runs at full speed",
		change: func(m *machine.Machine) { express(m, nic).LnkCtl2.Target = pcie.Gen1 }},
	{code: "link-target-capped", name: "it runs faster than the target",
		change: func(m *machine.Machine) {
			runs(m, gen3x16, nicPort, nic)
			express(m, nicPort).LnkCtl2.Target = pcie.Gen1
		}},
	{code: "link-target-capped", name: "retraining failed",
		log: `[  9.1] pcieport 0000:0a:04.0: broken device, retraining non-functional downstream link at 2.5GT/s
[  9.9] pcieport 0000:0a:04.0: retraining failed`},
	{code: "link-target-capped", name: "it came back at full speed",
		log: `[  9.1] pcieport 0000:0a:04.0: broken device, retraining non-functional downstream link at 2.5GT/s
[  9.9] pci 0000:0b:00.0: 63.012 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link at 0000:0a:04.0 (capable of 126.028 Gb/s with 32.0 GT/s PCIe x4 link)`},

	{code: "registers-all-ones", name: "rev ff", want: gpuA,
		change: func(m *machine.Machine) { at(m, gpuA).Lost = true }},
	{code: "registers-all-ones", name: "the second function of a card", want: "0000:0c:00.0",
		log: "[    5.0] snd_hda_intel 0000:0c:00.1: Unable to change power state from D3cold to D0, device inaccessible"},
	{code: "registers-all-ones", name: "the second function, and the first answers", want: "0000:06:00.1",
		log: "[    5.0] snd_hda_intel 0000:06:00.1: Unable to change power state from D3cold to D0, device inaccessible"},
	{code: "registers-all-ones", name: "x63", want: "0000:09:00.0",
		log: "[ 54776.6] pcieport 0000:09:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:1b.4 (capable of 1984.941 Gb/s with 32.0 GT/s PCIe x63 link)"},
	{code: "registers-all-ones", name: "a switch takes what is below with it", want: upstream,
		change: func(m *machine.Machine) {
			for _, a := range []string{upstream, portA, portB, gpuA, gpuB} {
				at(m, a).Registers.AllOnes = true
			}
		}},
	{code: "registers-all-ones", name: "x4 is a width",
		log: "[ 54776.6] pcieport 0000:09:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:1b.4 (capable of 126.028 Gb/s with 32.0 GT/s PCIe x4 link)"},

	{code: "virtual-hardware", name: "QEMU ports", want: portA,
		change: func(m *machine.Machine) { emulate(m, portA, portB) }},
	{code: "virtual-hardware", name: "a hypervisor without ports", want: Host,
		change: func(m *machine.Machine) { m.Virtual.Hypervisor = "Firecracker" }},
	{code: "virtual-hardware", name: "bare metal"},
}

// TestRemediesAreCommands: what is to be typed names the ports and values.
func TestRemediesAreCommands(t *testing.T) {
	m := box()
	runs(m, gen3x16, nicPort, nic)
	express(m, nicPort).LnkCtl2.Target = pcie.Gen3
	redirect(m, portA, portB)
	logged(m, `[  9.1] pcieport 0000:0a:04.0: broken device, retraining non-functional downstream link at 2.5GT/s
[  9.9] pci 0000:0b:00.0: 8.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x4 link at 0000:0a:04.0 (capable of 126.028 Gb/s with 32.0 GT/s PCIe x4 link)
[ 251.0] report_aer_cor_err: 7 callbacks suppressed`)
	r := Run(m, DefaultThresholds)
	for _, want := range []struct {
		code Code
		text string
	}{
		{"link-target-capped", "setpci -s " + nicPort + " CAP_EXP+30.w=4:f; setpci -s " + nicPort + " CAP_EXP+10.w=20:20"},
		{"link-target-capped", "setpci -s 0000:0a:04.0 CAP_EXP+30.w=5:f"},
		{"acs-redirect", "setpci -s " + portA + " ECAP_ACS+6.w=0:c; setpci -s " + portB + " ECAP_ACS+6.w=0:c"},
		{"log-rate-limited", "/sys/bus/pci/devices/*/aer_dev_*"},
	} {
		if !slices.ContainsFunc(withCode(r, want.code), func(f Finding) bool { return strings.Contains(f.Remedy, want.text) }) {
			t.Errorf("no %s says %q", want.code, want.text)
		}
	}
	for _, f := range r.Findings {
		if strings.Contains(f.Remedy, "PORT") || strings.Contains(f.Remedy, "BDF") {
			t.Errorf("%s at %s: %s", f.Code, f.Component, f.Remedy)
		}
	}
}
