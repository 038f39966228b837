package kernlog

import "strings"

// interesting is the filter that nearly every line of a long log stops at: a
// line goes on if it has a PCI address near its start or begins like one that
// has none.
func interesting(m, program string) bool {
	if len(m) < 8 {
		return false
	}
	if program != "" {
		return strings.Contains(m, "aer_event: ") || strings.HasPrefix(m, "Detected virtualization ") ||
			strings.HasPrefix(m, "Missed ")
	}
	switch m[0] {
	case 'A':
		return hasAny(m, "AER: ", "AER recover: ", "ACPI: PCI Root Bridge", "ACPI FADT declares", "AMD-Vi: ")
	case 'B':
		return hasAny(m, "BERT: ", "Booting paravirtualized")
	case 'C':
		return strings.HasPrefix(m, "Command line: ")
	case 'D':
		return hasAny(m, "DMAR: ", "DMI: ", "Detected virtualization ")
	case 'G':
		return strings.HasPrefix(m, "GHES: ")
	case 'H':
		return strings.HasPrefix(m, "Hypervisor detected: ")
	case 'K':
		return hasAny(m, "Kernel command line: ", "Kernel panic - not syncing: Fatal hardware")
	case 'L':
		return strings.HasPrefix(m, bootMark)
	case 'N':
		return strings.HasPrefix(m, "NVRM: ")
	case 'P':
		return hasAny(m, "PCI host bridge to bus ", "PCIe ASPM is disabled")
	case '{', '[':
		if strings.HasPrefix(m, "[Hardware Error]") || m[0] == '{' {
			return true
		}
	case '*':
		return strings.HasPrefix(m, "** ")
	case 'a':
		if hasAny(m, "acpi ", "aer_event: ", "arm-smmu") {
			return true
		}
	case 'i':
		if strings.HasPrefix(m, "iommu: ") {
			return true
		}
	case 'n':
		if hasAny(m, "nvidia-nvswitch", "nvme nvme") {
			return true
		}
	case 'p':
		if hasAny(m, "pci_bus ", "pciehp: ") {
			return true
		}
	case 's':
		if strings.HasPrefix(m, "systemd[1]: Detected") {
			return true
		}
	}
	return strings.HasSuffix(m, suppressed) || startsDevice(m) || strings.Contains(m[:min(len(m), 64)], "aer_event: ")
}

func hasAny(text string, prefixes ...string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

const devicePrefix = 64 // bytes in which a line names its device

// deviceAt finds the address in "DRIVER BDF: text" and gives its bounds; end
// is 0 where there is none.
func deviceAt(m string) (start, end int) {
	head := m[:min(len(m), devicePrefix)]
	for i := 4; i < len(head); i++ {
		c := strings.IndexByte(head[i:], ':')
		if c < 0 {
			return 0, 0
		}
		// dddd:bb:dd.f or bb:dd.f: the colon before the device number.
		i += c
		if len(m) < i+6 || m[i+3] != '.' || !isHex(m[i+1]) || !isHex(m[i+2]) || !isHex(m[i-1]) || !isHex(m[i-2]) ||
			m[i+4] < '0' || m[i+4] > '7' || m[i+5] != ':' && m[i+5] != ' ' {
			continue
		}
		start = i - 2
		if start >= 5 && m[start-1] == ':' {
			n := start - 1
			for n > 0 && isHex(m[n-1]) && start-n < 9 {
				n--
			}
			if start-1-n >= 4 {
				start = n
			}
		}
		if start > 0 && m[start-1] != ' ' {
			continue
		}
		return start, i + 5
	}
	return 0, 0
}

// startsDevice reports whether a line begins with a driver and an address.
func startsDevice(m string) bool {
	_, end := deviceAt(m)
	return end > 0
}

// locate splits "DRIVER BDF[:pcie004| eth0]: text". Lines with a grammar of
// their own keep their address for their parser.
func (l *line) locate() {
	m := l.message
	if strings.HasPrefix(m, "NVRM: ") || strings.HasPrefix(m, "aer_event: ") || strings.HasPrefix(m, "DMAR: ") {
		return
	}
	start, end := deviceAt(m)
	if end == 0 {
		return
	}
	before := strings.TrimRight(m[:start], " ")
	if strings.Count(before, " ") > 2 {
		return // prose that mentions a device
	}
	rest := m[end:]
	l.text = trimPrefix(rest, ":")
	// A port service or a network interface may follow the address.
	name, _, ok := strings.Cut(rest[:min(len(rest), 48)], ": ")
	if ok && (name == "" || name[0] == ':' || name[0] == ' ') && strings.Count(name, " ") <= 1 {
		l.text = rest[len(name)+len(": "):]
	}
	l.device, _ = cutAddress(m[start:end])
	if i := strings.LastIndexByte(before, ' '); i >= 0 {
		before = before[i+1:]
	}
	l.driver = before
}

type parser = func(*line) Event

var (
	deviceParsers = []parser{
		(*line).resource, (*line).hotplug, (*line).recovery, (*line).buses, (*line).found,
		(*line).link, (*line).portService, (*line).edr, (*line).payload, (*line).aspm,
		(*line).iommu, (*line).amdgpu, (*line).loss,
	}
	hostParsers = []parser{
		(*line).busLine, (*line).osc, (*line).rootBridge, (*line).boot, (*line).iommu,
		(*line).controllerLine, (*line).nvswitch, (*line).hotplug, (*line).firmware,
		(*line).aspm, (*line).loss, (*line).aerTrace,
	}
	nvidiaParsers = []parser{(*line).nvrm}
)

func parsersOf(l *line) []parser {
	switch {
	case l.device != "":
		return deviceParsers
	case strings.HasPrefix(l.message, "NVRM: "):
		return nvidiaParsers
	}
	return hostParsers
}

// aboutPCIe reports whether a line is one that this package means to
// understand: of the PCI core and its port services, or with their tags.
func (l *line) aboutPCIe() bool {
	switch l.driver {
	case "pci", "pcieport", "pciehp", "shpchp", "aer":
		return true
	}
	if l.device == "" {
		return hasAny(l.message, "pci_bus ", "AER: ", "pciehp: ", "NVRM: Xid")
	}
	return hasAny(l.text, "AER: ", "DPC: ", "EDR: ", "pciehp: ", "PCIe Bus Error", "CXL Bus Error", "BAR ")
}
