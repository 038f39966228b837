package probe

import (
	"strings"

	"ringlane/internal/model/machine"
)

// cmdlineWords counts what only a kernel command line has, as is or by parts,
// in a line: the contents of /proc/cmdline.
func cmdlineWords(s string) int {
	if len(s) > 8192 || strings.Contains(s, ": ") && !strings.HasPrefix(s, "BOOT_IMAGE=") {
		return 0
	}
	n := 0
	for w := range strings.FieldsSeq(s) {
		key, _, _ := strings.Cut(w, "=")
		switch key {
		case "BOOT_IMAGE", "root":
			n += 2
		case "initrd", "ro", "rw", "quiet", "splash", "console", "crashkernel", "iommu", "amd_iommu", "intel_iommu",
			"iommu.passthrough", "pci", "pcie_aspm", "mitigations", "nomodeset", "earlyprintk", "panic", "loglevel",
			"systemd.unified_cgroup_hierarchy", "default_hugepagesz", "hugepagesz", "hugepages", "pcie_ports":
			n++
		}
	}
	return n
}

// setCommandLine keeps the first kernel command line seen: another one in the
// same input is of an earlier or later boot.
func (b *builder) setCommandLine(line int, s string) {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
	case b.m.CommandLine == "":
		b.m.CommandLine = s
	case strings.Join(strings.Fields(b.m.CommandLine), " ") != strings.Join(strings.Fields(s), " "):
		b.problem(line, machine.Contradiction, "another kernel command line was seen before (the first is used): %q", s)
	}
}
