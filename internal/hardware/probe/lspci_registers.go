package probe

import (
	"strconv"
	"strings"

	"ringlane/internal/model/pcie"
)

// bit looks for name followed by + or - as a word of its own.
func bit(s, name string) (on, ok bool) {
	for from := 0; ; {
		i := strings.Index(s[from:], name)
		if i < 0 {
			return false, false
		}
		i += from
		end := i + len(name)
		if end < len(s) && (s[end] == '+' || s[end] == '-') && (i == 0 || strings.IndexByte(" ,;(\t:", s[i-1]) >= 0) {
			return s[end] == '+', true
		}
		from = i + 1
	}
}

func set(to *bool, s, name string) {
	if on, ok := bit(s, name); ok {
		*to = on
	}
}

// after returns the text that follows name and a blank, up to the next comma,
// semicolon or the end.
func after(s, name string) (string, bool) {
	_, t, ok := strings.Cut(s, name)
	if !ok {
		return "", false
	}
	return strings.TrimSpace(firstOf(t, ",;")), true
}

func number(s, name string) (int, bool) {
	t, ok := after(s, name)
	if !ok {
		return 0, false
	}
	n := 0
	for n < len(t) && '0' <= t[n] && t[n] <= '9' {
		n++
	}
	v, err := strconv.Atoi(t[:n])
	return v, err == nil
}

