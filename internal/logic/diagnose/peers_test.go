package diagnose

import (
	"slices"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

func redirect(m *machine.Machine, ports ...string) {
	for _, p := range ports {
		at(m, p).Registers.ACS.Enabled |= pcie.ACSRequestRedirect | pcie.ACSCompletionRedirect
	}
}

func node(m *machine.Machine, n int, addresses ...string) {
	for _, a := range addresses {
		at(m, a).NUMA = &n
	}
}

// Where apart moves the second GPU: to a root port of another host bridge.
const (
	farPort = "0000:80:01.0"
	farGPU  = "0000:81:00.0"
)

func apart(m *machine.Machine) {
	port, gpu := at(m, portB), at(m, gpuB)
	port.BDF, gpu.BDF = pcie.MustParseBDF(farPort), pcie.MustParseBDF(farGPU)
	port.Parent, gpu.Parent = nil, &port.BDF
	port.Registers.Express.Port = pcie.RootPort
	m.Matrix, m.P2P = nil, nil
	slices.SortFunc(m.Devices, func(a, b *machine.Device) int { return a.BDF.Compare(b.BDF) })
}

var peerCases = []ruleCase{
	{code: "uplink-shared", name: "two GPUs", want: uplink},
	{code: "uplink-shared", name: "no switch",
		change: func(m *machine.Machine) { apart(m) }},

	{code: "acs-redirect", name: "a port between two GPUs", want: portA,
		change: func(m *machine.Machine) { redirect(m, portA, portB) }},
	{code: "acs-redirect", name: "between a GPU and an RDMA NIC", want: portA,
		change: func(m *machine.Machine) {
			b := pcie.MustParseBDF(portB)
			at(m, nic).Parent, at(m, gpuB).GPU = &b, nil
			at(m, gpuB).Class.Code = 0x010802
			redirect(m, portA)
		}},
	{code: "acs-redirect", name: "SrcValid and UpstreamFwd only"},
	{code: "acs-redirect", name: "between a GPU and an RDMA NIC on root ports", want: nicPort,
		change: func(m *machine.Machine) { redirect(m, nicPort) }},
	{code: "acs-redirect", name: "on no such path",
		change: func(m *machine.Machine) { redirect(m, nvmePort) }},

	{code: "iommu-translated", name: "domains of type DMA", want: Host,
		change: func(m *machine.Machine) {
			at(m, gpuA).IOMMUDomain, at(m, gpuB).IOMMUDomain = "DMA-FQ", "DMA-FQ"
		}},
	{code: "iommu-translated", name: "by the log", want: Host,
		log: "[  3.3] iommu: Default domain type: Translated\n[  3.4] pci 0000:03:00.0: Adding to iommu group 7"},
	{code: "iommu-translated", name: "asked for on an old kernel", want: Host,
		change: func(m *machine.Machine) { m.CommandLine = "quiet intel_iommu=on" },
		log:    "[  0.1] DMAR: IOMMU enabled\n[  3.4] pci 0000:03:00.0: Adding to iommu group 7"},
	{code: "iommu-translated", name: "by the command line alone", want: Host,
		change: func(m *machine.Machine) { m.IOMMU.UnitsSeen, m.CommandLine = false, "quiet intel_iommu=on" }},
	{code: "iommu-translated", name: "by the log of RCCL", want: Host,
		change: func(m *machine.Machine) {
			m.IOMMU.UnitsSeen, m.NCCL = false, &machine.NCCL{NoPassthrough: "Missing \"iommu=pt\" from kernel command line"}
		}},
	{code: "iommu-translated", name: "asked for, and the machine has none",
		change: func(m *machine.Machine) { m.CommandLine = "quiet intel_iommu=on" }},
	{code: "iommu-translated", name: "asked for, and a log of the boot names none",
		change: func(m *machine.Machine) { m.IOMMU.UnitsSeen = false },
		log:    "[    0.0] Linux version 6.8.0\n[    0.0] Command line: ro intel_iommu=on"},
	{code: "iommu-translated", name: "asked for, and the log says passthrough",
		change: func(m *machine.Machine) { m.IOMMU.UnitsSeen, m.CommandLine = false, "quiet intel_iommu=on" },
		log:    "[  3.3] iommu: Default domain type: Passthrough"},
	{code: "iommu-translated", name: "a group alone",
		log: "[  3.4] pci 0000:03:00.0: Adding to iommu group 7"},
	{code: "iommu-translated", name: "the line is printed without an IOMMU too",
		log: "[  3.3] iommu: Default domain type: Translated"},
	{code: "iommu-translated", name: "passthrough",
		change: func(m *machine.Machine) { m.CommandLine = "quiet iommu=pt" },
		log:    "[  3.3] iommu: Default domain type: Translated\n[  3.4] pci 0000:03:00.0: Adding to iommu group 7"},
	{code: "iommu-translated", name: "interrupt remapping on an old kernel",
		log: "[  0.1] DMAR: IOMMU enabled\n[  0.2] DMAR-IR: Enabled IRQ remapping in x2apic mode"},
	{code: "iommu-translated", name: "identity domains",
		change: func(m *machine.Machine) {
			at(m, gpuA).IOMMUDomain, at(m, gpuB).IOMMUDomain = "identity", "identity"
		},
		log: "[  3.3] iommu: Default domain type: Translated\n[  3.4] pci 0000:03:00.0: Adding to iommu group 7"},

	{code: "iommu-page-fault", name: "of a GPU", want: gpuA,
		log: "[ 70.1] nvidia 0000:03:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0xd0000000 flags=0x0020]\n[ 70.2] nvidia 0000:03:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0xd0001000 flags=0x0020]"},
	{code: "iommu-page-fault", name: "of a port above one", want: upstream,
		log: "[ 70.1] DMAR: [DMA Write] Request device [01:00.0] fault addr ffd00000 [fault reason 05] PTE Write access is not set"},
	{code: "iommu-page-fault", name: "of a drive elsewhere",
		log: "[ 70.1] nvme 0000:06:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0xd0000000 flags=0x0020]"},

	{code: "p2p-unavailable", name: "the driver refuses", want: gpuA + separator + gpuB,
		change: func(m *machine.Machine) {
			at(m, gpuA).GPU, at(m, gpuB).GPU = &machine.GPU{}, &machine.GPU{}
			m.P2P[0].Rows[0].Cells[1], m.P2P[0].Rows[1].Cells[0] = "CNS", "CNS"
		}},
	{code: "p2p-unavailable", name: "the driver says OK"},
	{code: "p2p-unavailable", name: "nothing is said of peers",
		change: func(m *machine.Machine) { m.P2P = nil }},
	{code: "p2p-unavailable", name: "the user's own choice",
		change: func(m *machine.Machine) {
			m.NCCL = &machine.NCCL{P2PDisabled: "NCCL_P2P_DISABLE set by environment to 1"}
		}},

	{code: "socket-crossing", name: "GPUs on two sockets", want: Host,
		change: func(m *machine.Machine) { apart(m); node(m, 1, farGPU, farPort) }},
	{code: "socket-crossing", name: "one node"},
	{code: "socket-crossing", name: "two nodes of one socket",
		change: func(m *machine.Machine) {
			apart(m)
			node(m, 1, farGPU, farPort)
			socket := 0
			m.NUMANodes = []machine.NUMANode{{ID: 0, Socket: &socket}, {ID: 1, Socket: &socket}}
		}},

	{code: "numa-unknown", name: "the kernel knows no node", want: farGPU,
		change: func(m *machine.Machine) {
			apart(m)
			node(m, 1, nic, nicPort)
			node(m, -1, farGPU, farPort)
		}},
	{code: "numa-unknown", name: "a machine of one node",
		change: func(m *machine.Machine) { apart(m); node(m, -1, farGPU, farPort) }},
	{code: "numa-unknown", name: "a virtual machine",
		change: func(m *machine.Machine) {
			apart(m)
			node(m, 1, nic, nicPort)
			node(m, -1, farGPU, farPort)
			m.Virtual.Hypervisor = "KVM"
		}},

	{code: "aspm-suspect", name: "bad packets with L1 on", want: nvmeLink,
		change: func(m *machine.Machine) { express(m, nvme).LnkCtl.ASPM = pcie.L1 },
		log:    storm(nvmePort, nvme, "nvme", " 6] BadTLP", 0x40, 2, 40)},
	{code: "aspm-suspect", name: "ASPM off",
		log: storm(nvmePort, nvme, "nvme", " 6] BadTLP", 0x40, 2, 40)},
	{code: "aspm-suspect", name: "no error of the link itself",
		change: func(m *machine.Machine) { express(m, nvme).LnkCtl.ASPM = pcie.L1 },
		log:    storm(nvmePort, nvme, "nvme", "13] NonFatalErr", 0x2000, 2, 40)},

	{code: "mps-mismatch", name: "device above its port", want: linkA,
		change: func(m *machine.Machine) { express(m, gpuA).DevCtl.MaxPayload = 512 }},
	{code: "mps-mismatch", name: "a port further up", want: rootPort + separator + gpuA,
		change: func(m *machine.Machine) {
			at(m, gpuB).Registers.Express.DevCtl.MaxPayload = 128
			express(m, rootPort).DevCtl.MaxPayload = 128
		}},
	{code: "mps-mismatch", name: "the kernel cannot set it", want: nvmeLink,
		log: `[  3.2] pci 0000:06:00.0: can't set Max Payload Size to 256; if necessary, use "pci=pcie_bus_safe" and report a bug`},
	{code: "mps-mismatch", name: "a smaller value below a larger limit",
		change: func(m *machine.Machine) { express(m, gpuA).DevCtl.MaxPayload = 128 }},
	{code: "mps-mismatch", name: "the kernel set it",
		log: "[  3.2] pci 0000:06:00.0: Max Payload Size set to 256 (was 512, max 512)"},

	{code: "fabric-congestion", name: "late acknowledgements on two links of a switch", want: uplink,
		log: merged(storm(rootPort, gpuA, "nvidia", "12] Timeout", 0x1000, 12, 4), stormFrom(1000.5, rootPort, gpuB, "nvidia", "12] Timeout", 0x1000, 12, 4))},
	{code: "fabric-congestion", name: "one link only",
		log: storm(rootPort, gpuA, "nvidia", "12] Timeout", 0x1000, 12, 4)},
	{code: "fabric-congestion", name: "bad packets beside it",
		log: merged(storm(rootPort, gpuA, "nvidia", "12] Timeout", 0x1000, 12, 4), stormFrom(1000.5, rootPort, gpuB, "nvidia", "12] Timeout", 0x1040, 12, 4))},
	{code: "fabric-congestion", name: "on two root ports",
		log: merged(storm(nicPort, nic, "mlx5_core", "12] Timeout", 0x1000, 12, 4), stormFrom(1000.5, nvmePort, nvme, "nvme", "12] Timeout", 0x1000, 12, 4))},
	{code: "fabric-congestion", name: "a link is degraded",
		change: func(m *machine.Machine) { runs(m, gen4x8, portA, gpuA) },
		log:    merged(storm(rootPort, gpuA, "nvidia", "12] Timeout", 0x1000, 12, 4), stormFrom(1000.5, rootPort, gpuB, "nvidia", "12] Timeout", 0x1000, 12, 4))},
}
