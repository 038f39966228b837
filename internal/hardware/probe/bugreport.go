package probe

import (
	"strconv"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// bugReport follows an nvidia-bug-report.log: sections between rules of
// underscores, each with the command or the file that it shows. Outputs of
// commands are recognised by the other parsers; files are short and mean
// something only by their path.
type bugReport struct {
	b    *builder
	path string // of the file whose contents follow, "" for none
	gpu  *machine.Device
}

const reportRule = "____________________________________________"

func (r *bugReport) line(no int, s string) bool {
	switch {
	case strings.HasPrefix(s, reportRule):
		r.path, r.gpu = "", nil
		return false // the log's scanner follows the sections too
	case strings.HasPrefix(s, "Start of NVIDIA bug report"):
		r.b.saw(machine.KindBugReport)
		return false
	case strings.HasPrefix(s, "*** ls:"), strings.HasPrefix(s, "*** /dev"):
		return r.path != ""
	case strings.HasPrefix(s, "*** /"):
		r.path = strings.TrimSpace(s[4:])
		return false
	}
	if r.path == "" {
		return false
	}
	if s != "" {
		r.file(no, strings.TrimSpace(s))
	}
	return true
}

// file takes a line of the file at path.
func (r *bugReport) file(no int, s string) {
	path := r.path
	switch {
	case path == "/proc/cmdline":
		r.b.saw(machine.KindCmdline)
		r.b.setCommandLine(no, s)
	case path == "/proc/version":
		if v, ok := strings.CutPrefix(s, "Linux version "); ok && r.b.m.Kernel == "" {
			r.b.m.Kernel = firstWord(v)
		}
	case path == "/sys/devices/system/node/online" || path == "/sys/devices/system/node/has_memory":
		r.b.setNodes(s)
	case strings.HasPrefix(path, "/sys/bus/pci/devices/"):
		r.attribute(no, strings.TrimPrefix(path, "/sys/bus/pci/devices/"), s)
	case strings.HasSuffix(path, "/information") && strings.Contains(path, "/gpus/"):
		r.information(no, s)
	}
}

func (r *bugReport) attribute(no int, path, value string) {
	address, name, _ := strings.Cut(path, "/")
	at, err := pcie.ParseBDF(address)
	if err != nil {
		return
	}
	switch name {
	case "numa_node":
		if n, err := strconv.Atoi(value); err == nil {
			r.b.setNUMA(r.b.device(at, machine.KindBugReport), no, n, fromRegisters)
		}
	}
}

// information reads /proc/driver/nvidia/gpus/BDF/information: "Model: ...".
func (r *bugReport) information(no int, s string) {
	key, value, ok := strings.Cut(s, ":")
	if !ok {
		return
	}
	value = strings.TrimSpace(value)
	if r.gpu == nil {
		_, rest, _ := strings.Cut(r.path, "/gpus/")
		address, _, _ := strings.Cut(rest, "/")
		at, err := pcie.ParseBDF(address)
		if err != nil {
			return
		}
		r.gpu = r.b.device(at, machine.KindBugReport)
		if !r.gpu.Vendor.Known {
			r.b.setVendor(r.gpu, no, machine.VendorNVIDIA, fromText)
		}
		made(&r.gpu.GPU)
	}
	g := r.gpu.GPU
	fill := func(to *string) {
		if *to == "" && !strings.Contains(value, "?") {
			*to = value
		}
	}
	switch key {
	case "Model":
		fill(&g.Name)
	case "GPU UUID":
		fill(&g.UUID)
	case "Video BIOS":
		fill(&g.VBIOS)
	case "Device Minor":
		if g.Minor == nil {
			g.Minor = integer(value)
		}
	}
}

// setNodes takes a list of NUMA nodes such as "0-1" or "0,2".
func (b *builder) setNodes(list string) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		z := a
		if isRange && err == nil {
			z, err = strconv.Atoi(to)
		}
		if err != nil || a < 0 || z > maxNodes {
			return
		}
		for id := a; id <= z; id++ {
			b.node(id)
		}
	}
}

// maxNodes is the most NUMA nodes that Linux can be built for.
const maxNodes = 1024

// node returns the NUMA node with the number, made if it is new.
func (b *builder) node(id int) *machine.NUMANode {
	i := 0
	for ; i < len(b.m.NUMANodes) && b.m.NUMANodes[i].ID <= id; i++ {
		if b.m.NUMANodes[i].ID == id {
			return &b.m.NUMANodes[i]
		}
	}
	b.m.NUMANodes = append(b.m.NUMANodes, machine.NUMANode{})
	copy(b.m.NUMANodes[i+1:], b.m.NUMANodes[i:])
	b.m.NUMANodes[i] = machine.NUMANode{ID: id}
	return &b.m.NUMANodes[i]
}
