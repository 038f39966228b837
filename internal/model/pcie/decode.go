package pcie

import (
	"encoding/binary"
	"fmt"
)

// Sizes of configuration space.
const (
	HeaderSize         = 64   // what everybody may read
	ConfigSize         = 256  // of conventional PCI
	ExtendedConfigSize = 4096 // of PCI Express
)

// Decode reads the registers of one function from the bytes of its
// configuration space. Any length is good: what lies beyond the end is left
// nil. A capability list that leads out of the space or in a circle ends
// where it does so.
func Decode(config []byte) Registers {
	if len(config) > ExtendedConfigSize {
		config = config[:ExtendedConfigSize]
	}
	r := Registers{Readable: len(config)}
	if len(config) == 0 {
		return r
	}
	if allOnes(config[:min(len(config), HeaderSize)]) {
		r.AllOnes = true
		return r
	}
	c := space(config)
	if !c.holds(0, HeaderSize) {
		return r
	}
	r.decodeHeader(c)
	r.decodeCapabilities(c)
	r.decodeExtended(c)
	return r
}

func allOnes(b []byte) bool {
	for _, v := range b {
		if v != 0xff {
			return false
		}
	}
	return true
}

// space is configuration space; its readers return 0 beyond the end, so a
// caller that cares asks holds first.
type space []byte

func (c space) holds(at, n int) bool { return at >= 0 && at+n <= len(c) }

func (c space) u8(at int) uint8 {
	if !c.holds(at, 1) {
		return 0
	}
	return c[at]
}

func (c space) u16(at int) uint16 {
	if !c.holds(at, 2) {
		return 0
	}
	return binary.LittleEndian.Uint16(c[at:])
}

