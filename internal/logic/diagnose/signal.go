package diagnose

import (
	"fmt"
	"slices"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

var signalRules = []Rule{
	{
		Code: "aspm-suspect", Severity: Warning, Needs: []Fact{Links, KernelLog},
		When:        "link-level corrected errors on a link whose ASPM L0s or L1 is on",
		Explanation: "Errors on leaving a power-saving state of the link look like a bad signal, and end when ASPM is off.",
		Now:         "switch ASPM off on that link: echo 0 > /sys/bus/pci/devices/BDF/link/l1_aspm (and l0s_aspm), and see whether the errors stop.",
		ForGood:     "if they do, boot with pcie_aspm=off or set it in firmware; if not, suspect the signal.",
		find: func(v *view) []Finding {
			var out []Finding
			for _, g := range v.correctedGroups() {
				if !v.isASPMSuspect(g) {
					continue
				}
				f := Finding{Component: g.link.component(), Also: g.link.others(), Affects: v.affectedBy(g.link)}
				for _, d := range g.link.allEnds() {
					if a, ok := aspm(d); ok {
						f.Evidence = append(f.Evidence, fmt.Sprintf("%s LnkCtl: ASPM %s", d.BDF, a))
					}
				}
				f.Evidence = append(f.Evidence, "corrected errors of the link: "+bitsOf(g))
				out = append(out, f)
			}
			return out
		},
	},
	{
		Code: "mps-mismatch", Severity: Fault, Needs: []Fact{Payloads},
		When:        "a device may send packets larger than a port on its path accepts, or the kernel says that it cannot set a common size",
		Unless:      "all MaxPayload on the path are equal; a lower value below a higher port limit; virtual hardware",
		Explanation: "The end that is set smaller refuses a larger packet as malformed, which is a fatal error: the first large write takes the link down.",
		Now:         "stop using the device.",
		ForGood:     "boot with pci=pcie_bus_safe, which lowers the whole path to what every device can take; a firmware update may do it too.",
		find: func(v *view) []Finding {
			return append(v.payloadRegisters(), v.payloadLines()...)
		},
	},
	{
		Code: "fabric-congestion", Severity: Warning, Needs: []Fact{KernelLog, Tree, Links},
		When:        "Replay Timer Timeout alone on two links or more below one switch in the same minutes, all at full speed and width",
		Unless:      "one link only; receiver errors, bad TLPs or bad DLLPs beside it",
		Explanation: "Crossed posted writes fill the switch, acknowledgements come late, and links send again. No part is bad: do not drain the devices.",
		Now:         "nothing to the hardware. Let each GPU write to one neighbour at a time (a ring), or stage through the host.",
		ForGood:     "spread the traffic over more uplinks; raise the replay timer or enable the switch's own congestion setting if its firmware has one.",
		find:        func(v *view) []Finding { return v.congestion() },
	},
}

// aspm is the ASPM setting of an end of a link.
func aspm(d *machine.Device) (pcie.ASPM, bool) {
	if x := d.Registers.Express; x != nil && x.LnkCtl != nil {
		return x.LnkCtl.ASPM, true
	}
	return 0, false
}

// isASPMSuspect reports whether a link with errors of its own saves power.
func (v *view) isASPMSuspect(g *errorGroup) bool {
	if g.correctedBits().Link() == 0 {
		return false
	}
	for _, d := range g.link.allEnds() {
		if a, _ := aspm(d); a != 0 {
			return true
		}
	}
	return false
}

// payload is the MaxPayload that a device is set to.
func payload(d *machine.Device) (int, bool) {
	if x := d.Registers.Express; x != nil && x.DevCtl != nil && x.DevCtl.MaxPayload > 0 {
		return x.DevCtl.MaxPayload, true
	}
	return 0, false
}

// payloadRegisters compares every device with each port on its path.
func (v *view) payloadRegisters() []Finding {
	var out []Finding
	for _, l := range v.links {
		if l.up == nil || l.down == nil || l.down.IsBridge() || v.isVirtual(l) || l.down.Unreachable() {
			continue
		}
		for _, d := range l.functions {
			size, known := payload(d)
			port := v.smallerPort(d, size)
			if !known || port == nil {
				continue
			}
			limit, _ := payload(port)
			out = append(out, Finding{
				Component: port.BDF.String() + separator + d.BDF.String(), Also: l.others(),
				Evidence: []string{
					fmt.Sprintf("%s DevCtl: MaxPayload %d bytes", d.BDF, size),
					fmt.Sprintf("%s DevCtl: MaxPayload %d bytes", port.BDF, limit),
				},
				Affects: append(v.affectedBy(l), d.BDF.String()),
			})
			break
		}
	}
	return out
}

// smallerPort is the nearest port above d that accepts less than size.
func (v *view) smallerPort(d *machine.Device, size int) *machine.Device {
	for range maxDepth {
		if d.Parent == nil || v.devices[*d.Parent] == nil {
			return nil
		}
		d = v.devices[*d.Parent]
		if limit, known := payload(d); known && limit < size {
			return d
		}
	}
	return nil
}

// payloadLines reads what the kernel says of sizes: that it cannot set one,
// that two do not fit, or that it lowered a device whose larger packet a port
// had just refused.
func (v *view) payloadLines() []Finding {
	last := map[*machine.Device]*kernlog.Entry{}
	var order []*machine.Device
	each(v, func(_ int, e *kernlog.Entry, p kernlog.Payload) {
		d := v.device(e.Device)
		if d == nil || p.Change == kernlog.PayloadSetBridge {
			return
		}
		if last[d] == nil {
			order = append(order, d)
		}
		last[d] = e
	})
	var out []Finding
	for _, d := range order {
		e := last[d]
		p := e.Event.(kernlog.Payload)
		f := Finding{Evidence: lines(e), Affects: append(v.affected(d), d.BDF.String())}
		switch p.Change {
		case kernlog.PayloadFailed, kernlog.PayloadMismatch:
			f.Component = v.linkOf(d, isPort(e)).component()
			if up := v.device(p.Upstream); up != nil {
				f.Also = append(f.Also, up.BDF.String())
			}
			if p.Change == kernlog.PayloadFailed {
				f.Explanation = fmt.Sprintf("The path uses packets of %d bytes, and the device could not be set to that.", p.Size)
			} else if p.Size < p.Above {
				f.Explanation = fmt.Sprintf("The port above sends packets of up to %d bytes, and the device accepts %d.", p.Above, p.Size)
			} else {
				f.Explanation = fmt.Sprintf("The device sends packets of up to %d bytes, and the port above accepts %d.", p.Size, p.Above)
			}
		case kernlog.PayloadSet:
			port, refused := v.refusedWrite(d, p.Size)
			if refused == nil {
				continue
			}
			f.Component = port.BDF.String() + separator + d.BDF.String()
			f.Evidence = append(lines(refused), f.Evidence...)
			f.Explanation = fmt.Sprintf("The port refused a larger write of the device as malformed; the kernel then set %d bytes (it was %d).", p.Size, p.Was)
		}
		out = append(out, f)
	}
	return out
}

// refusedWrite finds a Malformed TLP whose header is a write of d of more than
// size bytes.
func (v *view) refusedWrite(d *machine.Device, size int) (*machine.Device, *kernlog.Entry) {
	for _, g := range v.records {
		for _, r := range g.uncorrected {
			if pcie.UncorrectableErrors(r.event.Status)&pcie.MalformedTLP == 0 || !isWrite(r.event.TLP) {
				continue
			}
			_, length, ok := memoryRequest(r.event.TLP)
			from := pcie.BDFFromID(r.device.BDF.Domain, uint16(r.event.TLP[1]>>16))
			if ok && length > size && from.SameDevice(d.BDF) {
				return r.device, r.entry
			}
		}
	}
	return nil, nil
}

// together is how close errors of several links are to be one congestion.
const together = 2 * kernlog.Minute

// congestion finds switches below which several links report nothing but late
// acknowledgements at the same time.
func (v *view) congestion() []Finding {
	var out []Finding
	for _, s := range v.congested() {
		f := Finding{Component: s.uplink.component()}
		for _, g := range s.groups {
			f.Also = append(f.Also, g.link.component())
			f.Affects = append(f.Affects, v.affectedBy(g.link)...)
			f.Evidence = append(f.Evidence, fmt.Sprintf("%s: %s only", g.link.component(), bitsOf(g)))
		}
		for _, g := range s.groups {
			f.Evidence = append(f.Evidence, lines(g.corrected[0].entry)...)
		}
		out = append(out, f)
	}
	return out
}

type congestedSwitch struct {
	uplink *link
	groups []*errorGroup
}

func (v *view) congested() []congestedSwitch {
	if v.jamsKnown {
		return v.jams
	}
	v.jamsKnown = true
	var order []*link
	late := map[*link][]*errorGroup{} // by uplink
	for _, g := range v.records {
		uplink := v.lateBelow(g)
		if uplink == nil {
			continue
		}
		if late[uplink] == nil {
			order = append(order, uplink)
		}
		late[uplink] = append(late[uplink], g)
	}
	for _, uplink := range order {
		var groups []*errorGroup
		for _, g := range late[uplink] {
			if slices.ContainsFunc(late[uplink], func(other *errorGroup) bool { return other != g && meet(other, g) }) {
				groups = append(groups, g)
			}
		}
		if len(groups) > 0 {
			v.jams = append(v.jams, congestedSwitch{uplink, groups})
		}
	}
	return v.jams
}

// lateBelow returns the uplink of the switch above a link that is fast and wide
// and has nothing but late acknowledgements, nil for any other link.
func (v *view) lateBelow(g *errorGroup) *link {
	bits := g.correctedBits()
	late := bits&pcie.ReplayTimeout != 0 && bits&(pcie.ReceiverError|pcie.BadTLP|pcie.BadDLLP) == 0
	if len(g.corrected) == 0 || !late || g.link.up == nil || g.link.up.Parent == nil {
		return nil
	}
	switch v.judge(g.link).kind {
	case degraded, capped:
		return nil
	}
	chip := v.devices[*g.link.up.Parent]
	if chip == nil || !chip.IsBridge() {
		return nil
	}
	return v.linkOf(chip, false)
}

// meet reports whether both links had errors in the same minutes.
func meet(a, b *errorGroup) bool {
	j := 0
	for _, r := range a.corrected {
		for j < len(b.corrected) {
			if near(r.entry, b.corrected[j].entry, together, together) {
				return true
			}
			gap, known := b.corrected[j].entry.Time.Since(r.entry.Time)
			if known && gap > 0 {
				break
			}
			j++
		}
	}
	return false
}

// congestedUplink is the uplink of the congested switch above a link.
func (v *view) congestedUplink(l *link) *link {
	for _, s := range v.congested() {
		for _, g := range s.groups {
			if g.link == l {
				return s.uplink
			}
		}
	}
	return nil
}
