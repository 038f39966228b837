package probe

import (
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// take stores v if it was seen, over an older value only when v is at least
// as good.
func take[T any](have **T, v *T, stronger bool) {
	if v != nil && (*have == nil || stronger) {
		*have = v
	}
}

// addRegisters merges what one input saw of a function's registers into the
// device. Links that both tell and that differ are a problem: either the link
// was trained again between the two, or they are of different machines.
func (b *builder) addRegisters(d *machine.Device, line int, r *pcie.Registers, from rank) {
	by := &b.by(d).registers
	stronger := from >= *by
	have := &d.Registers
	b.compareLinks(d, line, have.Express, r.Express)

	have.AllOnes = have.AllOnes || r.AllOnes
	if r.Readable > have.Readable {
		have.Readable = r.Readable
	}
	if len(r.Capabilities) > 0 {
		if len(have.Capabilities) < len(r.Capabilities) {
			have.Capabilities = r.Capabilities
		}
		have.CapabilitiesDenied = false
	} else if r.CapabilitiesDenied && len(have.Capabilities) == 0 {
		have.CapabilitiesDenied = true
	}
	if len(r.BARs) > 0 && (have.BARs == nil || stronger) {
		have.BARs = r.BARs
	}
	if len(r.ReBAR) > 0 && (have.ReBAR == nil || stronger) {
		have.ReBAR = r.ReBAR
	}
	if r.Serial != "" {
		have.Serial = r.Serial
	}
	take(&have.ID, r.ID, stronger)
	take(&have.Control, r.Control, stronger)
	take(&have.HeaderType, r.HeaderType, stronger)
	take(&have.Bridge, r.Bridge, stronger)
	take(&have.Power, r.Power, stronger)
	take(&have.AER, r.AER, stronger)
	take(&have.ACS, r.ACS, stronger)
	take(&have.DPC, r.DPC, stronger)
	take(&have.ARI, r.ARI, stronger)
	take(&have.L1SS, r.L1SS, stronger)
	take(&have.SRIOV, r.SRIOV, stronger)
	have.Express = mergeExpress(have.Express, r.Express, stronger)
	if stronger {
		*by = from
	}
}

func mergeExpress(have, x *pcie.Express, stronger bool) *pcie.Express {
	if have == nil || x == nil {
		if have == nil {
			return x
		}
		return have
	}
	if x.Version != 0 && (stronger || have.Version == 0) {
		have.Version = x.Version
	}
	if x.Port != pcie.PortUnknown && (stronger || have.Port == pcie.PortUnknown) {
		have.Port, have.SlotImplemented = x.Port, x.SlotImplemented
	}
	take(&have.DevCap, x.DevCap, stronger)
	take(&have.DevCtl, x.DevCtl, stronger)
	take(&have.DevSta, x.DevSta, stronger)
	take(&have.LnkCap, x.LnkCap, stronger)
	take(&have.LnkCtl, x.LnkCtl, stronger)
	take(&have.LnkSta, x.LnkSta, stronger)
	take(&have.Slot, x.Slot, stronger)
	take(&have.DevCap2, x.DevCap2, stronger)
	take(&have.DevCtl2, x.DevCtl2, stronger)
	take(&have.LnkCap2, x.LnkCap2, stronger)
	take(&have.LnkCtl2, x.LnkCtl2, stronger)
	take(&have.LnkSta2, x.LnkSta2, stronger)
	return have
}

func (b *builder) compareLinks(d *machine.Device, line int, have, x *pcie.Express) {
	if have == nil || x == nil {
		return
	}
	if have.LnkCap != nil && x.LnkCap != nil && have.LnkCap.Link != x.LnkCap.Link {
		b.problem(line, machine.Contradiction, "%v: the link can do %v here and %v elsewhere",
			d.BDF, x.LnkCap.Link, have.LnkCap.Link)
	}
	if have.LnkSta != nil && x.LnkSta != nil && have.LnkSta.Link != x.LnkSta.Link {
		b.problem(line, machine.Contradiction, "%v: the link runs at %v here and at %v elsewhere (it may have changed in between)",
			d.BDF, x.LnkSta.Link, have.LnkSta.Link)
	}
}