// made returns *p, made first if it is nil.
func made[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

// register takes the value of a register, or a further line of it, in the
// capability that is open. It reports whether it knows the key. Facts are
// found by their names, so that order, line breaks and what versions of lspci
// add or leave out do not matter.
func (l *lspci) register(key, v string) bool {
	r := &l.regs
	switch key {
	case "Status":
		return l.status(v)
	case "UESta":
		made(&r.AER).UncorrectableStatus |= uncorrectableSet(v)
	case "UEMsk":
		made(&r.AER).UncorrectableMask |= uncorrectableSet(v)
	case "UESvrt":
		made(&r.AER).UncorrectableSeverity |= uncorrectableSet(v)
	case "CESta":
		made(&r.AER).CorrectableStatus |= correctableSet(v)
	case "CEMsk":
		made(&r.AER).CorrectableMask |= correctableSet(v)
	case "AERCap":
		if t, ok := after(v, "First Error Pointer: "); ok {
			p, _ := strconv.ParseUint(t, 16, 8)
			made(&r.AER).FirstError = uint8(p & 31)
		}
	case "HeaderLog":
		for w := range strings.FieldsSeq(v) {
			if h, err := strconv.ParseUint(w, 16, 32); err == nil && r.AER != nil && len(r.AER.Header) < 14 {
				r.AER.Header = append(r.AER.Header, uint32(h))
			}
		}
	case "RootCmd":
		if on, ok := bit(v, "CERptEn"); ok {
			root := made(&made(&r.AER).Root)
			root.ReportCorrectable = on
			set(&root.ReportNonFatal, v, "NFERptEn")
			set(&root.ReportFatal, v, "FERptEn")
		}
	case "RootSta":
		if on, ok := bit(v, "CERcvd"); ok {
			root := made(&made(&r.AER).Root)
			root.CorrectableReceived = on
			set(&root.UncorrectableReceived, v, "UERcvd")
		}
	case "ErrorSrc":
		if c, ok := after(v, "ERR_COR: "); ok && r.AER != nil {
			root := made(&r.AER.Root)
			root.CorrectableSource = uint16(hexWord(firstWord(c)))
			_, u, _ := strings.Cut(v, "NONFATAL: ")
			root.UncorrectableSource = uint16(hexWord(u))
		}
	case "ACSCap":
		made(&r.ACS).Capable |= acsSet(v)
	case "ACSCtl":
		made(&r.ACS).Enabled |= acsSet(v)
	case "DpcCap":
		set(&made(&r.DPC).RootPortExtensions, v, "RPExt")
	case "DpcCtl":
		if t, ok := number(v, "Trigger:"); ok {
			d := made(&r.DPC)
			d.TriggerFatal, d.TriggerNonFatal = t == 1 || t == 2, t == 2
			set(&d.Interrupt, v, "INT")
		}
	case "DpcSta":
		d := made(&r.DPC)
		set(&d.Triggered, v, "Trigger")
		if n, ok := number(v, "Reason:"); ok {
			d.Reason = uint8(n)
		}
		if n, ok := number(v, "TriggerExt:"); ok {
			d.Extended = uint8(n)
		}
	case "Source":
		if l.capacity == pcie.CapDPC {
			made(&r.DPC).Source = uint16(hexWord(v))
		}
	case "ARICap":
		if n, ok := number(v, "Next Function: "); ok {
			r.ARI = &pcie.ARI{Next: uint8(n)}
		}
	case "L1SubCap":
		made(&r.L1SS).Capable |= l1Substates(v)
	case "L1SubCtl1":
		made(&r.L1SS).Enabled |= l1Substates(v)
	case "IOVCtl":
		set(&made(&r.SRIOV).Enabled, v, "Enable")
	case "Initial VFs":
		s := made(&r.SRIOV)
		if n, ok := number(v, "Total VFs: "); ok {
			s.Total = uint16(n)
		}
		if n, ok := number(v, "Number of VFs: "); ok {
			s.VFs = uint16(n)
		}
	case "VF offset":
		s := made(&r.SRIOV)
		n, _ := strconv.ParseUint(firstOf(v, ", "), 10, 16)
		s.Offset = uint16(n)
		if n, ok := number(v, "stride: "); ok {
			s.Stride = uint16(n)
		}
		if id, ok := after(v, "Device ID: "); ok {
			s.VFDevice = uint16(hexWord(id))
		}
	case "ARICtl", "IOVCap", "IOVSta", "LaneErrStat", "Address", "Masking", "Vector table", "PBA", "RootCap", "RootCtl",
		"L1SubCtl2", "LnkCtl3", "Supported Page Size", "VF Migration":
	default:
		if n, ok := strings.CutPrefix(key, "BAR "); ok {
			return l.resizable(n, v)
		}
		return l.expressRegister(key, v)
	}
	return true
}

// status takes "Status:", which stands below several capabilities.
func (l *lspci) status(v string) bool {
	if l.capacity == pcie.CapPower && len(v) >= 2 && v[0] == 'D' && v[1] >= '0' && v[1] <= '3' {
		p := made(&l.regs.Power)
		p.State = int(v[1] - '0')
		if i := strings.LastIndex(v, "PME"); i >= 0 {
			p.PME = strings.HasPrefix(v[i:], "PME+")
		}
		return true
	}
	if x := l.regs.Express; x != nil && l.key == "SltSta" {
		return l.expressRegister("SltSta", v)
	}
	return true
}

// expressRegister takes the registers of the Express capability.
func (l *lspci) expressRegister(key, v string) bool {
	switch key {
	case "DevCap", "DevCtl", "DevSta", "LnkCap", "LnkCtl", "LnkSta", "SltCap", "SltCtl", "SltSta",
		"DevCap2", "DevCtl2", "LnkCap2", "LnkCtl2", "LnkSta2":
	default:
		// Second lines of the slot registers have keys of their own.
		return l.capacity == pcie.CapExpress && l.slotLine(key, v)
	}
	x := l.regs.Express
	if x == nil || l.capacity != pcie.CapExpress {
		return true // of a chain that went astray
	}
	switch key {
	case "DevCap":
		c := made(&x.DevCap)
		if n, ok := number(v, "MaxPayload "); ok {
			c.MaxPayload = n
		}
		set(&c.ExtendedTag, v, "ExtTag")
		set(&c.RoleBased, v, "RBE")
		set(&c.FLR, v, "FLReset")
		if w, ok := after(v, "SlotPowerLimit "); ok {
			c.SlotPowerWatt = watts(w)
		}
	case "DevCtl":
		c := made(&x.DevCtl)
		for _, f := range []struct {
			to    *bool
			names [2]string // as printed now, and by pciutils up to 3.5
		}{
			{&c.ReportCorrectable, [2]string{"CorrErr", "Correctable"}},
			{&c.ReportNonFatal, [2]string{"NonFatalErr", "Non-Fatal"}},
			{&c.ReportFatal, [2]string{"FatalErr", "Fatal"}},
			{&c.ReportUnsupported, [2]string{"UnsupReq", "Unsupported"}},
		} {
			set(f.to, v, f.names[0])
			set(f.to, v, f.names[1])
		}
		set(&c.RelaxedOrdering, v, "RlxdOrd")
		set(&c.ExtendedTag, v, "ExtTag")
		set(&c.NoSnoop, v, "NoSnoop")
		if n, ok := number(v, "MaxPayload "); ok {
			c.MaxPayload = n
		}
		if n, ok := number(v, "MaxReadReq "); ok {
			c.MaxReadRequest = n
		}
	case "DevSta":
		s := made(&x.DevSta)
		set(&s.Correctable, v, "CorrErr")
		set(&s.NonFatal, v, "NonFatalErr")
		set(&s.NonFatal, v, "UncorrErr")
		set(&s.Fatal, v, "FatalErr")
		set(&s.Unsupported, v, "UnsupReq")
		set(&s.Pending, v, "TransPend")
	case "LnkCap":
		c := made(&x.LnkCap)
		linkText(&c.Link, v)
		if n, ok := number(v, "Port #"); ok {
			c.Port = uint8(n)
		}
		if a, ok := after(v, "ASPM "); ok {
			c.ASPM = aspm(a)
		}
		set(&c.SurpriseDown, v, "Surprise")
		set(&c.ActiveReports, v, "LLActRep")
		set(&c.BandwidthNote, v, "BwNot")
		set(&c.ClockPM, v, "ClockPM")
	case "LnkCtl":
		c := made(&x.LnkCtl)
		if a, ok := after(v, "ASPM "); ok && !strings.HasPrefix(a, "Disabled") {
			c.ASPM = aspm(a)
		}
		if n, ok := number(v, "RCB "); ok {
			c.ReadCompletionBytes = n
		}
		set(&c.Disabled, v, "Disabled")
		set(&c.Disabled, v, "LnkDisable")
		set(&c.CommonClock, v, "CommClk")
		set(&c.ClockPM, v, "ClockPM")
		set(&c.AutoWidthDisabled, v, "AutWidDis")
	case "LnkSta":
		s := made(&x.LnkSta)
		linkText(&s.Link, v)
		set(&s.Training, v, "Train")
		set(&s.SlotClock, v, "SlotClk")
		set(&s.Active, v, "DLActive")
		set(&s.BandwidthManagement, v, "BWMgmt")
		set(&s.AutonomousBandwidth, v, "ABWMgmt")
	case "SltCap":
		s := made(&x.Slot)
		set(&s.PowerControl, v, "PwrCtrl")
		set(&s.HotPlug, v, "HotPlug")
		set(&s.Surprise, v, "Surprise")
		if n, ok := number(v, "Slot #"); ok {
			s.Number = n
		}
		if w, ok := after(v, "PowerLimit "); ok {
			s.PowerWatt = watts(w)
		}
	case "SltCtl":
		if on, ok := bit(v, "Power"); ok && x.Slot != nil && x.Slot.PowerControl {
			made(&x.Slot.Status).PowerOff = on // the bit switches off
		}
	case "SltSta":
		if on, ok := bit(v, "PowerFlt"); ok {
			s := made(&made(&x.Slot).Status)
			s.PowerFault = on
			set(&s.Present, v, "PresDet")
		}
	case "DevCap2":
		c := made(&x.DevCap2)
		set(&c.CompletionTimeoutDisable, v, "TimeoutDis")
		set(&c.ARIForwarding, v, "ARIFwd")
		set(&c.AtomicRouting, v, "Routing")
		set(&c.Atomic32, v, "32bit")
		set(&c.Atomic64, v, "64bit")
		set(&c.Atomic128, v, "128bitCAS")
		set(&c.TenBitTagCompleter, v, "10BitTagComp")
		set(&c.TenBitTagRequester, v, "10BitTagReq")
		set(&c.LTR, v, "LTR")
	case "DevCtl2":
		c := made(&x.DevCtl2)
		set(&c.CompletionTimeoutDisabled, v, "TimeoutDis")
		set(&c.ARIForwarding, v, "ARIFwd")
		set(&c.AtomicRequester, v, "ReqEn")
		set(&c.AtomicEgressBlocked, v, "EgressBlck")
		set(&c.TenBitTag, v, "10BitTagReq")
		set(&c.LTR, v, "LTR")
	case "LnkCap2":
		c := made(&x.LnkCap2)
		if t, ok := after(v, "Supported Link Speeds: "); ok {
			if i := strings.LastIndexByte(t, '-'); i >= 0 {
				t = t[i+1:]
			}
			c.Max = speed(t)
		}
		c.Retimers = max(c.Retimers, retimers(v))
	case "LnkCtl2":
		c := made(&x.LnkCtl2)
		if t, ok := after(v, "Target Link Speed: "); ok {
			c.Target = speed(t)
		}
		set(&c.SpeedDisabled, v, "SpeedDis")
	case "LnkSta2":
		s := made(&x.LnkSta2)
		set(&s.Equalized, v, "EqualizationComplete")
		set(&s.EqualizeRequest, v, "LinkEqualizationRequest")
		s.Retimers = max(s.Retimers, retimers(v))
	}
	return true
}

// slotLine takes the second lines of the slot registers: "Control: ... Power-",
// "Changed: MRL- PresDet- LinkState-", "Status: ...".
func (l *lspci) slotLine(key, v string) bool {
	x := l.regs.Express
	if x == nil || x.Slot == nil {
		return false
	}
	switch key {
	case "Control":
		return l.expressRegister("SltCtl", v)
	case "Changed":
		s := made(&x.Slot.Status)
		set(&s.PresenceChanged, v, "PresDet")
		set(&s.LinkStateChanged, v, "LinkState")
		return true
	}
	return false
}

// linkText reads "Speed 8GT/s (downgraded), Width x4 (ok)". The words in
// brackets are not kept: they compare with the register beside, as anybody
// can, and lspci prints them for some port types only.
func linkText(l *pcie.Link, v string) {
	if t, ok := after(v, "Speed "); ok && !strings.Contains(v, "Target Link") {
		l.Speed = speed(t)
	}
	if n, ok := number(v, "Width x"); ok {
		l.Width = uint8(min(n, 255))
	}
}

// speed reads a speed and whatever follows it; 0 where it is none.
func speed(t string) pcie.Speed {
	s, _ := pcie.ParseSpeed(t)
	return s
}

func aspm(t string) (a pcie.ASPM) {
	t = firstOf(t, ",;")
	if strings.Contains(t, "L0s") {
		a |= pcie.L0s
	}
	if strings.Contains(t, "L1") {
		a |= pcie.L1
	}
	return a
}

func retimers(v string) int {
	one, _ := bit(v, "Retimer")
	two, _ := bit(v, "2Retimers")
	switch {
	case two:
		return 2
	case one:
		return 1
	}
	return 0
}

func watts(t string) float64 {
	w, err := strconv.ParseFloat(strings.TrimRight(firstOf(t, " ;,)"), "W"), 64)
	if err != nil {
		return 0
	}
	return w
}

func hexWord(s string) uint64 {
	v, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(s), "0x"), 16, 64)
	if err != nil {
		return 0
	}
	return v
}