func (c space) u32(at int) uint32 {
	if !c.holds(at, 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(c[at:])
}

func (r *Registers) decodeHeader(c space) {
	r.ID = &Identity{
		Vendor:   c.u16(0x00),
		Device:   c.u16(0x02),
		Revision: c.u8(0x08),
		Class:    c.u32(0x08) >> 8,
	}
	command := c.u16(0x04)
	r.Control = &Control{IO: command&1 != 0, Memory: command&2 != 0, BusMaster: command&4 != 0}
	header := c.u8(0x0e) & 0x7f
	r.HeaderType = &header
	switch header {
	case 0:
		r.ID.SubsystemVendor, r.ID.SubsystemDevice = c.u16(0x2c), c.u16(0x2e)
		r.BARs = decodeBARs(c, 0x10, 6)
		r.decodeROM(c.u32(0x30))
	case 1:
		r.BARs = decodeBARs(c, 0x10, 2)
		r.decodeROM(c.u32(0x38))
		r.Bridge = decodeBridge(c)
	}
}

func (r *Registers) decodeROM(v uint32) {
	if a := v &^ 0x7ff; a != 0 {
		r.BARs = append(r.BARs, BAR{Index: 6, Address: uint64(a), Enabled: v&1 != 0})
	}
}

// decodeBARs leaves out registers that read 0: absent, or never
// given an address.
func decodeBARs(c space, at, n int) []BAR {
	var out []BAR
	for i := 0; i < n; i++ {
		v := c.u32(at + 4*i)
		if v == 0 {
			continue
		}
		b := BAR{Index: i, IO: v&1 != 0}
		switch {
		case b.IO:
			b.Address = uint64(v &^ 3)
		default:
			b.Address = uint64(v &^ 15)
			b.Prefetchable = v&8 != 0
			b.Wide = v&6 == 4
			if b.Wide && i+1 < n {
				i++
				b.Address |= uint64(c.u32(at+4*i)) << 32
			}
		}
		out = append(out, b)
	}
	return out
}

func decodeBridge(c space) *Bridge {
	b := &Bridge{Primary: c.u8(0x18), Secondary: c.u8(0x19), Subordinate: c.u8(0x1a)}

	base, limit := c.u8(0x1c), c.u8(0x1d)
	io := Window{Base: uint64(base&0xf0) << 8, Limit: uint64(limit&0xf0)<<8 | 0xfff}
	if base&15 == 1 {
		io.Base |= uint64(c.u16(0x30)) << 16
		io.Limit |= uint64(c.u16(0x32)) << 16
	}
	// All zero is what a bridge without an I/O window reads.
	if base|limit != 0 {
		b.IO = &io
	}

	if v := c.u32(0x20); v != 0 {
		b.Memory = &Window{Base: uint64(v&0xfff0) << 16, Limit: uint64(v)&0xfff0_0000 | 0xfffff}
	}
	if v := c.u32(0x24); v != 0 {
		w := Window{Base: uint64(v&0xfff0) << 16, Limit: uint64(v)&0xfff0_0000 | 0xfffff}
		if v&15 == 1 {
			w.Base |= uint64(c.u32(0x28)) << 32
			w.Limit |= uint64(c.u32(0x2c)) << 32
		}
		b.Prefetch = &w
	}
	return b
}

func (r *Registers) decodeCapabilities(c space) {
	if c.u16(0x06)&0x10 == 0 { // no list
		return
	}
	if len(c) <= HeaderSize {
		r.CapabilitiesDenied = true
		return
	}
	// 48 entries of 4 bytes fill the space: more is a circle.
	at := int(c.u8(0x34) &^ 3)
	for n := 0; n < 48 && at >= HeaderSize && c.holds(at, 4); n++ {
		id := CapabilityID(c.u8(at))
		if id == 0xff {
			return
		}
		r.Capabilities = append(r.Capabilities, Capability{ID: id, Offset: uint16(at)})
		switch id {
		case CapPower:
			v := c.u16(at + 4)
			r.Power = &Power{State: int(v & 3), PME: v&0x8000 != 0}
		case CapSubsystem:
			r.ID.SubsystemVendor, r.ID.SubsystemDevice = c.u16(at+4), c.u16(at+6)
		case CapExpress:
			r.Express = decodeExpress(c, at)
		}
		at = int(c.u8(at+1) &^ 3)
	}
}

// slotPower turns a slot power value and scale into watts (Base Specification,
// Slot Capabilities register).
func slotPower(value, scale uint32) float64 {
	if scale == 0 && value >= 0xf0 {
		return 250 + 25*float64(value-0xf0)
	}
	return float64(value) * [...]float64{1, 0.1, 0.01, 0.001}[scale&3]
}

func decodeExpress(c space, at int) *Express {
	flags := c.u16(at + 2)
	x := &Express{
		Version:         uint8(flags & 15),
		Port:            PortUnknown,
		SlotImplemented: flags&0x100 != 0,
	}
	if p := PortType(flags>>4&15) + 1; p <= EventCollector {
		x.Port = p
	}
	if c.holds(at+4, 8) {
		x.decodeDevice(c.u32(at+4), c.u16(at+8), c.u16(at+10))
	}
	if x.Port != IntegratedEndpoint && x.Port != EventCollector && c.holds(at+0xc, 8) {
		x.decodeLink(c.u32(at+0xc), c.u16(at+0x10), c.u16(at+0x12))
	}
	if x.SlotImplemented && x.Port.Downward() && c.holds(at+0x14, 8) {
		x.decodeSlot(c.u32(at+0x14), c.u16(at+0x18), c.u16(at+0x1a))
	}
	if x.Version < 2 {
		return x
	}
	if c.holds(at+0x24, 8) {
		x.decodeDevice2(c.u32(at+0x24), c.u16(at+0x28))
	}
	if x.LnkCap != nil && c.holds(at+0x2c, 8) {
		x.decodeLink2(c.u32(at+0x2c), c.u16(at+0x30), c.u16(at+0x32))
	}
	return x
}

func (x *Express) decodeDevice(capability uint32, control, status uint16) {
	x.DevCap = &DevCap{
		MaxPayload:    128 << (capability & 7),
		ExtendedTag:   capability&0x20 != 0,
		RoleBased:     capability&0x8000 != 0,
		FLR:           capability&0x1000_0000 != 0,
		SlotPowerWatt: slotPower(capability>>18&0xff, capability>>26&3),
	}
	x.DevCtl = &DevCtl{
		ReportCorrectable: control&1 != 0,
		ReportNonFatal:    control&2 != 0,
		ReportFatal:       control&4 != 0,
		ReportUnsupported: control&8 != 0,
		RelaxedOrdering:   control&0x10 != 0,
		MaxPayload:        128 << (control >> 5 & 7),
		ExtendedTag:       control&0x100 != 0,
		NoSnoop:           control&0x800 != 0,
		MaxReadRequest:    128 << (control >> 12 & 7),
	}
	x.DevSta = &DevSta{
		Correctable: status&1 != 0,
		NonFatal:    status&2 != 0,
		Fatal:       status&4 != 0,
		Unsupported: status&8 != 0,
		Pending:     status&0x20 != 0,
	}
}

// speed reads a speed field; codes that no generation has are not known.
func speed(code uint32) Speed {
	if s := Speed(code & 15); s.Known() {
		return s
	}
	return 0
}

func (x *Express) decodeLink(capability uint32, control, status uint16) {
	x.LnkCap = &LnkCap{
		Link:          Link{speed(capability), uint8(capability >> 4 & 63)},
		ASPM:          ASPM(capability >> 10 & 3),
		ClockPM:       capability&(1<<18) != 0,
		SurpriseDown:  capability&(1<<19) != 0,
		ActiveReports: capability&(1<<20) != 0,
		BandwidthNote: capability&(1<<21) != 0,
		Port:          uint8(capability >> 24),
	}
	x.LnkCtl = &LnkCtl{
		ASPM:                ASPM(control & 3),
		ReadCompletionBytes: 64 << (control >> 3 & 1),
		Disabled:            control&0x10 != 0,
		CommonClock:         control&0x40 != 0,
		ClockPM:             control&0x100 != 0,
		AutoWidthDisabled:   control&0x200 != 0,
	}
	x.LnkSta = &LnkSta{
		Link:                Link{speed(uint32(status)), uint8(status >> 4 & 63)},
		Training:            status&0x800 != 0,
		SlotClock:           status&0x1000 != 0,
		Active:              status&0x2000 != 0,
		BandwidthManagement: status&0x4000 != 0,
		AutonomousBandwidth: status&0x8000 != 0,
	}
}

func (x *Express) decodeSlot(capability uint32, control, status uint16) {
	x.Slot = &Slot{
		Number:       int(capability >> 19),
		PowerControl: capability&2 != 0,
		Surprise:     capability&0x20 != 0,
		HotPlug:      capability&0x40 != 0,
		PowerWatt:    slotPower(capability>>7&0xff, capability>>15&3),
		Status: &SlotStatus{
			PowerFault:       status&2 != 0,
			PresenceChanged:  status&8 != 0,
			Present:          status&0x40 != 0,
			LinkStateChanged: status&0x100 != 0,
		},
	}
	x.Slot.Status.PowerOff = x.Slot.PowerControl && control&0x400 != 0
}

func (x *Express) decodeDevice2(capability uint32, control uint16) {
	x.DevCap2 = &DevCap2{
		CompletionTimeoutDisable: capability&0x10 != 0,
		ARIForwarding:            capability&0x20 != 0,
		AtomicRouting:            capability&0x40 != 0,
		Atomic32:                 capability&0x80 != 0,
		Atomic64:                 capability&0x100 != 0,
		Atomic128:                capability&0x200 != 0,
		LTR:                      capability&0x800 != 0,
		TenBitTagCompleter:       capability&0x1_0000 != 0,
		TenBitTagRequester:       capability&0x2_0000 != 0,
	}
	x.DevCtl2 = &DevCtl2{
		CompletionTimeoutDisabled: control&0x10 != 0,
		ARIForwarding:             control&0x20 != 0,
		AtomicRequester:           control&0x40 != 0,
		AtomicEgressBlocked:       control&0x80 != 0,
		LTR:                       control&0x400 != 0,
		TenBitTag:                 control&0x1000 != 0,
	}
}

func (x *Express) decodeLink2(capability uint32, control, status uint16) {
	x.LnkCap2 = &LnkCap2{Retimers: int(capability>>23&1 + capability>>24&1)}
	for s := Gen6; s >= Gen1; s-- {
		if capability>>s&1 != 0 {
			x.LnkCap2.Max = s
			break
		}
	}
	x.LnkCtl2 = &LnkCtl2{Target: speed(uint32(control)), SpeedDisabled: control&0x20 != 0}
	x.LnkSta2 = &LnkSta2{
		Equalized:       status&2 != 0,
		EqualizeRequest: status&0x20 != 0,
		Retimers:        int(status>>6&1 + status>>7&1),
	}
}

func (r *Registers) decodeExtended(c space) {
	if r.Express == nil || len(c) <= ConfigSize {
		return
	}
	seen := map[int]bool{}
	for at := ConfigSize; at >= ConfigSize && c.holds(at, 4) && !seen[at]; {
		seen[at] = true
		v := c.u32(at)
		if v == 0 || v == 0xffff_ffff {
			return
		}
		id := Extended | CapabilityID(v&0xffff)
		if id != Extended { // a null entry only carries the list on
			r.Capabilities = append(r.Capabilities, Capability{ID: id, Offset: uint16(at), Version: uint8(v >> 16 & 15)})
			r.decodeExtendedEntry(c, at, id)
		}
		at = int(v >> 20 &^ 3)
	}
}

func (r *Registers) decodeExtendedEntry(c space, at int, id CapabilityID) {
	switch id {
	case CapAER:
		if c.holds(at, 0x2c) {
			r.AER = decodeAER(c, at, r.Express.Port == RootPort || r.Express.Port == EventCollector)
		}
	case CapSerial:
		if c.holds(at, 12) {
			lo, hi := c.u32(at+4), c.u32(at+8)
			r.Serial = fmt.Sprintf("%02x-%02x-%02x-%02x-%02x-%02x-%02x-%02x",
				hi>>24, hi>>16&0xff, hi>>8&0xff, hi&0xff, lo>>24, lo>>16&0xff, lo>>8&0xff, lo&0xff)
		}
	case CapACS:
		if c.holds(at, 8) {
			const all = ACSDirectTranslated<<1 - 1
			r.ACS = &ACS{Capable: ACSBits(c.u16(at+4)) & all, Enabled: ACSBits(c.u16(at+6)) & all}
		}
	case CapARI:
		if c.holds(at, 8) {
			r.ARI = &ARI{Next: c.u8(at + 5)}
		}
	case CapDPC:
		if c.holds(at, 12) {
			r.DPC = decodeDPC(c, at)
		}
	case CapL1SS:
		if c.holds(at, 12) {
			r.L1SS = &L1SS{Capable: L1Substates(c.u8(at+4) & 15), Enabled: L1Substates(c.u8(at+8) & 15)}
		}
	case CapReBAR, CapVFReBAR:
		r.ReBAR = append(r.ReBAR, decodeReBAR(c, at, id == CapVFReBAR)...)
	case CapSRIOV:
		if c.holds(at, 0x3c) {
			r.SRIOV = &SRIOV{
				Enabled:  c.u16(at+8)&1 != 0,
				Total:    c.u16(at + 0xe),
				VFs:      c.u16(at + 0x10),
				Offset:   c.u16(at + 0x14),
				Stride:   c.u16(at + 0x16),
				VFDevice: c.u16(at + 0x1a),
				BARs:     decodeBARs(c, at+0x24, 6),
			}
		}
	}
}

func decodeAER(c space, at int, root bool) *AER {
	a := &AER{
		UncorrectableStatus:   UncorrectableErrors(c.u32(at + 4)),
		UncorrectableMask:     UncorrectableErrors(c.u32(at + 8)),
		UncorrectableSeverity: UncorrectableErrors(c.u32(at + 0xc)),
		CorrectableStatus:     CorrectableErrors(c.u32(at + 0x10)),
		CorrectableMask:       CorrectableErrors(c.u32(at + 0x14)),
		FirstError:            uint8(c.u32(at+0x18) & 31),
		Header:                []uint32{c.u32(at + 0x1c), c.u32(at + 0x20), c.u32(at + 0x24), c.u32(at + 0x28)},
	}
	if root && c.holds(at, 0x38) {
		command, status, source := c.u32(at+0x2c), c.u32(at+0x30), c.u32(at+0x34)
		a.Root = &AERRoot{
			ReportCorrectable:     command&1 != 0,
			ReportNonFatal:        command&2 != 0,
			ReportFatal:           command&4 != 0,
			CorrectableReceived:   status&1 != 0,
			UncorrectableReceived: status&4 != 0,
			CorrectableSource:     uint16(source),
			UncorrectableSource:   uint16(source >> 16),
		}
	}
	return a
}

func decodeDPC(c space, at int) *DPC {
	capability, control, status := c.u16(at+4), c.u16(at+6), c.u16(at+8)
	return &DPC{
		RootPortExtensions: capability&0x20 != 0,
		TriggerFatal:       control&3 == 1 || control&3 == 2,
		TriggerNonFatal:    control&3 == 2,
		Interrupt:          control&8 != 0,
		Triggered:          status&1 != 0,
		Reason:             uint8(status >> 1 & 3),
		Extended:           uint8(status >> 5 & 3),
		Source:             c.u16(at + 10),
	}
}

func decodeReBAR(c space, at int, virtual bool) []ReBAR {
	var out []ReBAR
	n := int(c.u32(at+8) >> 5 & 7)
	for i := 0; i < n && i < 6 && c.holds(at+4+8*i, 8); i++ {
		capability, control := c.u32(at+4+8*i), c.u32(at+8+8*i)
		out = append(out, ReBAR{
			Index:     int(control & 7),
			Size:      1 << (20 + min(control>>8&63, 43)),
			Supported: uint64(capability>>4) | uint64(control>>16)<<28,
			Virtual:   virtual,
		})
	}
	return out
}
