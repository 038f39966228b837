// Package machine is one computer as a document: every fact about its PCI
// Express tree that was seen, where from, and what could not be read. A
// capture is this document saved; parsers of reports fill the same document;
// rules and topology read nothing else.
//
// A fact that was not seen is a nil pointer, an empty string, or an ID whose
// Known is false.
package machine

import (
	"slices"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/pcie"
)

// Machine is the document.
type Machine struct {
	Version int `json:"version"` // of the format: see Version

	// Inputs are what the document was made from, in the order read.
	Inputs []Input `json:"inputs,omitempty"`

	Host          string   `json:"host,omitempty"` // "" where unknown or removed
	Kernel        string   `json:"kernel,omitempty"`
	CommandLine   string   `json:"command_line,omitempty"` // of the kernel
	UptimeSeconds *float64 `json:"uptime_seconds,omitempty"`
	Product       string   `json:"product,omitempty"` // of the system, from DMI

	// Devices are sorted by address, one entry an address.
	Devices []*Device `json:"devices,omitempty"`
	// NUMANodes are those the kernel lists; empty where no input tells.
	NUMANodes []NUMANode `json:"numa_nodes,omitempty"`
	IOMMU     IOMMU      `json:"iommu"`
	Virtual   Virtual    `json:"virtual"`

	// Driver is what nvidia-smi says of itself.
	Driver Driver `json:"driver"`
	// Matrix is nvidia-smi topo -m, nil if not seen.
	Matrix *Matrix `json:"matrix,omitempty"`
	// P2P are the matrices of nvidia-smi topo -p2p.
	P2P []Matrix `json:"p2p,omitempty"`
	// NCCL is what NCCL's log and topology file say, nil if neither was seen.
	NCCL *NCCL `json:"nccl,omitempty"`

	// Log is the kernel log, each text in the order of its lines. In the saved
	// document it is LogText.
	Log      []kernlog.Entry `json:"-"`
	LogParts []LogPart       `json:"-"`
	// LogText is the log of a saved document: whole if the capture has put it
	// here, otherwise the lines of Log.
	LogText []LogText `json:"kernel_log,omitempty"`

	Problems []Problem `json:"problems,omitempty"`
}

// Version is the format that this package writes. It reads this one and
// every older one.
const Version = 1

// An Input is one file or stream, and what was recognised in it.
type Input struct {
	Name  string `json:"name"`
	Kinds []Kind `json:"kinds,omitempty"`
	Lines int    `json:"lines,omitempty"`
}

// A Kind is a kind of input.
type Kind string

// The kinds of input.
const (
	KindCapture   Kind = "capture"
	KindSysfs     Kind = "sysfs"
	KindLspci     Kind = "lspci"
	KindLspciTree Kind = "lspci-tree"
	KindKernelLog Kind = "kernel-log"
	KindBugReport Kind = "nvidia-bug-report"
	KindTopo      Kind = "nvidia-smi-topo"
	KindQuery     Kind = "nvidia-smi-q"
	KindNCCLXML   Kind = "nccl-topo-xml"
	KindNCCLLog   Kind = "nccl-log"
	KindCmdline   Kind = "cmdline"
)

// Saw reports whether any input of one of the kinds was read.
func (m *Machine) Saw(kinds ...Kind) bool {
	for i := range m.Inputs {
		for _, k := range m.Inputs[i].Kinds {
			if slices.Contains(kinds, k) {
				return true
			}
		}
	}
	return false
}

// A Problem is something that could not be read, or that does not fit.
type Problem struct {
	Input string       `json:"input,omitempty"`
	Line  int          `json:"line,omitempty"` // 0: the input as a whole
	Class ProblemClass `json:"class"`
	Text  string       `json:"text"`
}

// ProblemClass says what kind of problem it is.
type ProblemClass string

// The classes of problems.
const (
	Unrecognised  ProblemClass = "unrecognised-input" // no parser knows the content
	Unreadable    ProblemClass = "unreadable"         // the file or device could not be read
	Denied        ProblemClass = "denied"             // not without privilege
	Malformed     ProblemClass = "malformed"          // a known kind, but this part makes no sense
	Truncated     ProblemClass = "truncated"          // it ends too early
	Contradiction ProblemClass = "contradiction"      // two inputs disagree
	Unsupported   ProblemClass = "unsupported"        // a newer format than this program knows
)

