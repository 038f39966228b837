package pcie

// Registers are the registers of one function, decoded from the bytes of its
// configuration space or from a text that shows them. A pointer is nil where
// the register was not seen, whatever the reason; see Readable and
// Capabilities for telling "not there" from "could not look".
type Registers struct {
	// Readable is the number of bytes of configuration space that were read:
	// 64 without privilege, 256 or 4096 with it, 0 if no bytes were seen
	// (text).
	Readable int `json:"readable,omitempty"`
	// AllOnes is set when the function answered with all ones: it is gone or
	// asleep, and nothing else here means anything.
	AllOnes bool `json:"all_ones,omitempty"`
	// CapabilitiesDenied is set where the text says "<access denied>", or the
	// bytes end before the capabilities: what is nil below is unknown, not
	// absent.
	CapabilitiesDenied bool `json:"capabilities_denied,omitempty"`

	ID           *Identity    `json:"id,omitempty"`
	Control      *Control     `json:"control,omitempty"`
	HeaderType   *uint8       `json:"header_type,omitempty"` // without the multi-function bit: 0 endpoint, 1 bridge
	BARs         []BAR        `json:"bars,omitempty"`        // those that are not zero
	Bridge       *Bridge      `json:"bridge,omitempty"`
	Capabilities []Capability `json:"capabilities,omitempty"` // in the order of the chain; also those not decoded below

	Power   *Power   `json:"power,omitempty"`
	Express *Express `json:"express,omitempty"`
	Serial  string   `json:"serial,omitempty"` // Device Serial Number, "3c-fd-fe-ff-ff-aa-bb-cc"
	AER     *AER     `json:"aer,omitempty"`
	ACS     *ACS     `json:"acs,omitempty"`
	DPC     *DPC     `json:"dpc,omitempty"`
	ARI     *ARI     `json:"ari,omitempty"`
	ReBAR   []ReBAR  `json:"rebar,omitempty"`
	L1SS    *L1SS    `json:"l1ss,omitempty"`
	SRIOV   *SRIOV   `json:"sriov,omitempty"`
}

// Has reports whether the function lists the capability; false may also mean
// that the list was not readable (CapabilitiesDenied).
func (r *Registers) Has(id CapabilityID) bool {
	for i := range r.Capabilities {
		if r.Capabilities[i].ID == id {
			return true
		}
	}
	return false
}

// Identity is what the first 64 bytes say of who the function is.
type Identity struct {
	Vendor          uint16 `json:"vendor"`
	Device          uint16 `json:"device"`
	Class           uint32 `json:"class"` // base, sub, programming interface: 0x030200
	Revision        uint8  `json:"revision"`
	SubsystemVendor uint16 `json:"subsystem_vendor,omitempty"`
	SubsystemDevice uint16 `json:"subsystem_device,omitempty"`
}

// Control is the command register.
type Control struct {
	IO        bool `json:"io"`
	Memory    bool `json:"memory"`
	BusMaster bool `json:"bus_master"`
}

// CapabilityID names a capability: the identifier in the low 16 bits, and
// Extended for those of the extended list.
type CapabilityID uint32

// Extended marks capabilities of the extended list (offset 0x100 and above).
const Extended CapabilityID = 1 << 16

// Capabilities that are decoded, and a few that only matter by being there.
const (
	CapPower     CapabilityID = 0x01
	CapMSI       CapabilityID = 0x05
	CapSubsystem CapabilityID = 0x0d
	CapExpress   CapabilityID = 0x10
	CapMSIX      CapabilityID = 0x11
	CapAER                    = Extended | 0x01
	CapSerial                 = Extended | 0x03
	CapACS                    = Extended | 0x0d
	CapARI                    = Extended | 0x0e
	CapATS                    = Extended | 0x0f
	CapSRIOV                  = Extended | 0x10
	CapReBAR                  = Extended | 0x15
	CapSecondary              = Extended | 0x19
	CapDPC                    = Extended | 0x1d
	CapL1SS                   = Extended | 0x1e
	CapVFReBAR                = Extended | 0x24
)

