package kernlog

import "strings"

// ignoredLines are the families of lines about PCIe that are known and give
// no event, each with the reason. A line belongs to a family if its text (of a
// line with a device that after the device) begins with prefix or, where that
// is empty, contains the mark.
var ignoredLines = []struct {
	prefix, mark string
	reason       string
}{
	{"", "pciehp: Slot Capabilities  ", "debug dump; Slot #n says the same"},
	{"", "pciehp: Slot Status  ", "debug dump of a register that changes on"},
	{"", "pciehp: Slot Control  ", "debug dump of a register that changes on"},
	{"", "SLOTCTRL", "debug: a command that pciehp wrote or read back"},
	{"", "pending interrupts 0x", "debug: the change that caused them has its own line"},
	{"", "pciehp_unconfigure_device:", "debug: the removal has its own line"},
	{"", "pciehp_set_indicators", "debug: slot lamps"},
	{"", "pciehp_get_power_status", "debug: power state of a slot"},
	{"", "pciehp_power_on_slot", "debug: a command to a slot"},
	{"", "pciehp_power_off_slot", "debug: a command to a slot"},
	{"", "pciehp_check_link_", "debug; with the register's value it is an event"},
	{"", "Timeout waiting for Presence Detect", "the slot's next line says that no card is there"},
	{"", "pcie_do_write_cmd", "debug: the port itself is gone, which its own lines say"},
	{"", "no response from device", "debug: the port itself is gone, which its own lines say"},
	{"", "Ignoring invalid state", "hot-plug button pressed twice"},
	{"", "service driver pciehp loaded", "announcement"},
	{"", "pcie_port_service_register", "developer's print"},
	{"", "Hot Plug Controller Driver version", "announcement"},
	{"", "pciehp_ist", "stack trace or developer's print"},
	{"", "set_device_error_reporting", "developer's print"},
	{"", "pcie_error_reporting", "developer's print"},
	{"", "cxl_err_handler", "developer's print"},
	{"", "dpc_reset_link", "developer's print"},
	{"", "DPC reset has been finished", "developer's print"},
	{"", "waiting dpc compelete", "developer's print"},
	{"", "======", "developer's print"},
	{"AER: request AER IRQ", "", "the port has no interrupt: no AER, which its missing service says"},
	{"AER: Root Error Status", "", "developer's print of a register"},
	{"AER: cxl: Internal errors unmasked", "", "announcement"},
	{"DPC: RP PIO log size", "", "firmware left a field empty; the log is not used"},
	{"EDR: Notify handler removed", "", "the device left"},
	{"unlocked secondary bus reset", "", "a warning to driver authors"},
	{"PME# ", "", "power management events: wake-up only"},
	{"supports D1", "", "power states"},
	{"D0 power state depends on", "", "functions of one card"},
	{"enabling Extended Tags", "", "normal"},
	{"enabling device", "", "normal"},
	{"device released", "", "the end of a removal"},
	{"System wakeup disabled", "", "power management events: wake-up only"},
	{"DOE: ", "", "data object exchange: device identity, no traffic"},
	{"retraining sucessfully", "", "developer's print"},
	{"", "extended config space not accessible", "a bus behind a conventional bridge"},
	{"vgaarb:", "", "VGA arbitration"},
	{"Video device with shadowed ROM", "", "VGA"},
	{"config space:", "", "head of a dump; the dump follows"},
	{"saving config space", "", "debug"},
	{"restoring config space", "", "debug; all ones are an event"},
	{"VF(n) BAR", "", "what the functions of SR-IOV would take"},
	{"PCI bridge, ", "", "a bridge that decodes subtractively"},
	{"can't derive routing for PCI INT", "", "legacy interrupts"},
	{"quirk", "", "a workaround of the kernel"},
	{"Quirk", "", "a workaround of the kernel"},
	{"Enabling HDA controller", "", "audio function of a GPU"},
	{"Configuring Native PCIe Enclosure Management", "", "drive lamps"},
	{"working around", "", "a workaround of the kernel"},
	{"calc_l1ss", "", "debug"},
	{"PTM enabled", "", "time measurement"},
	{"Intel ", "", "a workaround of the kernel"},
	{"", "requires relaxed alignment rules", "size of a window under discussion"},
	{"", "] add_size", "size of a window under discussion"},
	{"", "root bus resource [", "address ranges of a host bridge"},
	{"", "pci_notify", "VGA arbitration"},
}

// ignored gives the reason why a line is known to say nothing, "" where it is
// not.
func ignored(l *line) string {
	text := l.text
	if l.device == "" {
		text = l.message
	}
	for _, family := range ignoredLines {
		if family.prefix != "" && strings.HasPrefix(text, family.prefix) ||
			family.prefix == "" && strings.Contains(text, family.mark) {
			return family.reason
		}
	}
	if l.device == "" && strings.HasPrefix(text, "pci_bus ") && strings.Contains(text, ": resource ") {
		return "address ranges of a bus"
	}
	return ""
}
