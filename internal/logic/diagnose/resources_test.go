package diagnose

import (
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

var resourceCases = []ruleCase{
	{code: "bus-numbers-exhausted", name: "a range of one bus above a switch", want: "0006:50:00.0",
		log: `pci_bus 0006:53: busn_res: can not insert [bus 53] under [bus 52-51] (conflicts with (null) [bus 52-51])
pci 0006:52:00.0: devices behind bridge are unusable because [bus 53] cannot be assigned for them
pci 0006:52:02.0: devices behind bridge are unusable because [bus 54] cannot be assigned for them
pci 0006:51:00.0: devices behind bridge are unusable because [bus 52-56] cannot be assigned for them
pcieport 0006:50:00.0: bridge has subordinate 51 but max busn 56`},
	{code: "bus-numbers-exhausted", name: "a hot-added bridge", want: "0000:6c:00.0",
		log: "[ 102.2] pci 0000:6c:00.0: No bus number available for hot-added bridge"},
	{code: "bus-numbers-exhausted", name: "the normal lines of a boot",
		log: "pci 0000:13:05.0: bridge configuration invalid ([bus 00-00]), reconfiguring\npci_bus 0000:15: busn_res: [bus 15-17] end is updated to 15"},

	{code: "bus-range-conflict", name: "two bridges", want: "0000:1b:01.0",
		log: `pcieport 0000:1b:05.0: PCI bridge to [bus 1d]
pci_bus 0000:1c: busn_res: can not insert [bus 1c-20] under [bus 1b-20] (conflicts with (null) [bus 1d])
pcieport 0000:1b:01.0: PCI bridge to [bus 1c-20]`},
	{code: "bus-range-conflict", name: "registers of two root ports", want: rootPort,
		change: func(m *machine.Machine) {
			at(m, rootPort).Registers.Bridge = &pcie.Bridge{Secondary: 1, Subordinate: 5}
			at(m, nicPort).Registers.Bridge = &pcie.Bridge{Secondary: 5, Subordinate: 5}
		}},
	{code: "bus-range-conflict", name: "provisional ranges in a log",
		change: func(m *machine.Machine) {
			for _, a := range []string{portA, portB} { // as a log alone shows them
				at(m, a).Registers = pcie.Registers{Bridge: &pcie.Bridge{Secondary: 3, Subordinate: 5}}
			}
		},
		log: "pci 0000:02:00.0: PCI bridge to [bus 03-05]\npci_bus 0000:03: busn_res: [bus 03-05] end is updated to 03"},
	{code: "bus-range-conflict", name: "inverted ranges of one bridge",
		log: "pci_bus 0006:53: busn_res: can not insert [bus 53-51] under [bus 52-51] (conflicts with (null) [bus 52-51])"},
	{code: "bus-range-conflict", name: "an inverted range against another bus",
		log: "pci_bus 0006:53: busn_res: can not insert [bus 53-51] under [bus 50-60] (conflicts with (null) [bus 52])"},
	{code: "bus-range-conflict", name: "the range above is too small",
		log: "pci_bus 0006:52: busn_res: can not insert [bus 52-56] under [bus 51] (conflicts with (null) [bus 51])"},
	{code: "bus-range-conflict", name: "nested ranges",
		change: func(m *machine.Machine) {
			at(m, rootPort).Registers.Bridge = &pcie.Bridge{Secondary: 1, Subordinate: 4}
			at(m, upstream).Registers.Bridge = &pcie.Bridge{Primary: 1, Secondary: 2, Subordinate: 4}
			at(m, nicPort).Registers.Bridge = &pcie.Bridge{Secondary: 5, Subordinate: 5}
		}},

	{code: "bar-unassigned", name: "failed for good", want: "0000:0a:00.0",
		log: "pci 0000:0a:00.0: BAR 0 [mem size 0x00040000]: can't assign; no space\npci 0000:0a:00.0: BAR 0 [mem size 0x00040000]: failed to assign"},
	{code: "bar-unassigned", name: "by lspci", want: gpuA,
		change: func(m *machine.Machine) { at(m, gpuA).Resources[0].State = machine.Unassigned }},
	{code: "bar-unassigned", name: "by the GPU's driver", want: gpuA,
		log: "[  4.1] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR1 is 0M @ 0x0 (PCI:0000:03:00.0)"},
	{code: "bar-unassigned", name: "repaired by a second pass",
		log: "pci 0000:0a:00.0: BAR 0: no space for [mem size 0x00040000]\npci 0000:0a:00.0: BAR 0: failed to assign [mem size 0x00040000]\npci 0000:0a:00.0: BAR 0: assigned [mem 0xe0000000-0xe003ffff]"},
	{code: "bar-unassigned", name: "I/O",
		log: "pci 0000:0a:00.0: BAR 5: failed to assign [io  size 0x0080]"},
	{code: "bar-unassigned", name: "a window of a bridge",
		log: "pcieport 0000:00:02.0: BAR 14: failed to assign [mem size 0x00200000]\npcieport 0000:00:02.0: bridge window [mem size 0x00200000]: failed to assign"},
	{code: "bar-unassigned", name: "a BAR without a number", want: nvme,
		change: func(m *machine.Machine) {
			at(m, nvme).Resources = []machine.Resource{{Kind: machine.BAR, Index: -1, State: machine.Unassigned}}
		}},
	{code: "bar-unassigned", name: "virtual functions",
		log: "pci 0000:0a:00.0: VF BAR 0 [mem size 0x00100000 64bit pref]: failed to assign\npci 0000:0a:00.0: BAR 7: failed to assign [mem size 0x00100000 64bit pref]"},
}

var blindCases = []ruleCase{
	{code: "aer-firmware-owned", name: "refused", want: Host,
		log: "[ 1.2] acpi PNP0A08:00: _OSC: platform does not support [AER LTR DPC]\n[ 1.3] acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME PCIeCapability]"},
	{code: "aer-firmware-owned", name: "granted",
		log: "[ 1.2] acpi PNP0A08:00: _OSC: platform does not support [LTR DPC]\n[ 1.3] acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME AER PCIeCapability]"},

	{code: "aer-firmware-owned", name: "granted in the end",
		log: "[ 1.2] acpi PNP0A08:00: _OSC: platform does not support [AER LTR DPC]\n[ 0.0] Linux version 6.8.0\n[ 1.3] acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME AER PCIeCapability]"},

	{code: "log-rate-limited", name: "AER lines dropped", want: Host,
		log: "[ 251.0] report_aer_cor_err: 7 callbacks suppressed"},
	{code: "log-rate-limited", name: "of another subsystem",
		log: "[ 251.0] net_ratelimit: 7 callbacks suppressed"},

	{code: "unprivileged-capture", name: "access denied", want: Host,
		change: func(m *machine.Machine) {
			for _, d := range m.Devices {
				d.Registers = pcie.Registers{Control: d.Registers.Control, CapabilitiesDenied: true}
			}
		}},
	{code: "unprivileged-capture", name: "64 bytes", want: Host,
		change: func(m *machine.Machine) {
			for _, d := range m.Devices {
				d.Registers = pcie.Registers{Readable: 64}
			}
		}},
	{code: "unprivileged-capture", name: "as root"},
	{code: "unprivileged-capture", name: "one device of many",
		change: func(m *machine.Machine) {
			at(m, nvme).Registers = pcie.Registers{CapabilitiesDenied: true}
		}},

	{code: "not-measured", name: "a link at rest", want: Host,
		change: func(m *machine.Machine) { runs(m, gen1x16, portA, gpuA) }},
	{code: "not-measured", name: "no kernel log", want: Host,
		change: func(m *machine.Machine) { m.Inputs[0].Kinds = []machine.Kind{machine.KindLspci} }},
	{code: "not-measured", name: "everything is there"},
}