// Capability is one entry of a capability list.
type Capability struct {
	ID      CapabilityID `json:"id"`
	Offset  uint16       `json:"offset"`
	Version uint8        `json:"version,omitempty"` // of an extended capability
}

// BAR is one base address register as it stands, without its size (registers
// do not tell it unless they are written to).
type BAR struct {
	Index        int    `json:"index"` // 0 to 5; 6 is the expansion ROM
	Address      uint64 `json:"address"`
	IO           bool   `json:"io,omitempty"`
	Wide         bool   `json:"wide,omitempty"` // 64-bit
	Prefetchable bool   `json:"prefetchable,omitempty"`
	Enabled      bool   `json:"enabled,omitempty"` // ROM only
}

// Bridge holds the bus numbers and windows of a type 1 header.
type Bridge struct {
	Primary     uint8   `json:"primary"`
	Secondary   uint8   `json:"secondary"`
	Subordinate uint8   `json:"subordinate"`
	IO          *Window `json:"io,omitempty"`
	Memory      *Window `json:"memory,omitempty"`
	Prefetch    *Window `json:"prefetch,omitempty"`
}

// Window is an address range that a bridge passes down. Closed windows (base
// above limit) keep what the registers hold.
type Window struct {
	Base  uint64 `json:"base"`
	Limit uint64 `json:"limit"`
}

// Open reports whether the window passes anything.
func (w *Window) Open() bool { return w != nil && w.Base <= w.Limit }

// Size returns the bytes of an open window, 0 for a closed one.
func (w *Window) Size() uint64 {
	if !w.Open() {
		return 0
	}
	return w.Limit - w.Base + 1
}

// Power is the Power Management capability.
type Power struct {
	State int  `json:"state"` // 0 for D0 to 3 for D3hot
	PME   bool `json:"pme,omitempty"`
}

// PortType is the device/port type of the Express capability.
type PortType uint8

// The port types, one more than in the register, so that 0 is "not known".
const (
	PortUnknown PortType = iota
	Endpoint
	LegacyEndpoint
	_
	_
	RootPort
	UpstreamPort
	DownstreamPort
	ExpressToPCI
	PCIToExpress
	IntegratedEndpoint
	EventCollector
)

var portNames = [...]string{"unknown", "endpoint", "legacy endpoint", "type 2", "type 3", "root port",
	"upstream port", "downstream port", "express to pci bridge", "pci to express bridge",
	"integrated endpoint", "event collector"}

// String returns a name in lower case, "root port".
func (p PortType) String() string {
	if int(p) < len(portNames) {
		return portNames[p]
	}
	return portNames[0]
}

// Downward reports whether a link hangs below a port of this type.
func (p PortType) Downward() bool {
	return p == RootPort || p == DownstreamPort || p == PCIToExpress
}

// Upward reports whether the link of a function of this type leads towards
// the root.
func (p PortType) Upward() bool {
	return p == Endpoint || p == LegacyEndpoint || p == UpstreamPort || p == ExpressToPCI
}

// MarshalText implements encoding.TextMarshaler.
func (p PortType) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; names it does not know
// give PortUnknown.
func (p *PortType) UnmarshalText(text []byte) error {
	*p = PortUnknown
	for i, n := range portNames {
		if n == string(text) {
			*p = PortType(i)
		}
	}
	return nil
}

// Express is the PCI Express capability.
type Express struct {
	Version uint8    `json:"version,omitempty"`
	Port    PortType `json:"port"`
	// SlotImplemented is the "Slot+" of a root or downstream port: a
	// connector, not a soldered device, is below it.
	SlotImplemented bool `json:"slot_implemented,omitempty"`

	DevCap  *DevCap  `json:"devcap,omitempty"`
	DevCtl  *DevCtl  `json:"devctl,omitempty"`
	DevSta  *DevSta  `json:"devsta,omitempty"`
	LnkCap  *LnkCap  `json:"lnkcap,omitempty"`
	LnkCtl  *LnkCtl  `json:"lnkctl,omitempty"`
	LnkSta  *LnkSta  `json:"lnksta,omitempty"`
	Slot    *Slot    `json:"slot,omitempty"`
	DevCap2 *DevCap2 `json:"devcap2,omitempty"`
	DevCtl2 *DevCtl2 `json:"devctl2,omitempty"`
	LnkCap2 *LnkCap2 `json:"lnkcap2,omitempty"`
	LnkCtl2 *LnkCtl2 `json:"lnkctl2,omitempty"`
	LnkSta2 *LnkSta2 `json:"lnksta2,omitempty"`
}

