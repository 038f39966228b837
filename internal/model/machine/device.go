package machine

import (
	"strings"

	"ringlane/internal/model/pcie"
)

// Device is one PCI function.
type Device struct {
	BDF pcie.BDF `json:"bdf"`
	// Parent is the upstream bridge. With ParentKnown it is the bridge right
	// above, and nil means that the device is on a root bus. Without, it is
	// the nearest bridge above that an input shows, or nil if none does.
	Parent      *pcie.BDF `json:"parent,omitempty"`
	ParentKnown bool      `json:"parent_known,omitempty"`
	// RootBus is the bus of the host bridge above, where an input shows it.
	RootBus *uint8 `json:"root_bus,omitempty"`

	Vendor          ID     `json:"vendor"`
	Model           ID     `json:"model"` // the device identifier
	SubsystemVendor ID     `json:"subsystem_vendor"`
	SubsystemModel  ID     `json:"subsystem_model"`
	Class           Class  `json:"class"`
	Revision        *uint8 `json:"revision,omitempty"`

	Driver string `json:"driver,omitempty"`
	// NUMA is nil where no input tells the node, and -1 where the kernel was
	// asked and knows none.
	NUMA *int `json:"numa,omitempty"`
	// Slot is the label of the physical slot, "12" or "0-1".
	Slot string `json:"slot,omitempty"`
	// Label is the firmware's name for the device, "Onboard LAN".
	Label      string `json:"label,omitempty"`
	IOMMUGroup *int   `json:"iommu_group,omitempty"`
	// IOMMUDomain is the type of the group's domain in the kernel's words:
	// "DMA", "DMA-FQ" (translated), "identity" (passthrough).
	IOMMUDomain string `json:"iommu_domain,omitempty"`
	// PowerState is the kernel's word: "D0", "D3hot", "D3cold", "unknown".
	PowerState string `json:"power_state,omitempty"`

	// Registers are what configuration space holds, from bytes or from text.
	Registers pcie.Registers `json:"registers"`
	// Link is what the kernel says of the link in sysfs: it needs no
	// privilege. Prefer Current and Max, which look at the registers first.
	Link *KernelLink `json:"link,omitempty"`
	// NCCLLink is the link in NCCL's topology file: the most that the device
	// and the port above it can do, as NCCL saw it.
	NCCLLink *pcie.Link `json:"nccl_link,omitempty"`

	Resources []Resource `json:"resources,omitempty"`
	// Counters are the kernel's counts of AER errors, nil if not seen.
	Counters *Counters `json:"counters,omitempty"`
	// PhysicalFunction is the PF of an SR-IOV virtual function.
	PhysicalFunction *pcie.BDF `json:"physical_function,omitempty"`
	// Interfaces are the network or RDMA names: "eth0", "mlx5_0".
	Interfaces []string `json:"interfaces,omitempty"`

	GPU *GPU `json:"gpu,omitempty"`

	// Virtual is set on bridges that do not exist, such as NCCL's ffff:ff:01.0
	// for a switch that a virtual machine hides.
	Virtual bool `json:"virtual,omitempty"`
	// Lost is set where the text itself says that the device does not answer:
	// "(rev ff)", "Unknown header type 7f", "ERR!".
	Lost bool `json:"lost,omitempty"`

	// Sources are the kinds of input that spoke of the device.
	Sources []Kind `json:"sources,omitempty"`
}

// ID is an identifier and its name; either may be missing.
type ID struct {
	Code  uint16 `json:"code,omitempty"`
	Known bool   `json:"known,omitempty"` // Code was seen
	Name  string `json:"name,omitempty"`
}

// Class is the class of a device: 0x030200 is base class 03, sub-class 02,
// programming interface 00.
type Class struct {
	Code  uint32 `json:"code,omitempty"`
	Known bool   `json:"known,omitempty"`
	Name  string `json:"name,omitempty"`
}

// KernelLink holds the sysfs attributes current_link_* and max_link_*.
type KernelLink struct {
	Current pcie.Link `json:"current"`
	Max     pcie.Link `json:"max"`
}

// Counters hold sysfs aer_dev_*: short names of errors and their counts,
// those above zero. Totals are the kernel's own TOTAL_ERR lines.
type Counters struct {
	Correctable      map[string]uint64 `json:"correctable,omitempty"`
	NonFatal         map[string]uint64 `json:"nonfatal,omitempty"`
	Fatal            map[string]uint64 `json:"fatal,omitempty"`
	TotalCorrectable uint64            `json:"total_correctable"`
	TotalNonFatal    uint64            `json:"total_nonfatal"`
	TotalFatal       uint64            `json:"total_fatal"`
	// Root counts the messages that a root port received.
	Root *RootCounters `json:"root,omitempty"`
}

// RootCounters hold sysfs aer_rootport_total_err_*.
type RootCounters struct {
	Correctable uint64 `json:"correctable"`
	NonFatal    uint64 `json:"nonfatal"`
	Fatal       uint64 `json:"fatal"`
}

