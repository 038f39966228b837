package machine

import "ringlane/internal/model/pcie"

// NCCL is what NCCL said of the machine, in its topology file and its log.
type NCCL struct {
	Version string `json:"version,omitempty"`
	// CPUs and Nodes are the topology file. Every node with an address is a
	// Device too, with Parent, NUMA and NCCLLink set.
	CPUs  []NCCLCPU  `json:"cpus,omitempty"`
	Nodes []NCCLNode `json:"nodes,omitempty"`

	Ranks    []NCCLRank `json:"ranks,omitempty"`
	Channels [][]int    `json:"channels,omitempty"` // ranks in ring order
	// Transports are the ways between ranks that the log names, each once.
	Transports []NCCLTransport `json:"transports,omitempty"`
	// Warnings are the NCCL WARN lines, each text once, as far as MaxWarnings.
	Warnings []Warning `json:"warnings,omitempty"`
	// P2PDisabled is set where the log says that peer access is off, by the
	// environment or by a check.
	P2PDisabled string `json:"p2p_disabled,omitempty"`
	// NoPassthrough is the line by which the log says that the kernel was
	// booted without iommu=pt.
	NoPassthrough string `json:"no_passthrough,omitempty"`
}

// NCCLCPU is a cpu element: a NUMA node.
type NCCLCPU struct {
	NUMA     int    `json:"numa"` // -1 where the file has none
	HostHash string `json:"host_hash,omitempty"`
	Affinity string `json:"affinity,omitempty"`
	Arch     string `json:"arch,omitempty"`
	Vendor   string `json:"vendor,omitempty"`
}

// NCCLNode is a pci element of the topology file.
type NCCLNode struct {
	BDF    pcie.BDF  `json:"bdf"`
	Parent *pcie.BDF `json:"parent,omitempty"`
	CPU    int       `json:"cpu"` // index into CPUs, -1 if under none
	// Virtual is set on bridges that NCCL or a cloud invented (ffff:ff:xx.x).
	Virtual bool      `json:"virtual,omitempty"`
	GPU     *NCCLGPU  `json:"gpu,omitempty"`
	Nets    []NCCLNet `json:"nets,omitempty"`
}

// NCCLGPU is a gpu element.
type NCCLGPU struct {
	Dev     int      `json:"dev"`  // -1 if absent
	Rank    int      `json:"rank"` // -1 if absent
	SM      string   `json:"sm,omitempty"`
	GDR     bool     `json:"gdr,omitempty"`
	NVLinks []NVLink `json:"nvlinks,omitempty"` // or XGMI
}

// NVLink is an nvlink or xgmi element.
type NVLink struct {
	Target string `json:"target"` // an address, or a switch
	Count  int    `json:"count"`
	Class  string `json:"class,omitempty"`
	XGMI   bool   `json:"xgmi,omitempty"`
}

// NCCLNet is a net element.
type NCCLNet struct {
	Name  string `json:"name"`
	Speed int    `json:"speed"` // Mbit/s
	GUID  string `json:"guid,omitempty"`
	GDR   bool   `json:"gdr,omitempty"`
}

// NCCLRank is a rank as the log shows it.
type NCCLRank struct {
	Rank  int       `json:"rank"`
	Ranks int       `json:"ranks"`
	Host  string    `json:"host,omitempty"`
	CUDA  int       `json:"cuda"` // CUDA's number of the GPU
	NVML  int       `json:"nvml"` // nvidia-smi's, -1 if not told
	BDF   *pcie.BDF `json:"bdf,omitempty"`
}

// NCCLTransport is the way from one rank to another.
type NCCLTransport struct {
	From int    `json:"from"`
	To   int    `json:"to"`
	Via  string `json:"via"` // "P2P/CUMEM", "SHM/direct/direct", "NET/IB/0"…
}

// Warning is a line that a program marked as a warning.
type Warning struct {
	Text  string `json:"text"`
	Count int    `json:"count"`
}

// MaxWarnings bounds the number of different warnings that are kept.
const MaxWarnings = 100