// DevCap is Device Capabilities.
type DevCap struct {
	MaxPayload    int     `json:"max_payload"` // bytes it can take
	ExtendedTag   bool    `json:"extended_tag,omitempty"`
	RoleBased     bool    `json:"role_based,omitempty"` // role-based error reporting
	FLR           bool    `json:"flr,omitempty"`
	SlotPowerWatt float64 `json:"slot_power_watt,omitempty"` // that the slot told the card
}

// DevCtl is Device Control.
type DevCtl struct {
	MaxPayload        int  `json:"max_payload"`  // bytes, as set
	MaxReadRequest    int  `json:"max_read_req"` // bytes, as set
	ReportCorrectable bool `json:"report_correctable,omitempty"`
	ReportNonFatal    bool `json:"report_nonfatal,omitempty"`
	ReportFatal       bool `json:"report_fatal,omitempty"`
	ReportUnsupported bool `json:"report_unsupported,omitempty"`
	RelaxedOrdering   bool `json:"relaxed_ordering,omitempty"`
	ExtendedTag       bool `json:"extended_tag,omitempty"`
	NoSnoop           bool `json:"no_snoop,omitempty"`
}

// DevSta is Device Status: latched error bits.
type DevSta struct {
	Correctable bool `json:"correctable,omitempty"`
	NonFatal    bool `json:"nonfatal,omitempty"`
	Fatal       bool `json:"fatal,omitempty"`
	Unsupported bool `json:"unsupported,omitempty"`
	Pending     bool `json:"pending,omitempty"` // transactions pending
}

// ASPM is a set of link power states.
type ASPM uint8

// The two states of ASPM.
const (
	L0s ASPM = 1 << iota
	L1
)

// String returns "off", "L0s", "L1" or "L0s L1".
func (a ASPM) String() string { return [...]string{"off", "L0s", "L1", "L0s L1"}[a&3] }

// LnkCap is Link Capabilities: what this end can do.
type LnkCap struct {
	Link
	ASPM          ASPM  `json:"aspm"`
	Port          uint8 `json:"port"`
	SurpriseDown  bool  `json:"surprise_down,omitempty"`
	ActiveReports bool  `json:"active_reports,omitempty"` // LLActRep: DLActive means something
	BandwidthNote bool  `json:"bandwidth_note,omitempty"`
	ClockPM       bool  `json:"clock_pm,omitempty"`
}

// LnkCtl is Link Control.
type LnkCtl struct {
	ASPM                ASPM `json:"aspm"`
	Disabled            bool `json:"disabled,omitempty"`
	CommonClock         bool `json:"common_clock,omitempty"`
	ClockPM             bool `json:"clock_pm,omitempty"`
	AutoWidthDisabled   bool `json:"auto_width_disabled,omitempty"`
	ReadCompletionBytes int  `json:"rcb,omitempty"`
}

// LnkSta is Link Status: what was negotiated.
type LnkSta struct {
	Link
	Training            bool `json:"training,omitempty"`
	SlotClock           bool `json:"slot_clock,omitempty"`
	Active              bool `json:"active,omitempty"` // DLActive; see LnkCap.ActiveReports
	BandwidthManagement bool `json:"bandwidth_management,omitempty"`
	AutonomousBandwidth bool `json:"autonomous_bandwidth,omitempty"`
}

