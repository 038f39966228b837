package kernlog

import (
	"reflect"
	"testing"
)

// Each line gives the event beside it, nil if it is known to give none.
var lines = []struct {
	text   string
	device Address
	want   Event
}{
	// Recovery.
	{"pcieport 0000:00:01.0: AER: broadcast error_detected message", "0000:00:01.0", Recovery{Step: ErrorDetected}},
	{"pcieport 0000:00:01.0: broadcast resume message", "0000:00:01.0", Recovery{Step: Resume}},
	{"pci 0000:02:00.1: AER: can't recover (no error_detected callback)", "0000:02:00.1", Recovery{Step: CannotRecover}},
	{"xhci_hcd 0000:02:00.0: device has no AER-aware driver", "0000:02:00.0", Recovery{Step: CannotRecover}},
	{"pcieport 0000:00:01.0: AER: Root Port link has been reset (0)", "0000:00:01.0", Recovery{Step: LinkReset}},
	{"pcieport 0000:00:01.0: AER: Downstream Port link has been reset (-25)", "0000:00:01.0", Recovery{Step: LinkReset, Code: -25}},
	{"pcieport 0000:00:01.0: AER: subordinate device reset failed", "0000:00:01.0", Recovery{Step: ResetFailed, Code: -1}},
	{"pcieport 0000:00:01.0: AER: Device recovery successful", "0000:00:01.0", Recovery{Step: RecoveryOK}},
	{"pcieport 0000:00:01.0: AER: device recovery failed", "0000:00:01.0", Recovery{Step: RecoveryFailed, Code: -1}},
	{"pcieport 0000:00:01.0: AER: No uncorrectable error found. Continuing.", "0000:00:01.0", Recovery{Step: NothingToDo}},
	{"aer 0000:00:1c.0:pcie002: AER enabled with IRQ 122", "0000:00:1c.0", PortService{"AER"}},
	{"pcieport 0000:00:1c.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+ RP PIO Log 6, DL_ActiveErr+", "0000:00:1c.0", PortService{"DPC"}},

	// EDR.
	{"pcieport 0000:b5:02.0: EDR: EDR event received", "0000:b5:02.0", EDR{Step: EDRReceived}},
	{"pcieport 0000:b5:02.0: EDR: Reported EDR dev: 0000:b9:08.0", "0000:b5:02.0", EDR{Step: EDRReported, Port: "0000:b9:08.0"}},
	{"pcieport 0000:b5:02.0: EDR: Status for 0000:b9:08.0: 0x80", "0000:b5:02.0", EDR{Step: EDRStatus, Port: "0000:b9:08.0", Status: 0x80}},
	{"pci 0000:b5:02.0: EDR: Notify handler installed", "0000:b5:02.0", PortService{"EDR"}},
	{"pci 0000:b5:02.0: EDR: Notify handler removed", "", nil},

	// Hot-plug.
	{"pcieport 0000:3a:01.0: pciehp: Slot(0-1): Card present", "0000:3a:01.0", Hotplug{Slot: "0-1", Change: CardPresent}},
	{"pciehp 0000:3a:01.0:pcie004: Slot(4): Link Down", "0000:3a:01.0", Hotplug{Slot: "4", Change: LinkDown}},
	{"pcieport 0000:3a:01.0: pciehp: Slot(12): Link Down/Up ignored (recovered by DPC)", "0000:3a:01.0", Hotplug{Slot: "12", Change: LinkIgnored, DPC: true}},
	{"pcieport 0000:3a:01.0: pciehp: Slot(12): Button press: will power off in 5 sec", "0000:3a:01.0", Hotplug{Slot: "12", Change: PoweringOff}},
	{"pcieport 0000:3a:01.0: pciehp: Slot(2-1) Powering on due to button press", "0000:3a:01.0", Hotplug{Slot: "2-1", Change: PoweringOn}},
	{"shpchp 0000:3a:01.0: Card not present on Slot(2-1)", "0000:3a:01.0", Hotplug{Slot: "2-1", Change: CardNotPresent}},
	{"pciehp: Slot(3): Link Up", "", Hotplug{Slot: "3", Change: LinkUp}},
	{"pcieport 0000:3a:01.0: pciehp: Slot #4 AttnBtn- PwrCtrl+ MRL- AttnInd- PwrInd- HotPlug+ Surprise+ Interlock- NoCompl+ IbPresDis- LLActRep+", "0000:3a:01.0",
		SlotCapabilities{Slot: "4", PowerController: true, HotPlug: true, Surprise: true, LinkReporting: true}},
	{"pcieport 0000:3a:01.0: pciehp: Timeout on hotplug command 0x1038 (issued 65284 msec ago)", "0000:3a:01.0", HotplugTimeout{Command: 0x1038, Msec: 65284}},
	{"pcieport 0000:3a:01.0: pciehp: pciehp_check_link_status: lnk_status = 7084", "0000:3a:01.0", LinkStatus{0x7084}},
	{"pcieport 0000:3a:01.0: pciehp: Hotplug bridge without secondary bus, ignoring", "0000:3a:01.0", Hotplug{Change: AddFailed}},
	{"pcieport 0000:3a:01.0: pciehp: pending interrupts 0x0108 from Slot Status", "", nil},

	// Link and power.
	{"pcieport 10003:00:05.0: broken device, retraining non-functional downstream link at 2.5GT/s", "10003:00:05.0", Retrain{GTs: 2.5}},
	{"pcieport 10003:00:05.0: retraining failed", "10003:00:05.0", Retrain{Failed: true}},
	{"pcieport 0000:00:01.0: DPC: Data Link Layer Link Active not set in 1000 msec", "0000:00:01.0", LinkInactive{1000}},
	{"vfio-pci 0000:05:00.0: not ready 65535ms after FLR; giving up", "0000:05:00.0", NotReady{Msec: 65535, After: "FLR", GaveUp: true}},
	{"igc 0000:05:00.0: not ready 1023ms after bus reset; waiting", "0000:05:00.0", NotReady{Msec: 1023, After: "bus reset"}},
	{"nouveau 0000:05:00.0: Refused to change power state, currently in D3", "0000:05:00.0", PowerState{From: "D3"}},
	{"nvme 0000:05:00.0: can't change power state from D3hot to D0 (config space inaccessible)", "0000:05:00.0", PowerState{From: "D3hot", To: "D0", Inaccessible: true}},
	{"xe 0000:05:00.0: Unable to change power state from D3cold to D0, device inaccessible", "0000:05:00.0", PowerState{From: "D3cold", To: "D0", Inaccessible: true}},
	{"mlx5_core 0000:05:00.0: mlx5_pcie_event:301:(pid 12): Detected insufficient power on the PCIe slot (27W).", "0000:05:00.0", SlotPower{27}},
	{"nvme 0000:01:00.0: restoring config space at offset 0x0 (was 0xffffffff, writing 0x2d11e)", "0000:01:00.0", ConfigLost{"config space"}},
	{"nvme nvme3: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "", ConfigLost{"nvme3 CSTS"}},
	{"nvme nvme3: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10", "", DriverFault{ControllerDown, "nvme3"}},
	{"nvme nvme3: frozen state error detected, reset controller", "", DriverFault{ChannelFrozen, "nvme3"}},
	{"nvme nvme3: Removing after probe failure status: -19", "", DriverFault{DeviceDisabled, "nvme3"}},
	{"nvme nvme3: Device not ready; aborting reset, CSTS=0x1", "", DriverFault{ControllerDown, "nvme3"}},
	{"nvme nvme3: 63/0/0 default/read/poll queues", "", nil},
	{"mlx5_core 0000:01:00.0: poll_health:796:(pid 0): device's health compromised - reached miss count", "0000:01:00.0", DriverFault{Kind: ControllerDown}},
	{"nvme nvme3: pci function 0000:05:00.0", "0000:05:00.0", DeviceName{"nvme3"}},
	{"ixgbe 0000:01:00.0 eth0: Adapter removed", "0000:01:00.0", DriverFault{Kind: AdapterRemoved}},

	// Bandwidth.
	{"pci 0000:61:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:5e:02.0 (capable of 63.008 Gb/s with 8.0 GT/s PCIe x8 link)", "0000:61:00.0",
		Bandwidth{Gbps: 31.504, Limit: LinkRate{8, 4}, At: "0000:5e:02.0", CapableGbps: 63.008, Capable: LinkRate{8, 8}}},
	{"pci 0000:61:00.0: 8.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s x4 link at 0000:5e:02.0 (capable of 126.028 Gb/s with 8 GT/s x16 link)", "0000:61:00.0",
		Bandwidth{Gbps: 8, Limit: LinkRate{2.5, 4}, At: "0000:5e:02.0", CapableGbps: 126.028, Capable: LinkRate{8, 16}}},
	{"ixgbe 0000:61:00.0: 32.000 Gb/s available PCIe bandwidth (5.0 GT/s PCIe x8 link)", "0000:61:00.0", Bandwidth{Gbps: 32, Limit: LinkRate{5, 8}}},
	{"pci 0000:61:00.0: 0.000 Gb/s available PCIe bandwidth, limited by Unknown x255 link at 0000:5e:02.0 (capable of 1984.941 Gb/s with 32.0 GT/s PCIe x63 link)", "0000:61:00.0",
		Bandwidth{At: "0000:5e:02.0", CapableGbps: 1984.941, Capable: LinkRate{32, 63}}},

	// Resources, in both orders.
	{"pci 0000:05:00.0: BAR 1: no space for [mem size 0x10000000 64bit pref]", "0000:05:00.0", Resource{Kind: BAR, Index: 1, State: NoSpace, Prefetch: true, Wide: true, Size: 1 << 28}},
	{"pci 0000:05:00.0: BAR 13: failed to assign [io  size 0x1000]", "0000:05:00.0", Resource{Kind: Window, Index: -1, State: AssignFailed, IO: true, Size: 4096}},
	{"pci 0000:05:00.0: BAR 6: assigned [mem 0xe0000000-0xe007ffff pref]", "0000:05:00.0", Resource{Kind: ROM, Index: -1, State: Assigned, Prefetch: true, Size: 0x80000, Start: 0xe0000000, HasStart: true}},
	{"pci 0000:05:00.0: BAR 9: assigned [mem 0x1000-0x1fff]", "0000:05:00.0", Resource{Kind: VFBAR, Index: 2, State: Assigned, Size: 4096, Start: 0x1000, HasStart: true}},
	{"pci 0000:05:00.0: BAR 1 [mem size 0x10000000 64bit pref]: can't assign; no space", "0000:05:00.0", Resource{Kind: BAR, Index: 1, State: NoSpace, Prefetch: true, Wide: true, Size: 1 << 28}},
	{"pci 0000:05:00.0: BAR 0 [mem 0xa4000000-0xa4ffffff]: assigned", "0000:05:00.0", Resource{Kind: BAR, State: Assigned, Size: 1 << 24, Start: 0xa4000000, HasStart: true}},
	{"pci 0000:05:00.0: VF BAR 0 [mem size 0x00200000 64bit]: failed to assign", "0000:05:00.0", Resource{Kind: VFBAR, State: AssignFailed, Wide: true, Size: 1 << 21}},
	{"pci 0000:05:00.0: ROM [mem size 0x00080000 pref]: failed to assign", "0000:05:00.0", Resource{Kind: ROM, Index: -1, State: AssignFailed, Prefetch: true, Size: 1 << 19}},
	{"pcieport 0000:05:00.0: bridge window [io  size 0x1000]: can't assign; no space", "0000:05:00.0", Resource{Kind: Window, Index: -1, State: NoSpace, IO: true, Size: 4096}},
	{"pcieport 0000:05:00.0:   bridge window [mem 0xd0400000-0xd07fffff]", "0000:05:00.0", Resource{Kind: Window, Index: -1, State: ResourceFound, Size: 1 << 22, Start: 0xd0400000, HasStart: true}},
	{"pcieport 0000:05:00.0: bridge window [mem 0x00100000-0x000fffff 64bit pref] to [bus ab] add_size 200000 add_align 100000", "0000:05:00.0",
		Resource{Kind: Window, Index: -1, State: ResourceAddition, Prefetch: true, Wide: true, Start: 0x100000, HasStart: true}},
	{"pci 0000:05:00.0: reg 0x14: [mem 0xd0a00000-0xd0afffff 64bit pref]", "0000:05:00.0", Resource{Kind: BAR, Index: 1, State: ResourceFound, Prefetch: true, Wide: true, Size: 1 << 20, Start: 0xd0a00000, HasStart: true}},
	{"pci 0000:05:00.0: can't claim BAR 0 [mem 0xfed00000-0xfedfffff]: no compatible bridge window", "0000:05:00.0", Resource{Kind: BAR, State: ClaimFailed, Size: 1 << 20, Start: 0xfed00000, HasStart: true}},
	{"pci 0000:05:00.0: BAR 0 [mem 0xfed00000-0xfedfffff]: can't claim; no compatible bridge window", "0000:05:00.0", Resource{Kind: BAR, State: ClaimFailed, Size: 1 << 20, Start: 0xfed00000, HasStart: true}},
	{"pci 0000:05:00.0: can't claim BAR 0 [mem 0xfed00000-0xfedfffff]: address conflict with Reserved [mem 0xfed00000-0xfee00fff]", "0000:05:00.0", Resource{Kind: BAR, State: AddressConflict, Size: 1 << 20, Start: 0xfed00000, HasStart: true}},
	{"pcieport 0000:05:00.0: resource 14 [mem 0xe0000000-0xe00fffff] released", "0000:05:00.0", Resource{Kind: Window, Index: -1, State: Released, Size: 1 << 20, Start: 0xe0000000, HasStart: true}},
	{"pci_bus 0000:00: Some PCI device resources are unassigned, try booting with pci=realloc", "", ResourceAdvice{}},

	// Bus numbers.
	{"pci 0000:05:00.0: bridge configuration invalid ([bus 00-00]), reconfiguring", "0000:05:00.0", BusNumbers{Change: BusesReconfigured}},
	{"pci_bus 0000:63: busn_res: [bus 63-ff] end is updated to 63", "", BusNumbers{Change: BusesShrunk, Bus: "0000:63", Buses: Buses{0x63, 0xff}, Max: 0x63}},
	{"pci_bus 0000:63: busn_res: [bus 63] is released", "", BusNumbers{Change: BusesReleased, Bus: "0000:63", Buses: Buses{0x63, 0x63}}},
	{"pci_bus 0002:63: busn_res: can not insert [bus 63-61] under [bus 62-61] (conflicts with (null) [bus 62-60])", "",
		BusNumbers{Change: BusesRefused, Bus: "0002:63", Buses: Buses{0x63, 0x61}, Under: Buses{0x62, 0x61}, Conflict: Buses{0x62, 0x60}}},
	{"pci 0002:62:00.0: devices behind bridge are unusable because [bus 45-74] cannot be assigned for them", "0002:62:00.0", BusNumbers{Change: BusesUnusable, Buses: Buses{0x45, 0x74}}},
	{"pci 0000:6c:00.0: No bus number available for hot-added bridge", "0000:6c:00.0", BusNumbers{Change: BusNumbersOut}},
	{"pcieport 0000:05:00.0: bridge has subordinate 41 but max busn 46", "0000:05:00.0", BusNumbers{Change: SubordinateTooSmall, Buses: Buses{0, 0x41}, Max: 0x46}},
	{"pci 0000:05:00.0: PCI bridge to [bus 06-0a]", "0000:05:00.0", BusNumbers{Change: BusesAssigned, Buses: Buses{6, 10}}},
	{"pci_bus 0000:00: root bus resource [bus 00-7f]", "", BusNumbers{Change: RootBuses, Bus: "0000:00", Buses: Buses{0, 0x7f}}},
	{"pci_bus 0000:00: root bus resource [mem 0xc0000000-0xd0c18ffe window]", "", nil},

	// Payload size, ASPM.
	{`pci 0000:05:00.0: Max Payload Size 128, but upstream 0000:00:01.0 set to 256; if necessary, use "pci=pcie_bus_safe" and report a bug`, "0000:05:00.0",
		Payload{Change: PayloadMismatch, Size: 128, Upstream: "0000:00:01.0", Above: 256}},
	{`pci 0000:05:00.0: can't set Max Payload Size to 256; if necessary, use "pci=pcie_bus_safe" and report a bug`, "0000:05:00.0", Payload{Change: PayloadFailed, Size: 256}},
	{"pci 0000:05:00.0: Max Payload Size set to 256 (was 128, max 512)", "0000:05:00.0", Payload{Change: PayloadSet, Size: 256, Was: 128, Max: 512}},
	{"pci 0000:05:00.0: Max Payload Size set to  256/ 512 (was  128), Max Read Rq  512", "0000:05:00.0", Payload{Change: PayloadSet, Size: 256, Was: 128, Max: 512}},
	{"pci 0000:05:00.0: Upstream bridge's Max Payload Size set to 128 (was 256, max 256)", "0000:05:00.0", Payload{Change: PayloadSetBridge, Size: 128, Was: 256, Max: 256}},
	{"pci 0000:05:00.0: ASPM: current common clock configuration is inconsistent, reconfiguring", "0000:05:00.0", ASPM{ASPMCommonClock}},
	{"pci 0000:05:00.0: disabling ASPM on pre-1.1 PCIe device.  You can enable it with 'pcie_aspm=force'", "0000:05:00.0", ASPM{ASPMPre11}},
	{"ACPI FADT declares the system doesn't support PCIe ASPM, so disable it", "", ASPM{ASPMNoFirmware}},

	// IOMMU.
	{"iommu: Default domain type: Translated", "", IOMMUMode{Translated: true}},
	{"iommu: Default domain type: Passthrough (set via kernel command line)", "", IOMMUMode{CommandLine: true}},
	{"DMAR: IOMMU enabled", "", IOMMUUnit{"Intel", true}},
	{"DMAR: [DMA Write NO_PASID] Request device [07:00.0] fault addr 0xffd00000 [fault reason 0x05] PTE Write access is not set", "0000:07:00.0",
		IOMMUFault{Vendor: "Intel", Address: 0xffd00000, Write: true, Reason: "0x05 PTE Write access is not set"}},
	{"DMAR: DRHD: handling fault status reg 2", "", nil},
	{"nvidia 0000:07:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0xdf800000 flags=0x0020]", "0000:07:00.0",
		IOMMUFault{Vendor: "AMD", Address: 0xdf800000, Write: true, Reason: "0x0020"}},
	{"AMD-Vi: Event logged [IO_PAGE_FAULT device=07:00.0 domain=0x0003 address=0xdf800000 flags=0x0000]", "0000:07:00.0", IOMMUFault{Vendor: "AMD", Address: 0xdf800000, Reason: "0x0000"}},
	{"pci 0000:07:00.0: Adding to iommu group 28", "0000:07:00.0", IOMMUGroup{Group: 28}},
	{"pci 0000:07:00.0: Removing from iommu group 28", "0000:07:00.0", IOMMUGroup{Group: 28, Left: true}},

	// GPUs.
	{"NVRM: Xid (PCI:0000:05:00): 79, pid=1234, name=python, GPU has fallen off the bus.", "0000:05:00", Xid{Number: 79, PID: 1234, Process: "python", Text: "GPU has fallen off the bus."}},
	{"NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "0000:05:00", Xid{Number: 79, Process: "<unknown>", Text: "GPU has fallen off the bus."}},
	{"NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00", Xid{Number: 14, Text: "Channel 00000001"}},
	{"NVRM: Xid: 154, GPU recovery action changed", "", Xid{Number: 154, Text: "GPU recovery action changed"}},
	{"NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "0009:01:00",
		Xid{Number: 154, Text: "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", Action: "Drain and Reset"}},
	{"nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 x", "0000:04:00.0", Xid{Number: 22013, Text: "Non-fatal, Link 44 x", Switch: true}},
	{"NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", "0000:18:00.0", GPULost{}},
	{"NVRM: GPU at PCI:0000:02:00: GPU-01234567-89ab-cdef-0123-456789abcdef", "0000:02:00", GPUIdentity{UUID: "GPU-01234567-89ab-cdef-0123-456789abcdef"}},
	{"NVRM: GPU Board Serial Number: 0123456789", "", GPUIdentity{Serial: "0123456789"}},
	{"NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x26:0xffff:1239)", "0000:02:00.0", GPUInitFailed{"0x26:0xffff:1239"}},
	{"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", "", GPUBarInvalid{BAR: -1}},
	{"NVRM: BAR1 is 0M @ 0x0 (PCI:0000:02:00.0)", "0000:02:00.0", GPUBarInvalid{BAR: 1}},
	{"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.58.03  Release Build", "", DriverLoaded{"nvidia", "595.58.03", true}},
	{"amdgpu 0000:03:00.0: amdgpu: device lost from bus!", "0000:03:00.0", GPULost{}},
	{"amdgpu 0000:03:00.0: amdgpu: GPU reset begin!", "0000:03:00.0", GPUReset{}},

	// Boot.
	{"Linux version 6.17.0-20-generic (user@host) (gcc 13.3.0) #20 SMP", "", KernelVersion{"6.17.0-20-generic"}},
	{"Command line: BOOT_IMAGE=/vmlinuz iommu=pt", "", CommandLine{"BOOT_IMAGE=/vmlinuz iommu=pt"}},
	{"Hypervisor detected: KVM", "", Hypervisor{"KVM"}},
	{"Booting paravirtualized kernel on bare hardware", "", Hypervisor{""}},
	{"DMI: Maker Model/Board, BIOS 1.0 01/01/2024", "", Platform{"Maker Model/Board, BIOS 1.0 01/01/2024"}},
	{"pci_bus 0000:80: on NUMA node 1", "", NUMANode{"0000:80", 1}},
	{"PCI host bridge to bus 0000:e0", "", RootBridge{Bus: "0000:e0"}},
	{"ACPI: PCI Root Bridge [PC01] (domain 0001 [bus 17-39])", "", RootBridge{Bus: "0001:17", Name: "PC01", Buses: Buses{0x17, 0x39}}},
	{"acpi PNP0A08:02: _OSC: platform does not support [AER LTR DPC]", "", OSC{Bridge: "PNP0A08:02", Verb: OSCRefused, Features: []string{"AER", "LTR", "DPC"}}},
	{"acpi PNP0A08:02: _OSC: OS now controls [PCIeHotplug PME]", "", OSC{Bridge: "PNP0A08:02", Verb: OSCControls, Features: []string{"PCIeHotplug", "PME"}}},
	{"acpi PNP0A08:02: _OSC: not requesting OS control; OS requires [ExtendedConfig ASPM]", "", OSC{Bridge: "PNP0A08:02", Verb: OSCNotRequested, Features: []string{"ExtendedConfig", "ASPM"}}},
	{"pci 0000:03:00.0: [8086:1533] type 00 class 0x020000 PCIe Endpoint", "0000:03:00.0", DeviceFound{Vendor: 0x8086, ID: 0x1533, Class: 0x020000, Port: "PCIe Endpoint"}},
	{"pci 0000:03:00.0: [8086:1533] type 01 class 0x060400", "0000:03:00.0", DeviceFound{Vendor: 0x8086, ID: 0x1533, HeaderType: 1, Class: 0x060400}},
	{"GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.", "", FirmwareFirst{}},
	{"Kernel panic - not syncing: Fatal hardware error!", "", FirmwareError{Severity: Fatal, Panic: true}},

	// Lost lines.
	{"report_aer_cor_err: 94 callbacks suppressed", "", LinesLost{Scope: LostAER, Count: 94, By: "report_aer_cor_err"}},
	{"kauditd_printk_skb: 29 callbacks suppressed", "", LinesLost{Scope: LostOther, Count: 29, By: "kauditd_printk_skb"}},
	{"** 1234 printk messages dropped **", "", LinesLost{Scope: LostAny, Count: 1234, By: "printk"}},
	{"pcieport 0000:00:01.3: AER: Over 1000 Correctable Errors reported, increasing the rate limit", "0000:00:01.3", LinesLost{Scope: LostAER, Total: 1000, By: "AER"}},
	{"AER recover: Buffer overflow when recovering AER for 0000:05:00:0", "", LinesLost{Scope: LostAER, By: "AER"}},
	{"AER: AER recover: Buffer overflow when recovering AER", "", LinesLost{Scope: LostAER, By: "AER"}},
	{"pcieport 0000:00:01.3: AER: Exceeded max allowed (4) addition of PCIe devices for AER handling", "0000:00:01.3", LinesLost{Scope: LostAER, By: "AER"}},

	// Nothing of ours.
	{"usb 1-1: new high-speed USB device number 2", "", nil},
	{"EXT4-fs (sda1): mounted filesystem 0000:00 at [mem size 1]", "", nil},
	{"snd_hda_intel 0000:00:1f.3: enabling device (0000 -> 0002)", "", nil},
	{"", "", nil},
}

func TestLines(t *testing.T) {
	for _, c := range lines {
		entries := Parse("[    1.000000] " + c.text)
		if c.want == nil {
			if len(entries) != 0 {
				t.Errorf("%s\n\tgives %#v, want nothing", c.text, entries[0].Event)
			}
			continue
		}
		if len(entries) != 1 {
			t.Errorf("%s\n\tgives %d entries, want 1", c.text, len(entries))
			continue
		}
		if got := entries[0].Event; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s\n\tgives %#v\n\twant  %#v", c.text, got, c.want)
		}
		if entries[0].Device != c.device {
			t.Errorf("%s\n\tis about %q, want %q", c.text, entries[0].Device, c.device)
		}
	}
}

// TestPartialLines cuts each line everywhere: what is left of it may give less
// or nothing, never another kind of event of another device.
func TestPartialLines(t *testing.T) {
	for _, c := range lines {
		for i := range c.text {
			for _, e := range Parse(c.text[:i]) {
				if e.Device != "" && c.device != "" && !e.Device.Matches(c.device) {
					t.Errorf("%q is about %s, of the whole line it is %s", c.text[:i], e.Device, c.device)
				}
			}
		}
	}
}
