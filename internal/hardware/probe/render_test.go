package probe

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"ringlane/internal/model/pcie"
)

// style is a way in which lspci's text reaches us.
type style struct {
	old    bool // the words of pciutils up to 3.5
	indent string
	eol    string
	quote  string
}

// printer writes registers as lspci -vvv does: the inverse of the parser.
type printer struct {
	strings.Builder
	style
}

func (p *printer) line(depth int, format string, args ...any) {
	p.WriteString(p.quote + strings.Repeat(p.indent, depth) + fmt.Sprintf(format, args...) + p.eol)
}

func pm(b bool) string {
	if b {
		return "+"
	}
	return "-"
}

func render(s style, header string, r *pcie.Registers) string {
	p := &printer{style: s}
	p.line(0, "%s", header)
	if c := r.Control; c != nil {
		p.line(1, "Control: I/O%s Mem%s BusMaster%s SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR+ FastB2B- DisINTx-", pm(c.IO), pm(c.Memory), pm(c.BusMaster))
		p.line(1, "Status: Cap+ 66MHz- UDF- FastB2B- ParErr- DEVSEL=fast >TAbort- <TAbort- <MAbort- >SERR- <PERR- INTx-")
		p.line(1, "Latency: 0, Cache Line Size: 64 bytes")
	}
	if b := r.Bridge; b != nil {
		p.line(1, "Bus: primary=%02x, secondary=%02x, subordinate=%02x, sec-latency=0", b.Primary, b.Secondary, b.Subordinate)
		for _, w := range []struct {
			name string
			w    *pcie.Window
		}{{"I/O", b.IO}, {"Memory", b.Memory}, {"Prefetchable memory", b.Prefetch}} {
			if w.w == nil {
				p.line(1, "%s behind bridge: None", w.name)
			} else {
				p.line(1, "%s behind bridge: %08x-%08x [size=1M]", w.name, w.w.Base, w.w.Limit)
			}
		}
		p.line(1, "BridgeCtl: Parity- SERR+ NoISA- VGA- VGA16+ MAbort- >Reset- FastB2B-")
	}
	for _, c := range r.Capabilities {
		p.capability(c, r)
	}
	p.line(1, "Kernel driver in use: %s", "pcieport")
	p.line(0, "")
	return p.String()
}