// Slot is Slot Capabilities, Control and Status of a port.
type Slot struct {
	Number       int     `json:"number"` // physical slot number
	HotPlug      bool    `json:"hot_plug,omitempty"`
	Surprise     bool    `json:"surprise,omitempty"`
	PowerControl bool    `json:"power_control,omitempty"`
	PowerWatt    float64 `json:"power_watt"` // limit for the card
	// Status is nil where only the capabilities were seen.
	Status *SlotStatus `json:"status,omitempty"`
}

// SlotStatus is Slot Status, with the power switch of Slot Control.
type SlotStatus struct {
	Present          bool `json:"present"`
	PowerFault       bool `json:"power_fault,omitempty"`
	PowerOff         bool `json:"power_off,omitempty"` // only with PowerControl
	PresenceChanged  bool `json:"presence_changed,omitempty"`
	LinkStateChanged bool `json:"link_state_changed,omitempty"`
}

// DevCap2 is Device Capabilities 2.
type DevCap2 struct {
	CompletionTimeoutDisable bool `json:"completion_timeout_disable,omitempty"`
	ARIForwarding            bool `json:"ari_forwarding,omitempty"`
	AtomicRouting            bool `json:"atomic_routing,omitempty"`
	Atomic32                 bool `json:"atomic_32,omitempty"`
	Atomic64                 bool `json:"atomic_64,omitempty"`
	Atomic128                bool `json:"atomic_128,omitempty"`
	TenBitTagCompleter       bool `json:"ten_bit_tag_completer,omitempty"`
	TenBitTagRequester       bool `json:"ten_bit_tag_requester,omitempty"`
	LTR                      bool `json:"ltr,omitempty"`
}

// DevCtl2 is Device Control 2.
type DevCtl2 struct {
	CompletionTimeoutDisabled bool `json:"completion_timeout_disabled,omitempty"`
	ARIForwarding             bool `json:"ari_forwarding,omitempty"`
	AtomicRequester           bool `json:"atomic_requester,omitempty"`
	AtomicEgressBlocked       bool `json:"atomic_egress_blocked,omitempty"`
	TenBitTag                 bool `json:"ten_bit_tag,omitempty"`
	LTR                       bool `json:"ltr,omitempty"`
}

// LnkCap2 is Link Capabilities 2. Max is the highest supported speed.
type LnkCap2 struct {
	Max      Speed `json:"max"`
	Retimers int   `json:"retimers,omitempty"` // presence detect supported
}

// LnkCtl2 is Link Control 2.
type LnkCtl2 struct {
	Target        Speed `json:"target"` // the link will not go faster; 0 is not known
	SpeedDisabled bool  `json:"speed_disabled,omitempty"`
}

// LnkSta2 is Link Status 2.
type LnkSta2 struct {
	Equalized       bool `json:"equalized,omitempty"`
	EqualizeRequest bool `json:"equalize_request,omitempty"`
	Retimers        int  `json:"retimers,omitempty"`
}

// AER is Advanced Error Reporting. It is nil where only the name of the
// capability was seen.
type AER struct {
	UncorrectableStatus   UncorrectableErrors `json:"ue_status"`
	UncorrectableMask     UncorrectableErrors `json:"ue_mask"`
	UncorrectableSeverity UncorrectableErrors `json:"ue_severity"` // set: fatal
	CorrectableStatus     CorrectableErrors   `json:"ce_status"`
	CorrectableMask       CorrectableErrors   `json:"ce_mask"`
	FirstError            uint8               `json:"first_error"`
	// Header is the header of the packet at fault, as far as it was seen:
	// nil, or 4 words or more.
	Header []uint32 `json:"header,omitempty"`
	// Root holds what only root ports and event collectors have.
	Root *AERRoot `json:"root,omitempty"`
}

// AERRoot is the root part of AER.
type AERRoot struct {
	ReportCorrectable     bool   `json:"report_correctable,omitempty"`
	ReportNonFatal        bool   `json:"report_nonfatal,omitempty"`
	ReportFatal           bool   `json:"report_fatal,omitempty"`
	CorrectableReceived   bool   `json:"correctable_received,omitempty"`
	UncorrectableReceived bool   `json:"uncorrectable_received,omitempty"`
	CorrectableSource     uint16 `json:"correctable_source,omitempty"`   // requester ID
	UncorrectableSource   uint16 `json:"uncorrectable_source,omitempty"` // requester ID
}

