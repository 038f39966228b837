package pcie

import (
	"encoding/binary"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// config builds a configuration space.
type config []byte

func (c config) put16(at int, v uint16) { binary.LittleEndian.PutUint16(c[at:], v) }
func (c config) put32(at int, v uint32) { binary.LittleEndian.PutUint32(c[at:], v) }

// extended writes the header of an extended capability.
func (c config) extended(at int, id CapabilityID, version, next int) {
	c.put32(at, uint32(id&0xffff)|uint32(version)<<16|uint32(next)<<20)
}

// rootPort is a Gen5 x16 root port with a hot-plug slot and every extended
// capability that a port has.
func rootPort() config {
	c := make(config, ExtendedConfigSize)
	c.put16(0x00, 0x8086)
	c.put16(0x02, 0x352a)
	c.put16(0x04, 0x0006)
	c.put16(0x06, 0x0010)
	c.put32(0x08, 0x060400<<8|0x20)
	c[0x0e] = 1
	c[0x18], c[0x19], c[0x1a] = 0x14, 0x15, 0x1c
	c[0x1c], c[0x1d] = 0xf1, 0x01 // closed I/O window
	c.put32(0x20, 0x9fff_9000)    // 90000000-9fffffff
	c.put32(0x24, 0xfff1_0001)    // prefetch, 64-bit
	c.put32(0x28, 0x38)
	c.put32(0x2c, 0x39)
	c[0x34] = 0x40
	// Express v2 root port, slot
	c[0x40], c[0x41] = 0x10, 0x80
	c.put16(0x42, 0x0142)
	c.put32(0x44, 0x8002)      // MaxPayload 512, role-based
	c.put16(0x48, 0x2017|1<<5) // all but unsupported, relaxed ordering, 256, read 512
	c.put16(0x4a, 0x0009)
	c.put32(0x4c, 5|16<<4|2<<10|1<<19|1<<20|1<<21|7<<24)
	c.put16(0x50, 2|1<<6)
	c.put16(0x52, 3|8<<4|1<<12|1<<13)
	c.put32(0x54, 2|1<<5|1<<6|75<<7|12<<19)
	c.put16(0x58, 1<<10)
	c.put16(0x5a, 0x0148)
	c.put32(0x64, 1<<5|1<<6)
	c.put16(0x68, 1<<5)
	c.put32(0x6c, 0x3e|1<<23)
	c.put16(0x70, 1)
	c.put16(0x72, 2|1<<6)
	// Power management in D3
	c[0x80], c[0x81] = 0x01, 0
	c.put16(0x84, 0x8003)
	c.extended(0x100, CapAER, 2, 0x150)
	c.put32(0x104, 1<<14)
	c.put32(0x108, 1<<20)
	c.put32(0x10c, 0x462030)
	c.put32(0x110, 1|1<<12)
	c.put32(0x114, 1<<13)
	c.put32(0x118, 0x0e)
	c.put32(0x11c, 0x40000001)
	c.put32(0x12c, 7)
	c.put32(0x130, 1)
	c.put32(0x134, 0x0000_1500)
	c.extended(0x150, CapACS, 1, 0x160)
	c.put16(0x154, 0x005f)
	c.put16(0x156, 0x001d)
	c.extended(0x160, CapDPC, 1, 0x180)
	c.put16(0x164, 0x00e0)
	c.put16(0x166, 0x0009)
	c.put16(0x168, 0x0005)
	c.put16(0x16a, 0x1500)
	c.extended(0x180, CapL1SS, 1, 0)
	c.put32(0x184, 0x0a)
	c.put32(0x188, 0x08)
	return c
}

func TestDecodeRootPort(t *testing.T) {
	header := uint8(1)
	want := Registers{
		Readable:   ExtendedConfigSize,
		ID:         &Identity{Vendor: 0x8086, Device: 0x352a, Class: 0x060400, Revision: 0x20},
		Control:    &Control{Memory: true, BusMaster: true},
		HeaderType: &header,
		Bridge: &Bridge{
			Primary: 0x14, Secondary: 0x15, Subordinate: 0x1c,
			IO:       &Window{0xf000, 0x0fff},
			Memory:   &Window{0x9000_0000, 0x9fff_ffff},
			Prefetch: &Window{0x38_0000_0000, 0x39_ffff_ffff},
		},
		Capabilities: []Capability{{CapExpress, 0x40, 0}, {CapPower, 0x80, 0}, {CapAER, 0x100, 2}, {CapACS, 0x150, 1}, {CapDPC, 0x160, 1}, {CapL1SS, 0x180, 1}},
		Power:        &Power{State: 3, PME: true},
		Express: &Express{
			Version: 2, Port: RootPort, SlotImplemented: true,
			DevCap:  &DevCap{MaxPayload: 512, RoleBased: true},
			DevCtl:  &DevCtl{MaxPayload: 256, MaxReadRequest: 512, ReportCorrectable: true, ReportNonFatal: true, ReportFatal: true, RelaxedOrdering: true},
			DevSta:  &DevSta{Correctable: true, Unsupported: true},
			LnkCap:  &LnkCap{Link: Link{Gen5, 16}, ASPM: L1, Port: 7, SurpriseDown: true, ActiveReports: true, BandwidthNote: true},
			LnkCtl:  &LnkCtl{ASPM: L1, CommonClock: true, ReadCompletionBytes: 64},
			LnkSta:  &LnkSta{Link: Link{Gen3, 8}, SlotClock: true, Active: true},
			Slot:    &Slot{Number: 12, HotPlug: true, Surprise: true, PowerControl: true, PowerWatt: 75, Status: &SlotStatus{Present: true, PowerOff: true, PresenceChanged: true, LinkStateChanged: true}},
			DevCap2: &DevCap2{ARIForwarding: true, AtomicRouting: true},
			DevCtl2: &DevCtl2{ARIForwarding: true},
			LnkCap2: &LnkCap2{Max: Gen5, Retimers: 1},
			LnkCtl2: &LnkCtl2{Target: Gen1},
			LnkSta2: &LnkSta2{Equalized: true, Retimers: 1},
		},
		AER: &AER{
			UncorrectableStatus: CompletionTimeout, UncorrectableMask: UnsupportedRequest, UncorrectableSeverity: 0x462030,
			CorrectableStatus: ReceiverError | ReplayTimeout, CorrectableMask: AdvisoryNonFatal, FirstError: 14,
			Header: []uint32{0x40000001, 0, 0, 0},
			Root:   &AERRoot{ReportCorrectable: true, ReportNonFatal: true, ReportFatal: true, CorrectableReceived: true, CorrectableSource: 0x1500},
		},
		ACS:  &ACS{Capable: 0x5f, Enabled: ACSSourceValidation | ACSRedirect | ACSUpstreamForwarding},
		DPC:  &DPC{RootPortExtensions: true, TriggerFatal: true, Interrupt: true, Triggered: true, Reason: 2, Source: 0x1500},
		L1SS: &L1SS{Capable: PCIPML11 | ASPML11, Enabled: ASPML11},
	}
	if got := Decode(rootPort()); !reflect.DeepEqual(got, want) {
		t.Errorf("decoded:\n%s", differences(want, got))
	}
}

// differences shows the lines in which the JSON of two values differs.
func differences(want, got any) string {
	a, _ := json.MarshalIndent(want, "", " ")
	b, _ := json.MarshalIndent(got, "", " ")
	wants, gots := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	var out strings.Builder
	for i := range max(len(wants), len(gots)) {
		w, g := "", ""
		if i < len(wants) {
			w = wants[i]
		}
		if i < len(gots) {
			g = gots[i]
		}
		if w != g {
			out.WriteString("want " + w + "\n got " + g + "\n")
		}
	}
	return out.String()
}

// endpoint is a GPU with virtual functions.
func endpoint() config {
	c := make(config, ExtendedConfigSize)
	c.put16(0x00, 0x10de)
	c.put16(0x02, 0x26b9)
	c.put16(0x06, 0x0010)
	c.put32(0x08, 0x030200<<8|0xa1)
	c.put32(0x10, 0x9000_0000)
	c.put32(0x14, 0x0000_000c)
	c.put32(0x18, 0x0000_0201)
	c.put32(0x1c, 0x0000_e001)
	c.put16(0x2c, 0x10de)
	c.put16(0x2e, 0x169d)
	c.put32(0x30, 0xfff8_0001)
	c[0x34] = 0x60
	c[0x60] = 0x10
	c.put16(0x62, 0x0002)
	c.put32(0x64, 0x1000_8021|250<<18)
	c.put32(0x6c, 4|16<<4)
	c.put16(0x72, 1|16<<4)
	c.put32(0x8c, 0x1e)
	c.put16(0x90, 4)
	c.extended(0x100, CapARI, 1, 0x120)
	c.put16(0x104, 0x0300)
	c.extended(0x120, CapSRIOV, 1, 0x180)
	c.put16(0x128, 0x0009)
	c.put16(0x12e, 32)
	c.put16(0x130, 2)
	c.put16(0x134, 4)
	c.put16(0x136, 1)
	c.put16(0x13a, 0x26b9)
	c.put32(0x144, 0xa000_000c)
	c.extended(0x180, CapReBAR, 1, 0x1a0)
	c.put32(0x184, 0x0003_ffc0)
	c.put32(0x188, 1|1<<5|15<<8)
	c.extended(0x1a0, CapSerial, 1, 0)
	c.put32(0x1a4, 0x4455_6677)
	c.put32(0x1a8, 0x0011_2233)
	return c
}

func TestDecodeEndpoint(t *testing.T) {
	r := Decode(endpoint())
	if want := []BAR{{Index: 0, Address: 0x9000_0000}, {Index: 1, Address: 0x201_0000_0000, Wide: true, Prefetchable: true},
		{Index: 3, Address: 0xe000, IO: true}, {Index: 6, Address: 0xfff8_0000, Enabled: true}}; !reflect.DeepEqual(r.BARs, want) {
		t.Errorf("BARs %+v", r.BARs)
	}
	x := r.Express
	if x == nil || x.Port != Endpoint || x.Slot != nil || !x.DevCap.FLR || x.DevCap.SlotPowerWatt != 500 ||
		x.LnkSta.Link != (Link{Gen1, 16}) || x.LnkCap.Link != (Link{Gen4, 16}) || x.LnkCap2.Max != Gen4 || x.LnkCtl2.Target != Gen4 {
		t.Errorf("express %+v", x)
	}
	if r.ARI == nil || r.ARI.Next != 3 {
		t.Errorf("ARI %+v", r.ARI)
	}
	s := r.SRIOV
	if s == nil || !s.Enabled || s.Total != 32 || s.VFs != 2 || len(s.BARs) != 1 {
		t.Fatalf("SR-IOV %+v", s)
	}
	if vf := s.VF(MustParseBDF("0000:3b:00.0"), 1); vf.String() != "0000:3b:00.5" {
		t.Errorf("second VF is %v", vf)
	}
	if want := []ReBAR{{Index: 1, Size: 32 << 30, Supported: 0x3ffc}}; !reflect.DeepEqual(r.ReBAR, want) || r.ReBAR[0].Largest() != 8<<30 {
		t.Errorf("resizable %+v", r.ReBAR)
	}
	if r.Serial != "00-11-22-33-44-55-66-77" {
		t.Errorf("serial %s", r.Serial)
	}
	if r.AER != nil || r.ACS != nil || r.DPC != nil || r.Bridge != nil || r.Power != nil {
		t.Error("capabilities that are not there are not nil")
	}
}

// Facts that lie beyond the bytes are unknown, not zero.
func TestDecodeShort(t *testing.T) {
	full := rootPort()
	r := Decode(full[:HeaderSize])
	if !r.CapabilitiesDenied || r.Express != nil || r.Bridge == nil || r.Readable != HeaderSize {
		t.Errorf("64 bytes: %+v", r)
	}
	r = Decode(full[:ConfigSize])
	if r.CapabilitiesDenied || r.Express == nil || r.AER != nil || r.ACS != nil {
		t.Errorf("256 bytes: %+v", r)
	}
	for n := range full[:0x200] {
		Decode(full[:n])
	}
}

func TestDecodeAllOnes(t *testing.T) {
	gone := make(config, 256)
	for i := range gone {
		gone[i] = 0xff
	}
	if r := Decode(gone); !r.AllOnes || r.ID != nil || r.Express != nil {
		t.Errorf("all ones: %+v", r)
	}
	// A virtual function has ones for its identity only.
	vf := endpoint()
	vf.put32(0, 0xffff_ffff)
	if r := Decode(vf); r.AllOnes || r.Express == nil {
		t.Errorf("virtual function: %+v", r)
	}
	if r := Decode(nil); r.AllOnes || r.Readable != 0 {
		t.Errorf("no bytes: %+v", r)
	}
}

// Lists that lead in circles end.
func TestDecodeCircle(t *testing.T) {
	c := rootPort()
	c[0x81] = 0x40
	c.extended(0x180, CapL1SS, 1, 0x100)
	if r := Decode(c); len(r.Capabilities) > 60 || r.AER == nil {
		t.Errorf("%d capabilities", len(r.Capabilities))
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(rootPort()))
	f.Add([]byte(endpoint()))
	f.Add([]byte(rootPort()[:256]))
	f.Fuzz(func(t *testing.T, config []byte) {
		r := Decode(config)
		if r.Readable > ExtendedConfigSize {
			t.Errorf("%d bytes readable", r.Readable)
		}
	})
}
