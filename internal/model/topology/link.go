package topology

import (
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// newLink describes the link between a port (nil if not seen) and what is
// below it. gpu tells whether power saving may explain a low speed.
func newLink(upper, lower *machine.Device, gpu bool) *Link {
	l := &Link{Upper: upper, Lower: lower}
	if lower.Unreachable() {
		l.Note = "the device does not answer"
		return l
	}
	if upper != nil && upper.Emulated() != "" {
		l.Emulated = true
		l.Note = "emulated port: its link values prove nothing"
		// The capability of a card that is passed through is its own.
		if most, ok := lower.Max(); ok && most.Known() && gpu {
			l.Capable, l.Effective = most, most
			l.Note = "emulated port: this is what the card can do, not how the link runs"
		}
		return l
	}
	if tunnelled(upper) || tunnelled(lower) {
		l.Note = "Thunderbolt: the tunnel does not report its speed"
		return l
	}
	l.Negotiated = negotiated(upper, lower)
	l.Capable = capable(upper, lower)
	l.Effective = l.Negotiated
	switch {
	case !l.Negotiated.Known():
		l.Effective = l.Capable
	case gpu && l.Negotiated.Slower(l.Capable):
		limit := l.Capable.Speed
		if t := target(upper); t.Known() && t >= l.Negotiated.Speed && t < limit {
			limit = t
			l.Note = "held down to " + t.String() + " by the port's Target Link Speed"
		}
		l.Idle = limit > l.Negotiated.Speed
		l.Effective.Speed = limit
	}
	return l
}

func tunnelled(d *machine.Device) bool {
	return d != nil && strings.Contains(d.Model.Name, "Thunderbolt")
}

func negotiated(upper, lower *machine.Device) pcie.Link {
	for _, d := range []*machine.Device{lower, upper} {
		if d == nil || d.Unreachable() {
			continue
		}
		if l, ok := d.Current(); ok && l.Known() {
			return l
		}
	}
	return pcie.Link{}
}

// capable is what both ends can do; what only one input says of the link as a
// whole (NCCL, nvidia-smi) fills in where an end was not seen.
func capable(upper, lower *machine.Device) pcie.Link {
	var out pcie.Link
	ends := 0
	for _, d := range []*machine.Device{lower, upper} {
		if d == nil || d.Unreachable() {
			continue
		}
		if l, ok := d.Max(); ok && l.Known() {
			out = out.Min(l)
			ends++
		}
	}
	if ends == 2 {
		return out
	}
	if g := lower.GPU; g != nil && g.Link != nil && g.Link.Max.Known() {
		out = out.Min(g.Link.Max)
	}
	if n := lower.NCCLLink; n != nil && n.Known() {
		out = out.Min(*n)
	}
	return out
}

// target is the speed above which the port will not take the link.
func target(upper *machine.Device) pcie.Speed {
	if upper == nil || upper.Registers.Express == nil || upper.Registers.Express.LnkCtl2 == nil {
		return 0
	}
	return upper.Registers.Express.LnkCtl2.Target
}