// ResourceState says whether a resource has an address.
type ResourceState string

// The states of a resource.
const (
	Assigned   ResourceState = "assigned"
	Unassigned ResourceState = "unassigned" // it has a size and no address
	Disabled   ResourceState = "disabled"   // it has an address and is not decoded
	Ignored    ResourceState = "ignored"    // the kernel does not use it
)

// Resource is a BAR, a ROM or a bridge window as the kernel or lspci shows it.
type Resource struct {
	Kind ResourceKind `json:"kind"`
	// Index is the number of the BAR (0 to 5) or VF BAR; of a window 0 for
	// I/O, 1 for memory, 2 for prefetchable memory. -1 where not told.
	Index        int           `json:"index"`
	Address      uint64        `json:"address,omitempty"`
	Size         uint64        `json:"size,omitempty"` // bytes; 0 where not told
	IO           bool          `json:"io,omitempty"`
	Wide         bool          `json:"wide,omitempty"`
	Prefetchable bool          `json:"prefetchable,omitempty"`
	State        ResourceState `json:"state"`
}

// ResourceKind says what a resource belongs to.
type ResourceKind string

// The kinds of resources.
const (
	BAR      ResourceKind = "bar"
	ROM      ResourceKind = "rom"
	Window   ResourceKind = "window"
	VFRegion ResourceKind = "vf-bar"
)

// GPU holds what only a GPU has, as nvidia-smi or the driver says it.
type GPU struct {
	Index    *int   `json:"index,omitempty"` // nvidia-smi's, not CUDA's
	Name     string `json:"name,omitempty"`
	UUID     string `json:"uuid,omitempty"`
	Serial   string `json:"serial,omitempty"`
	Minor    *int   `json:"minor,omitempty"`
	VBIOS    string `json:"vbios,omitempty"`
	PState   string `json:"pstate,omitempty"` // "P0" to "P15"
	MIG      *bool  `json:"mig,omitempty"`
	BAR1     uint64 `json:"bar1,omitempty"`     // bytes
	Memory   uint64 `json:"memory,omitempty"`   // bytes
	Recovery string `json:"recovery,omitempty"` // "GPU Recovery Action", "" for none
	// Virtualization is nvidia-smi's mode: "None", "Pass-Through", "VGPU",
	// "Host VGPU", "Host VSGA".
	Virtualization string `json:"virtualization,omitempty"`

	Link *GPULink `json:"link,omitempty"`
	// Replays and Rollovers are counted by the GPU since its last reset.
	Replays   *uint64 `json:"replays,omitempty"`
	Rollovers *uint64 `json:"rollovers,omitempty"`
	// Broken is nvidia-smi's own word where it cannot reach the GPU:
	// "GPU is lost", "Unknown Error".
	Broken string `json:"broken,omitempty"`
}

// GPULink is "GPU Link Info" of nvidia-smi -q. Max is the most that the GPU
// and the system can do together; DeviceMax and HostMax tell whose limit it
// is, in newer versions only.
type GPULink struct {
	Current   pcie.Link  `json:"current"`
	Max       pcie.Link  `json:"max"`
	DeviceMax pcie.Speed `json:"device_max"`
	HostMax   pcie.Speed `json:"host_max"`
}

// Current returns the negotiated link above (or, for a port that looks down,
// below) the device: registers, then sysfs, then nvidia-smi. ok is false
// where no input tells.
func (d *Device) Current() (link pcie.Link, ok bool) {
	if x := d.Registers.Express; x != nil && x.LnkSta != nil {
		return x.LnkSta.Link, true
	}
	if d.Link != nil && (d.Link.Current != pcie.Link{}) {
		return d.Link.Current, true
	}
	if d.GPU != nil && d.GPU.Link != nil && (d.GPU.Link.Current != pcie.Link{}) {
		return d.GPU.Link.Current, true
	}
	return pcie.Link{}, false
}

// Max returns the most that this end of the link can do: registers, then
// sysfs. What nvidia-smi and NCCL call the maximum includes the other end and
// is not used here.
func (d *Device) Max() (link pcie.Link, ok bool) {
	if x := d.Registers.Express; x != nil && x.LnkCap != nil {
		return x.LnkCap.Link, true
	}
	if d.Link != nil && (d.Link.Max != pcie.Link{}) {
		return d.Link.Max, true
	}
	return pcie.Link{}, false
}

// Unreachable reports whether the device answers with all ones.
func (d *Device) Unreachable() bool { return d.Lost || d.Registers.AllOnes }

// Name returns the best name there is for people.
func (d *Device) Name() string {
	switch {
	case d.GPU != nil && d.GPU.Name != "":
		return d.GPU.Name
	case d.Vendor.Name != "" && d.Model.Name != "":
		return strings.TrimSpace(d.Vendor.Name + " " + d.Model.Name)
	case d.Model.Name != "":
		return d.Model.Name
	}
	return strings.TrimSpace(d.Vendor.Name + " " + d.Class.Name)
}