// NUMANode is one memory node.
type NUMANode struct {
	ID       int    `json:"id"`
	CPUs     string `json:"cpus,omitempty"`     // as a list, "0-63,128-191"
	Socket   *int   `json:"socket,omitempty"`   // physical package
	Distance []int  `json:"distance,omitempty"` // to the nodes in order of ID
}

// Driver names versions of the NVIDIA driver.
type Driver struct {
	Version string `json:"version,omitempty"`
	CUDA    string `json:"cuda,omitempty"`
}

// IOMMU is what was seen of the I/O memory management units.
type IOMMU struct {
	// Units are the units that the kernel runs (dmar0, ivhd1, smmu3.…), from
	// /sys/class/iommu; UnitsSeen tells an empty list from one not looked at.
	Units     []string `json:"units,omitempty"`
	UnitsSeen bool     `json:"units_seen,omitempty"`
}

// Virtual is what hints at a virtual machine.
type Virtual struct {
	// Hypervisor is its name where one is known: "KVM", "QEMU", "Hyper-V",
	// "VMware", "Xen", "Firecracker"…
	Hypervisor string `json:"hypervisor,omitempty"`
	// Hints are the facts it rests on, such as "0000:00:00.0 is an emulated
	// host bridge".
	Hints []string `json:"hints,omitempty"`
}

// Likely reports whether anything says that the machine is virtual.
func (v *Virtual) Likely() bool { return v.Hypervisor != "" || len(v.Hints) > 0 }

// Matrix is a table of nvidia-smi topo.
type Matrix struct {
	// Kind is "topology" for topo -m and "p2p" for topo -p2p, whose output
	// does not say which of its kinds it is.
	Kind  string      `json:"kind"`
	Names []string    `json:"names"` // GPU0…, NIC0… (or mlx5_0…), in order
	Rows  []MatrixRow `json:"rows"`
	// NICs maps NIC0 to its name mlx5_0, from the legend.
	NICs map[string]string `json:"nics,omitempty"`
}

// MatrixRow is a row: Cells[i] says how Name reaches Names[i].
type MatrixRow struct {
	Name  string   `json:"name"`
	Cells []string `json:"cells"` // "X", "PIX", "PXB", "PHB", "NODE", "SYS", "NV18"; of topo -p2p "OK", "NS", "CNS"…
	// CPUs and NUMA are the affinity columns, "" where absent or N/A.
	CPUs string `json:"cpus,omitempty"`
	NUMA *int   `json:"numa,omitempty"`
}

// Cell returns how a reaches b by the names of the matrix, "" if not in it.
func (m *Matrix) Cell(a, b string) string {
	if m == nil {
		return ""
	}
	column := slices.Index(m.Names, b)
	for i := range m.Rows {
		if r := &m.Rows[i]; r.Name == a && column >= 0 && column < len(r.Cells) {
			return r.Cells[column]
		}
	}
	return ""
}

// Device returns the device with the address, nil if there is none.
func (m *Machine) Device(b pcie.BDF) *Device {
	i, ok := m.find(b)
	if !ok {
		return nil
	}
	return m.Devices[i]
}

// Add returns the device with the address and puts it into the document if it
// is not there.
func (m *Machine) Add(b pcie.BDF) *Device {
	i, ok := m.find(b)
	if ok {
		return m.Devices[i]
	}
	d := &Device{BDF: b}
	m.Devices = slices.Insert(m.Devices, i, d)
	return d
}

func (m *Machine) find(b pcie.BDF) (int, bool) {
	// Inputs list devices in order: look at the end first.
	if n := len(m.Devices); n > 0 && m.Devices[n-1].BDF.Compare(b) < 0 {
		return n, false
	}
	return slices.BinarySearchFunc(m.Devices, b, func(d *Device, b pcie.BDF) int { return d.BDF.Compare(b) })
}

// Children returns the devices whose Parent is b, in order of address.
func (m *Machine) Children(b pcie.BDF) []*Device {
	var out []*Device
	for _, d := range m.Devices {
		if d.Parent != nil && *d.Parent == b {
			out = append(out, d)
		}
	}
	return out
}

// GPUs returns the devices that are GPUs, in order of address.
func (m *Machine) GPUs() []*Device {
	var out []*Device
	for _, d := range m.Devices {
		if d.IsGPU() {
			out = append(out, d)
		}
	}
	return out
}