func (p *printer) capability(c pcie.Capability, r *pcie.Registers) {
	place := fmt.Sprintf("Capabilities: [%02x] ", c.Offset)
	if c.ID&pcie.Extended != 0 {
		place = fmt.Sprintf("Capabilities: [%x v%d] ", c.Offset, c.Version)
	}
	switch c.ID {
	case pcie.CapPower:
		p.line(1, "%sPower Management version 3", place)
		p.line(2, "Flags: PMEClk- DSI- D1- D2- AuxCurrent=0mA PME(D0+,D1-,D2-,D3hot+,D3cold-)")
		p.line(2, "Status: D%d NoSoftRst+ PME-Enable- DSel=0 DScale=0 PME%s", r.Power.State, pm(r.Power.PME))
	case pcie.CapExpress:
		p.express(place, r.Express)
	case pcie.CapAER:
		p.aer(place, r.AER)
	case pcie.CapACS:
		p.line(1, "%sAccess Control Services", place)
		for _, l := range []struct {
			key string
			v   pcie.ACSBits
		}{{"ACSCap", r.ACS.Capable}, {"ACSCtl", r.ACS.Enabled}} {
			text := ""
			for i := range 7 {
				bit := pcie.ACSBits(1) << i
				text += " " + bit.Names()[0] + pm(l.v&bit != 0)
			}
			p.line(2, "%s:\t%s", l.key, strings.TrimSpace(text))
		}
	case pcie.CapDPC:
		d := r.DPC
		trigger := 0
		if d.TriggerNonFatal {
			trigger = 2
		} else if d.TriggerFatal {
			trigger = 1
		}
		p.line(1, "%sDownstream Port Containment", place)
		p.line(2, "DpcCap:\tINT Msg #0, RPExt%s PoisonedTLP+ SwTrigger+ RP PIO Log 6, DL_ActiveErr+", pm(d.RootPortExtensions))
		p.line(2, "DpcCtl:\tTrigger:%d Cmpl- INT%s ErrCor- PoisonedTLP- SwTrigger- DL_ActiveErr-", trigger, pm(d.Interrupt))
		p.line(2, "DpcSta:\tTrigger%s Reason:%02d INT- RPBusy- TriggerExt:%02d RP PIO ErrPtr:1f", pm(d.Triggered), d.Reason, d.Extended)
		p.line(2, "Source:\t%04x", d.Source)
	case pcie.CapL1SS:
		p.line(1, "%sL1 PM Substates", place)
		for _, l := range []struct {
			key string
			v   pcie.L1Substates
		}{{"L1SubCap", r.L1SS.Capable}, {"L1SubCtl1", r.L1SS.Enabled}} {
			p.line(2, "%s: PCI-PM_L1.2%s PCI-PM_L1.1%s ASPM_L1.2%s ASPM_L1.1%s", l.key, pm(l.v&1 != 0), pm(l.v&2 != 0), pm(l.v&4 != 0), pm(l.v&8 != 0))
		}
		p.line(3, "T_CommonMode=0us LTR1.2_Threshold=0ns")
	case pcie.CapARI:
		p.line(1, "%sAlternative Routing-ID Interpretation (ARI)", place)
		p.line(2, "ARICap:\tMFVC- ACS-, Next Function: %d", r.ARI.Next)
		p.line(2, "ARICtl:\tMFVC- ACS-, Function Group: 0")
	case pcie.CapSRIOV:
		s := r.SRIOV
		p.line(1, "%sSingle Root I/O Virtualization (SR-IOV)", place)
		p.line(2, "IOVCap:\tMigration- 10BitTagReq- Interrupt Message Number: 000")
		p.line(2, "IOVCtl:\tEnable%s Migration- Interrupt- MSE- ARIHierarchy+ 10BitTagReq-", pm(s.Enabled))
		p.line(2, "IOVSta:\tMigration-")
		p.line(2, "Initial VFs: %d, Total VFs: %d, Number of VFs: %d, Function Dependency Link: 00", s.Total, s.Total, s.VFs)
		p.line(2, "VF offset: %d, stride: %d, Device ID: %04x", s.Offset, s.Stride, s.VFDevice)
		p.line(2, "Supported Page Size: 00000573, System Page Size: 00000001")
		p.line(2, "Region 0: Memory at 00000000a0000000 (64-bit, prefetchable)")
		p.line(2, "VF Migration: offset: 00000000, BIR: 0")
	case pcie.CapSerial:
		p.line(1, "%sDevice Serial Number %s", place, r.Serial)
	}
}

func (p *printer) aer(place string, a *pcie.AER) {
	p.line(1, "%sAdvanced Error Reporting", place)
	ue := func(key string, v pcie.UncorrectableErrors) {
		text := ""
		for _, bit := range []int{4, 5, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21} {
			b := pcie.UncorrectableErrors(1) << bit
			text += " " + b.Names()[0] + pm(v&b != 0)
		}
		p.line(2, "%s:\t%s", key, strings.TrimSpace(text))
		text = ""
		for _, bit := range []int{22, 23, 24, 25, 26} {
			b := pcie.UncorrectableErrors(1) << bit
			text += " " + b.Names()[0] + pm(v&b != 0)
		}
		p.line(3, "%s", strings.TrimSpace(text))
	}
	ce := func(key string, v pcie.CorrectableErrors) {
		text := ""
		for _, bit := range []int{0, 6, 7, 8, 12, 13} {
			b := pcie.CorrectableErrors(1) << bit
			name := b.Names()[0]
			if name == "NonFatalErr" && !p.old {
				name = "AdvNonFatalErr"
			}
			text += " " + name + pm(v&b != 0)
		}
		p.line(2, "%s:\t%s", key, strings.TrimSpace(text))
	}
	ue("UESta", a.UncorrectableStatus)
	ue("UEMsk", a.UncorrectableMask)
	ue("UESvrt", a.UncorrectableSeverity)
	ce("CESta", a.CorrectableStatus)
	ce("CEMsk", a.CorrectableMask)
	p.line(2, "AERCap:\tFirst Error Pointer: %02x, ECRCGenCap+ ECRCGenEn- ECRCChkCap+ ECRCChkEn-", a.FirstError)
	p.line(3, "MultHdrRecCap- MultHdrRecEn- TLPPfxPres- HdrLogCap-")
	p.line(2, "HeaderLog: %08x %08x %08x %08x", a.Header[0], a.Header[1], a.Header[2], a.Header[3])
	if o := a.Root; o != nil {
		p.line(2, "RootCmd: CERptEn%s NFERptEn%s FERptEn%s", pm(o.ReportCorrectable), pm(o.ReportNonFatal), pm(o.ReportFatal))
		p.line(2, "RootSta: CERcvd%s MultCERcvd- UERcvd%s MultUERcvd-", pm(o.CorrectableReceived), pm(o.UncorrectableReceived))
		p.line(3, " FirstFatal- NonFatalMsg- FatalMsg- IntMsg 0")
		p.line(2, "ErrorSrc: ERR_COR: %04x ERR_FATAL/NONFATAL: %04x", o.CorrectableSource, o.UncorrectableSource)
	}
}