// Vendors that rules need to know.
const (
	VendorAMD      = 0x1002 // the GPUs of AMD (formerly ATI)
	VendorAMDCPU   = 0x1022
	VendorNVIDIA   = 0x10de
	VendorIntel    = 0x8086
	VendorMellanox = 0x15b3
	VendorBroadcom = 0x1000 // and LSI: PEX switches
	VendorPLX      = 0x10b5
	VendorAmazon   = 0x1d0f
)

// Of reports whether the device is known to be of the vendor.
func (d *Device) Of(vendor uint16) bool { return d.Vendor.Known && d.Vendor.Code == vendor }

// base returns base class and sub-class, 0xffff where the class is unknown.
func (d *Device) base() uint32 {
	if !d.Class.Known {
		return 0xffff
	}
	return d.Class.Code >> 8
}

// IsGPU reports whether the device computes: a display controller or
// processing accelerator of a maker of GPUs, but no management console, no
// emulated display and no graphics unit inside a CPU.
func (d *Device) IsGPU() bool {
	if d.GPU != nil {
		return true
	}
	switch {
	case !d.Class.Known:
		return d.namedGPU()
	case d.base()>>8 == 0x03:
		switch {
		case !d.Vendor.Known: // NCCL's older files tell the class only
			return d.base() == 0x0302
		case d.Of(VendorNVIDIA):
			return true
		case d.Of(VendorAMD):
			return !d.integratedAMD()
		case d.Of(VendorIntel): // graphics inside the CPU is always 00:02.0
			return d.BDF.Bus != 0 || d.BDF.Device != 2
		}
	case d.base() == 0x1200:
		return d.Of(VendorAMD) || d.Of(VendorNVIDIA) || d.Of(VendorIntel)
	}
	return false
}

// namedGPU recognises a GPU where only its name was seen, as in lspci -tv.
func (d *Device) namedGPU() bool {
	if !d.Of(VendorNVIDIA) || d.BDF.Function != 0 || d.Registers.Bridge != nil || !strings.Contains(d.Model.Name, "[") {
		return false
	}
	for _, other := range []string{"Audio", "USB", "NVSwitch", "NVLink", "Bridge", "UCSI", "BlueField"} {
		if strings.Contains(d.Model.Name, other) {
			return false
		}
	}
	return true
}

// integratedAMD recognises the graphics of an APU by the names that lspci
// prints for it: it sits behind a port of its own like a card.
func (d *Device) integratedAMD() bool {
	for _, n := range []string{"Raven", "Picasso", "Renoir", "Lucienne", "Cezanne", "Barcelo", "Rembrandt", "Raphael",
		"Phoenix", "Strix", "Granite Ridge", "Mendocino", "Kaveri", "Carrizo", "Stoney", "Bristol Ridge", "HawkPoint", "Krackan"} {
		if strings.Contains(d.Model.Name, n) {
			return true
		}
	}
	return false
}

// IsNIC reports whether the device is a network, InfiniBand or Fibre Channel
// fabric controller.
func (d *Device) IsNIC() bool { return d.base()>>8 == 0x02 || d.base() == 0x0c06 }

// IsRDMA reports whether the device is a NIC that can reach the memory of
// other devices: InfiniBand, or a maker and kind known for RDMA.
func (d *Device) IsRDMA() bool {
	if !d.IsNIC() {
		return false
	}
	if d.base() == 0x0207 || d.base() == 0x0c06 || d.Of(VendorMellanox) {
		return true
	}
	for _, n := range d.Interfaces {
		if strings.HasPrefix(n, "mlx") || strings.HasPrefix(n, "ib") || strings.HasPrefix(n, "roce") ||
			strings.HasPrefix(n, "bnxt_re") || strings.HasPrefix(n, "irdma") || strings.HasPrefix(n, "rdmap") {
			return true
		}
	}
	for _, n := range rdmaNames {
		if strings.Contains(d.Model.Name, n) {
			return true
		}
	}
	return d.Of(VendorAmazon) && d.Model.Known && d.Model.Code&^0xf == 0xefa0
}

// rdmaNames are marks of RDMA NICs in the names that lspci prints.
var rdmaNames = []string{
	"ConnectX", "BlueField", "Elastic Fabric Adapter", "(EFA)", "RDMA",
	"BCM575", "BCM576", // NetXtreme-E from 57500 on
	"E810", "E823", "E825", "E830", // Intel's, by RoCE v2
}

// IsNVMe reports whether the device is an NVMe controller.
func (d *Device) IsNVMe() bool { return d.base() == 0x0108 }

// IsBridge reports whether the device is a PCI-to-PCI bridge: a root port, a
// port of a switch, or an older bridge.
func (d *Device) IsBridge() bool {
	return d.base() == 0x0604 || d.Registers.Bridge != nil
}

// IsHostBridge reports whether the device is a host bridge.
func (d *Device) IsHostBridge() bool { return d.base() == 0x0600 }