func uncorrectableSet(v string) (out pcie.UncorrectableErrors) {
	for w := range strings.FieldsSeq(v) {
		if name, ok := strings.CutSuffix(w, "+"); ok {
			bit, _ := pcie.UncorrectableByName(name)
			out |= bit
		}
	}
	return out
}

func correctableSet(v string) (out pcie.CorrectableErrors) {
	for w := range strings.FieldsSeq(v) {
		if name, ok := strings.CutSuffix(w, "+"); ok {
			bit, _ := pcie.CorrectableByName(name)
			out |= bit
		}
	}
	return out
}

func acsSet(v string) (out pcie.ACSBits) {
	for i := range 7 {
		one := pcie.ACSBits(1) << i
		if on, _ := bit(v, one.Names()[0]); on {
			out |= one
		}
	}
	return out
}

func l1Substates(v string) (out pcie.L1Substates) {
	for i, name := range []string{"PCI-PM_L1.2", "PCI-PM_L1.1", "ASPM_L1.2", "ASPM_L1.1"} {
		if on, _ := bit(v, name); on {
			out |= 1 << i
		}
	}
	return out
}

// resizable takes "BAR 2: current size: 128GB, supported: 64MB 128MB 256MB".
func (l *lspci) resizable(index, v string) bool {
	i, err := strconv.Atoi(index)
	current, ok := after(v, "current size: ")
	if err != nil || !ok || len(l.regs.ReBAR) >= maxRegions {
		return false
	}
	r := pcie.ReBAR{Index: i, Size: byteSize(current), Virtual: l.capacity == pcie.CapVFReBAR}
	_, list, _ := strings.Cut(v, "supported: ")
	for s := range strings.FieldsSeq(list) {
		for n := range 44 {
			if byteSize(s) == 1<<(20+n) {
				r.Supported |= 1 << n
			}
		}
	}
	l.regs.ReBAR = append(l.regs.ReBAR, r)
	return true
}