var portTexts = map[pcie.PortType]string{
	pcie.Endpoint: "Endpoint", pcie.LegacyEndpoint: "Legacy Endpoint", pcie.RootPort: "Root Port", pcie.UpstreamPort: "Upstream Port",
	pcie.DownstreamPort: "Downstream Port", pcie.ExpressToPCI: "PCI-Express to PCI/PCI-X Bridge", pcie.IntegratedEndpoint: "Root Complex Integrated Endpoint",
	pcie.EventCollector: "Root Complex Event Collector",
}

func (p *printer) express(place string, x *pcie.Express) {
	port := portTexts[x.Port]
	if x.Port.Downward() {
		port += " (Slot" + pm(x.SlotImplemented) + ")"
	}
	p.line(1, "%sExpress (v%d) %s, MSI 00", place, x.Version, port)
	if c := x.DevCap; c != nil {
		p.line(2, "DevCap:\tMaxPayload %d bytes, PhantFunc 0, Latency L0s <64ns, L1 <1us", c.MaxPayload)
		p.line(3, "ExtTag%s AttnBtn- AttnInd- PwrInd- RBE%s FLReset%s SlotPowerLimit %gW", pm(c.ExtendedTag), pm(c.RoleBased), pm(c.FLR), c.SlotPowerWatt)
	}
	if c := x.DevCtl; c != nil {
		if p.old {
			p.line(2, "DevCtl:\tReport errors: Correctable%s Non-Fatal%s Fatal%s Unsupported%s", pm(c.ReportCorrectable), pm(c.ReportNonFatal), pm(c.ReportFatal), pm(c.ReportUnsupported))
		} else {
			p.line(2, "DevCtl:\tCorrErr%s NonFatalErr%s FatalErr%s UnsupReq%s", pm(c.ReportCorrectable), pm(c.ReportNonFatal), pm(c.ReportFatal), pm(c.ReportUnsupported))
		}
		p.line(3, "RlxdOrd%s ExtTag%s PhantFunc- AuxPwr- NoSnoop%s", pm(c.RelaxedOrdering), pm(c.ExtendedTag), pm(c.NoSnoop))
		p.line(3, "MaxPayload %d bytes, MaxReadReq %d bytes", c.MaxPayload, c.MaxReadRequest)
	}
	if s := x.DevSta; s != nil {
		second := "NonFatalErr"
		if p.old {
			second = "UncorrErr"
		}
		p.line(2, "DevSta:\tCorrErr%s %s%s FatalErr%s UnsupReq%s AuxPwr- TransPend%s", pm(s.Correctable), second, pm(s.NonFatal), pm(s.Fatal), pm(s.Unsupported), pm(s.Pending))
	}
	if c := x.LnkCap; c != nil {
		support := "not supported"
		if c.ASPM != 0 {
			support = c.ASPM.String() + ", Exit Latency L0s <64ns, L1 <1us"
		}
		p.line(2, "LnkCap:\tPort #%d, Speed %v, Width x%d, ASPM %s", c.Port, c.Speed, c.Width, support)
		p.line(3, "ClockPM%s Surprise%s LLActRep%s BwNot%s ASPMOptComp+", pm(c.ClockPM), pm(c.SurpriseDown), pm(c.ActiveReports), pm(c.BandwidthNote))
	}
	if c := x.LnkCtl; c != nil {
		enabled := "Disabled"
		if c.ASPM != 0 {
			enabled = c.ASPM.String() + " Enabled"
		}
		comma := ","
		if p.old {
			comma = ""
		}
		p.line(2, "LnkCtl:\tASPM %s; RCB %d bytes%s Disabled%s CommClk%s", enabled, c.ReadCompletionBytes, comma, pm(c.Disabled), pm(c.CommonClock))
		p.line(3, "ExtSynch- ClockPM%s AutWidDis%s BWInt- AutBWInt-", pm(c.ClockPM), pm(c.AutoWidthDisabled))
	}
	if s := x.LnkSta; s != nil {
		word := ""
		if p.old {
			word = " (ok)"
		} else if s.Slower(x.LnkCap.Link) {
			word = " (downgraded)"
		}
		p.line(2, "LnkSta:\tSpeed %v%s, Width x%d", s.Speed, word, s.Width)
		p.line(3, "TrErr- Train%s SlotClk%s DLActive%s BWMgmt%s ABWMgmt%s", pm(s.Training), pm(s.SlotClock), pm(s.Active), pm(s.BandwidthManagement), pm(s.AutonomousBandwidth))
	}
	if s := x.Slot; s != nil {
		p.line(2, "SltCap:\tAttnBtn- PwrCtrl%s MRL- AttnInd- PwrInd- HotPlug%s Surprise%s", pm(s.PowerControl), pm(s.HotPlug), pm(s.Surprise))
		p.line(3, "Slot #%d, PowerLimit %gW; Interlock- NoCompl-", s.Number, s.PowerWatt)
		p.line(2, "SltCtl:\tEnable: AttnBtn- PwrFlt- MRL- PresDet+ CmdCplt- HPIrq- LinkChg-")
		p.line(3, "Control: AttnInd Off, PwrInd Off, Power%s Interlock-", pm(s.Status.PowerOff))
		p.line(2, "SltSta:\tStatus: AttnBtn- PowerFlt%s MRL- CmdCplt- PresDet%s Interlock-", pm(s.Status.PowerFault), pm(s.Status.Present))
		p.line(3, "Changed: MRL- PresDet%s LinkState%s", pm(s.Status.PresenceChanged), pm(s.Status.LinkStateChanged))
	}
	if c := x.DevCap2; c != nil {
		p.line(2, "DevCap2: Completion Timeout: Range ABC, TimeoutDis%s NROPrPrP- LTR%s", pm(c.CompletionTimeoutDisable), pm(c.LTR))
		p.line(3, " 10BitTagComp%s 10BitTagReq%s OBFF Not Supported, ExtFmt- EETLPPrefix-", pm(c.TenBitTagCompleter), pm(c.TenBitTagRequester))
		p.line(3, " FRS- ARIFwd%s", pm(c.ARIForwarding))
		p.line(3, " AtomicOpsCap: Routing%s 32bit%s 64bit%s 128bitCAS%s", pm(c.AtomicRouting), pm(c.Atomic32), pm(c.Atomic64), pm(c.Atomic128))
	}
	if c := x.DevCtl2; c != nil {
		p.line(2, "DevCtl2: Completion Timeout: 50us to 50ms, TimeoutDis%s LTR%s 10BitTagReq%s OBFF Disabled, ARIFwd%s", pm(c.CompletionTimeoutDisabled), pm(c.LTR), pm(c.TenBitTag), pm(c.ARIForwarding))
		p.line(3, " AtomicOpsCtl: ReqEn%s EgressBlck%s", pm(c.AtomicRequester), pm(c.AtomicEgressBlocked))
	}
	if c := x.LnkCap2; c != nil {
		p.line(2, "LnkCap2: Supported Link Speeds: 2.5-%v, Crosslink- Retimer%s 2Retimers%s DRS-", c.Max, pm(c.Retimers > 0), pm(c.Retimers > 1))
	}
	if c := x.LnkCtl2; c != nil {
		p.line(2, "LnkCtl2: Target Link Speed: %v, EnterCompliance- SpeedDis%s", c.Target, pm(c.SpeedDisabled))
		p.line(3, " Transmit Margin: Normal Operating Range, EnterModifiedCompliance- ComplianceSOS-")
		p.line(3, " Compliance De-emphasis: -6dB")
	}
	if s := x.LnkSta2; s != nil {
		p.line(2, "LnkSta2: Current De-emphasis Level: -6dB, EqualizationComplete%s EqualizationPhase1+", pm(s.Equalized))
		p.line(3, " EqualizationPhase2+ EqualizationPhase3+ LinkEqualizationRequest%s", pm(s.EqualizeRequest))
		p.line(3, " Retimer%s 2Retimers%s CrosslinkRes: unsupported", pm(s.Retimers > 0), pm(s.Retimers > 1))
	}
}