// ACSBits is a set of bits of ACS Capability or Control.
type ACSBits uint16

// The bits of Access Control Services.
const (
	ACSSourceValidation ACSBits = 1 << iota
	ACSTranslationBlocking
	ACSRequestRedirect
	ACSCompletionRedirect
	ACSUpstreamForwarding
	ACSEgressControl
	ACSDirectTranslated
)

// ACSRedirect are the bits that send peer traffic up to the root complex.
const ACSRedirect = ACSRequestRedirect | ACSCompletionRedirect

var acsNames = [...]string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"}

// Names returns lspci's names of the bits in the set.
func (a ACSBits) Names() []string {
	var out []string
	for i, n := range acsNames {
		if a>>i&1 != 0 {
			out = append(out, n)
		}
	}
	return out
}

// ACS is Access Control Services.
type ACS struct {
	Capable ACSBits `json:"capable"`
	Enabled ACSBits `json:"enabled"`
}

// DPC is Downstream Port Containment.
type DPC struct {
	RootPortExtensions bool   `json:"root_port_extensions,omitempty"`
	TriggerFatal       bool   `json:"trigger_fatal,omitempty"`    // contains on ERR_FATAL
	TriggerNonFatal    bool   `json:"trigger_nonfatal,omitempty"` // and on ERR_NONFATAL
	Triggered          bool   `json:"triggered,omitempty"`
	Reason             uint8  `json:"reason,omitempty"`    // 0 unmasked uncorrectable, 1 ERR_NONFATAL, 2 ERR_FATAL, 3 see Extended
	Extended           uint8  `json:"extended,omitempty"`  // 0 RP PIO, 1 software
	Source             uint16 `json:"source,omitempty"`    // requester ID
	Interrupt          bool   `json:"interrupt,omitempty"` // enabled: somebody is listening
}

// ARI is Alternative Routing-ID Interpretation.
type ARI struct {
	Next uint8 `json:"next"` // next function
}

// ReBAR is one resizable BAR.
type ReBAR struct {
	Index     int    `json:"index"`
	Size      uint64 `json:"size"`              // bytes, as set
	Supported uint64 `json:"supported"`         // bit n: 2^n MiB can be set (bit 0: 1 MiB)
	Virtual   bool   `json:"virtual,omitempty"` // of the virtual functions
}

// Largest returns the largest size in bytes that can be set, 0 if none is
// known.
func (r ReBAR) Largest() uint64 {
	for n := 43; n >= 0; n-- {
		if r.Supported>>n&1 != 0 {
			return 1 << (20 + n)
		}
	}
	return 0
}

// L1SS is L1 PM Substates.
type L1SS struct {
	Capable L1Substates `json:"capable"`
	Enabled L1Substates `json:"enabled"`
}

// L1Substates is a set of substates of L1, in the order of the register.
type L1Substates uint8

// The substates: by the PCI power states, and by ASPM.
const (
	PCIPML12 L1Substates = 1 << iota
	PCIPML11
	ASPML12
	ASPML11
)

// SRIOV is Single Root I/O Virtualization of a physical function.
type SRIOV struct {
	Enabled  bool   `json:"enabled,omitempty"`
	Total    uint16 `json:"total"`
	VFs      uint16 `json:"vfs"` // number enabled
	Offset   uint16 `json:"offset"`
	Stride   uint16 `json:"stride"`
	VFDevice uint16 `json:"vf_device"`
	BARs     []BAR  `json:"bars,omitempty"` // of the virtual functions
}

// VF returns the address of virtual function n, counted from 0, of the
// physical function pf.
func (s *SRIOV) VF(pf BDF, n int) BDF {
	id := uint16(pf.Bus)<<8 | uint16(pf.Device)<<3 | uint16(pf.Function)
	return BDFFromID(pf.Domain, id+s.Offset+uint16(n)*s.Stride)
}
