package diagnose

import (
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

func counted(m *machine.Machine, address string, n uint64) {
	at(m, address).Counters = &machine.Counters{Correctable: map[string]uint64{"RxErr": n}, TotalCorrectable: n}
}

const (
	inBAR      = "40000001 0000000f 90000010 00000000" // a write of 4 bytes inside BAR 0 of the box's devices
	outsideBAR = "40000001 0000000f a0000010 00000000"
	noHeader   = "00000000 00000000 00000000 00000000"
	unsupReq   = 1 << 20
	malformed  = 1 << 18
	surprise   = 1 << 5
)

var errorCases = []ruleCase{
	{code: "aer-corrected-storm", name: "ten inside a minute", want: nvmeLink,
		log: storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 10, 5)},
	{code: "aer-corrected-storm", name: "a hundred inside an hour", want: nvmeLink,
		log: storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 100, 30)},
	{code: "aer-corrected-storm", name: "dropped lines count", want: nvmeLink,
		log: storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 2, 3) + "[ 1010.0] report_aer_cor_err: 9 callbacks suppressed"},
	{code: "aer-corrected-storm", name: "counters over the uptime", want: nvmeLink,
		change: func(m *machine.Machine) { up := 7200.0; m.UptimeSeconds = &up; counted(m, nvme, 200) }},
	{code: "aer-corrected-storm", name: "counters without a time", want: nvmeLink,
		change: func(m *machine.Machine) { counted(m, nvme, 1000) }},
	{code: "aer-corrected-storm", name: "dropped at a time nobody knows",
		log: storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 2, 3) + "[ 1500.0] report_aer_cor_err: 7 callbacks suppressed\n" +
			stormFrom(1501, nvmePort, nvme, "nvme", " 0] RxErr", 1, 5, 5)},
	{code: "aer-corrected-storm", name: "nine inside a minute",
		log: storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 9, 5)},
	{code: "aer-corrected-storm", name: "99 inside an hour",
		log: storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 99, 30)},
	{code: "aer-corrected-storm", name: "both ends print each record",
		log: merged(storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 9, 5), stormFrom(1000.2, nvmePort, nvmePort, "pcieport", " 0] RxErr", 1, 9, 5))},
	{code: "aer-corrected-storm", name: "counters win over the text",
		change: func(m *machine.Machine) { up := 864000.0; m.UptimeSeconds = &up; counted(m, nvme, 5) },
		log:    storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 12, 1)},
	{code: "aer-corrected-storm", name: "the same word after a failed recovery",
		log: "[  999.0] pcieport 0000:00:03.0: AER: device recovery failed\n" + storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 50, 0.5)},
	{code: "aer-corrected-storm", name: "999 without a time",
		change: func(m *machine.Machine) { counted(m, nvme, 999) }},

	{code: "aer-corrected-rare", name: "two", want: nvmeLink,
		log: storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 2, 100)},
	{code: "aer-corrected-rare", name: "by counters", want: nvmeLink,
		change: func(m *machine.Machine) { counted(m, nvme, 3) }},
	{code: "aer-corrected-rare", name: "none"},
	{code: "aer-corrected-rare", name: "a storm",
		log: storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 30, 1)},

	{code: "aer-nonfatal", name: "poisoned packet", want: gpuA,
		log: uncorrected("Non-Fatal", "nvidia", gpuA, 1<<12, "")},
	{code: "aer-nonfatal", name: "software",
		log: uncorrected("Non-Fatal", "nvidia", gpuA, unsupReq, inBAR)},
	{code: "aer-nonfatal", name: "fatal",
		log: uncorrected("Fatal", "nvidia", gpuA, 1<<4, "")},

	{code: "aer-fatal", name: "data link protocol", want: gpuA,
		log: uncorrected("Fatal", "nvidia", gpuA, 1<<4, "")},
	{code: "aer-fatal", name: "surprise down",
		log: uncorrected("Fatal", "pcieport", portA, surprise, "")},
	{code: "aer-fatal", name: "software",
		log: uncorrected("Fatal", "nvidia", gpuA, unsupReq, inBAR)},

	{code: "software-access", name: "a write inside its own BAR", want: gpuA,
		log: uncorrected("Non-Fatal", "nvidia", gpuA, unsupReq, inBAR)},
	{code: "software-access", name: "the status is cleared already", want: gpuA,
		log: uncorrected("Non-Fatal", "nvidia", gpuA, 0, inBAR)},
	{code: "software-access", name: "outside every BAR",
		log: uncorrected("Non-Fatal", "nvidia", gpuA, unsupReq, outsideBAR)},
	{code: "software-access", name: "no header",
		log: uncorrected("Non-Fatal", "nvidia", gpuA, unsupReq, noHeader)},
	{code: "software-access", name: "another error at that address",
		log: uncorrected("Non-Fatal", "nvidia", gpuA, 1<<12, inBAR)},

	{code: "error-latched", name: "receiver errors at one end", want: linkA,
		change: func(m *machine.Machine) { at(m, gpuA).Registers.AER.CorrectableStatus = pcie.ReceiverError }},
	{code: "error-latched", name: "DevSta where AER is not there", want: linkA,
		change: func(m *machine.Machine) {
			at(m, gpuA).Registers.AER = nil
			express(m, gpuA).DevSta.Correctable = true
		}},
	{code: "error-latched", name: "UnsupReq alone",
		change: func(m *machine.Machine) {
			express(m, gpuA).DevSta.Unsupported = true
			express(m, gpuA).DevSta.Correctable = true
			at(m, gpuA).Registers.AER.UncorrectableStatus = pcie.UnsupportedRequest
			at(m, gpuA).Registers.AER.CorrectableStatus = pcie.AdvisoryNonFatal
		}},
	{code: "error-latched", name: "the log has the event",
		change: func(m *machine.Machine) { at(m, nvme).Registers.AER.CorrectableStatus = pcie.ReceiverError },
		log:    storm(nvmePort, nvme, "nvme", " 0] RxErr", 1, 1, 1)},

	{code: "device-lost", name: "Xid 79", want: gpuA,
		log: "[  700.1] NVRM: Xid (PCI:0000:03:00): 79, pid=1234, name=python, GPU has fallen off the bus."},
	{code: "device-lost", name: "without an Xid", want: gpuA,
		log: "[  700.1] NVRM: GPU 0000:03:00.0: GPU has fallen off the bus."},
	{code: "device-lost", name: "a NIC", want: nic,
		log: "[  700.1] mlx5_core 0000:05:00.0: Unable to change power state from D3cold to D0, device inaccessible"},
	{code: "device-lost", name: "a drive by its name", want: "nvme3",
		log: "[  700.1] nvme nvme3: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"},
	{code: "device-lost", name: "nvidia-smi says so", want: gpuA,
		change: func(m *machine.Machine) { at(m, gpuA).GPU = &machine.GPU{Broken: "GPU is lost"} }},
	{code: "device-lost", name: "a BAR without an address",
		log: `[  4.1] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:
NVRM: BAR1 is 0M @ 0x0 (PCI:0000:03:00.0)
[  4.2] NVRM: The NVIDIA GPU 0000:03:00.0
NVRM: (PCI ID: 10de:2204)
NVRM: installed in this system has fallen off the bus and is not responding to commands.`},
	{code: "device-lost", name: "removed", want: gpuA,
		log: `[  700.0] pcieport 0000:02:00.0: pciehp: Slot(3): Link Down
[  700.1] pcieport 0000:02:00.0: pciehp: Slot(3): Card not present
[  700.2] NVRM: GPU 0000:03:00.0: GPU has fallen off the bus.`},
	{code: "device-lost", name: "a USB controller is none of these",
		log: "[  700.1] xhci_hcd 0000:0a:00.0: Unable to change power state from D3cold to D0, device inaccessible"},

	{code: "gpu-fault", name: "application", want: gpuA,
		log: "[  700.1] NVRM: Xid (PCI:0000:03:00): 31, pid=1, name=python, Ch 00000008\n[  701.1] NVRM: Xid (PCI:0000:03:00): 13, pid=1, Graphics Exception"},
	{code: "gpu-fault", name: "Xid 79 is PCIe",
		log: "[  700.1] NVRM: Xid (PCI:0000:03:00): 79, pid=1234, GPU has fallen off the bus.\n[  700.2] NVRM: Xid (PCI:0000:03:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"},

	{code: "power-insufficient", name: "a NIC says so", want: nic,
		log: "[  5.1] mlx5_core 0000:05:00.0: mlx5_pcie_event:301:(pid 1): Detected insufficient power on the PCIe slot (27W)."},
	{code: "power-insufficient", name: "enough",
		log: "[  5.1] mlx5_core 0000:05:00.0: PCIe slot advertised sufficient power (75W)."},
}