// randomRegisters makes registers such as a machine might have.
func randomRegisters(rng *rand.Rand) *pcie.Registers {
	yes := func() bool { return rng.IntN(2) == 1 }
	speed := func() pcie.Speed { return pcie.Speed(1 + rng.IntN(6)) }
	width := func() uint8 { return 1 << rng.IntN(5) }
	size := func() int { return 128 << rng.IntN(6) }
	ports := []pcie.PortType{pcie.Endpoint, pcie.LegacyEndpoint, pcie.RootPort, pcie.UpstreamPort, pcie.DownstreamPort, pcie.IntegratedEndpoint}
	x := &pcie.Express{Version: 2, Port: ports[rng.IntN(len(ports))],
		DevCap: &pcie.DevCap{MaxPayload: size(), ExtendedTag: yes(), RoleBased: yes(), FLR: yes(), SlotPowerWatt: float64(rng.IntN(300))},
		DevCtl: &pcie.DevCtl{MaxPayload: size(), MaxReadRequest: size(), ReportCorrectable: yes(), ReportNonFatal: yes(), ReportFatal: yes(),
			ReportUnsupported: yes(), RelaxedOrdering: yes(), ExtendedTag: yes(), NoSnoop: yes()},
		DevSta: &pcie.DevSta{Correctable: yes(), NonFatal: yes(), Fatal: yes(), Unsupported: yes(), Pending: yes()},
		DevCap2: &pcie.DevCap2{CompletionTimeoutDisable: yes(), ARIForwarding: yes(), AtomicRouting: yes(), Atomic32: yes(), Atomic64: yes(),
			Atomic128: yes(), TenBitTagCompleter: yes(), TenBitTagRequester: yes(), LTR: yes()},
		DevCtl2: &pcie.DevCtl2{CompletionTimeoutDisabled: yes(), ARIForwarding: yes(), AtomicRequester: yes(), AtomicEgressBlocked: yes(), TenBitTag: yes(), LTR: yes()},
	}
	if x.Port != pcie.IntegratedEndpoint {
		x.LnkCap = &pcie.LnkCap{Link: pcie.Link{Speed: speed(), Width: width()}, ASPM: pcie.ASPM(rng.IntN(4)), Port: uint8(rng.IntN(256)),
			SurpriseDown: yes(), ActiveReports: yes(), BandwidthNote: yes(), ClockPM: yes()}
		x.LnkCtl = &pcie.LnkCtl{ASPM: pcie.ASPM(rng.IntN(4)), Disabled: yes(), CommonClock: yes(), ClockPM: yes(), AutoWidthDisabled: yes(), ReadCompletionBytes: 64 << rng.IntN(2)}
		x.LnkSta = &pcie.LnkSta{Link: pcie.Link{Speed: speed(), Width: width()}, Training: yes(), SlotClock: yes(), Active: yes(), BandwidthManagement: yes(), AutonomousBandwidth: yes()}
		x.LnkCap2 = &pcie.LnkCap2{Max: speed(), Retimers: rng.IntN(3)}
		x.LnkCtl2 = &pcie.LnkCtl2{Target: speed(), SpeedDisabled: yes()}
		x.LnkSta2 = &pcie.LnkSta2{Equalized: yes(), EqualizeRequest: yes(), Retimers: rng.IntN(3)}
	}
	one := uint8(1)
	r := &pcie.Registers{Control: &pcie.Control{IO: yes(), Memory: yes(), BusMaster: yes()}, Express: x, Power: &pcie.Power{State: rng.IntN(4), PME: yes()},
		Capabilities: []pcie.Capability{{ID: pcie.CapPower, Offset: 0x40}, {ID: pcie.CapExpress, Offset: 0x60}, {ID: pcie.CapAER, Offset: 0x100, Version: 2}},
		AER: &pcie.AER{UncorrectableStatus: pcie.UncorrectableErrors(rng.Uint32()) & 0x7fff030, UncorrectableMask: pcie.UncorrectableErrors(rng.Uint32()) & 0x7fff030,
			UncorrectableSeverity: pcie.UncorrectableErrors(rng.Uint32()) & 0x7fff030, CorrectableStatus: pcie.CorrectableErrors(rng.Uint32()) & 0x31c1,
			CorrectableMask: pcie.CorrectableErrors(rng.Uint32()) & 0x31c1, FirstError: uint8(rng.IntN(32)),
			Header: []uint32{rng.Uint32(), rng.Uint32(), rng.Uint32(), rng.Uint32()}},
	}
	add := func(id pcie.CapabilityID) {
		last := r.Capabilities[len(r.Capabilities)-1].Offset
		r.Capabilities = append(r.Capabilities, pcie.Capability{ID: id, Offset: last + 0x40, Version: 1})
	}
	if x.Port.Downward() || x.Port == pcie.UpstreamPort {
		r.HeaderType = &one
		r.Bridge = &pcie.Bridge{Primary: uint8(rng.IntN(100)), Secondary: uint8(100 + rng.IntN(50)), Subordinate: uint8(150 + rng.IntN(100)),
			IO: &pcie.Window{Base: 0xf000, Limit: 0xfff}, Memory: &pcie.Window{Base: 0x90000000, Limit: 0x9fffffff}, Prefetch: &pcie.Window{Base: 0x3800000000, Limit: 0x39ffffffff}}
		if yes() {
			r.Bridge.IO = nil
		}
	}
	if x.Port.Downward() {
		if x.SlotImplemented = yes(); x.SlotImplemented {
			x.Slot = &pcie.Slot{Number: rng.IntN(1000), HotPlug: yes(), Surprise: yes(), PowerControl: yes(), PowerWatt: float64(rng.IntN(200)),
				Status: &pcie.SlotStatus{Present: yes(), PowerFault: yes(), PresenceChanged: yes(), LinkStateChanged: yes()}}
			x.Slot.Status.PowerOff = x.Slot.PowerControl && yes()
		}
		r.ACS = &pcie.ACS{Capable: pcie.ACSBits(rng.IntN(128)), Enabled: pcie.ACSBits(rng.IntN(128))}
		fatal := yes()
		r.DPC = &pcie.DPC{RootPortExtensions: yes(), TriggerFatal: fatal, TriggerNonFatal: fatal && yes(), Triggered: yes(), Reason: uint8(rng.IntN(4)),
			Extended: uint8(rng.IntN(2)), Source: uint16(rng.Uint32()), Interrupt: yes()}
		add(pcie.CapACS)
		add(pcie.CapDPC)
	}
	if x.Port == pcie.RootPort {
		r.AER.Root = &pcie.AERRoot{ReportCorrectable: yes(), ReportNonFatal: yes(), ReportFatal: yes(), CorrectableReceived: yes(), UncorrectableReceived: yes(),
			CorrectableSource: uint16(rng.Uint32()), UncorrectableSource: uint16(rng.Uint32())}
	}
	if x.Port == pcie.Endpoint {
		r.ARI = &pcie.ARI{Next: uint8(rng.IntN(8))}
		r.SRIOV = &pcie.SRIOV{Enabled: yes(), Total: uint16(rng.IntN(64)), VFs: uint16(rng.IntN(64)), Offset: uint16(rng.IntN(256)), Stride: uint16(rng.IntN(8)), VFDevice: uint16(rng.Uint32())}
		r.Serial = "00-11-22-33-44-55-66-77"
		add(pcie.CapARI)
		add(pcie.CapSRIOV)
		add(pcie.CapSerial)
	}
	r.L1SS = &pcie.L1SS{Capable: pcie.L1Substates(rng.IntN(16)), Enabled: pcie.L1Substates(rng.IntN(16))}
	add(pcie.CapL1SS)
	return r
}
