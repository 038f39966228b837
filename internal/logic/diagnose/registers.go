package diagnose

import (
	"fmt"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

var registerRules = []Rule{
	{
		Code: "registers-all-ones", Severity: Fault, Needs: []Fact{Registers},
		When:        "what was read as registers of a device is all ones: config space (rev ff, header type 7f), a link of x63, a packet header of ffffffff",
		Explanation: "The device did not answer: it is gone, without power, or asleep in D3. Whatever else was read from it means nothing.",
		Now:         "read it again (lspci -s BDF -vv). If it stays, power-cycle the machine: a warm reboot often does not bring it back.",
		ForGood:     "if it comes back by itself, it slept: keep it awake (echo on > /sys/bus/pci/devices/BDF/power/control). If not, check power, seat and the link above it.",
		Follows:     []Code{"device-lost", "surprise-down", "dpc-contained"},
		find:        func(v *view) []Finding { return v.allOnes() },
	},
	{
		Code: "virtual-hardware", Severity: Notice, Needs: []Fact{Devices},
		When:        "link values come from emulated ports (QEMU, Hyper-V, Firecracker and the like)",
		Explanation: "Speed and width of an emulated link prove nothing, so no verdict on links is given here.",
		Now:         "nothing. To judge the links, run the doctor on the host.",
		find:        func(v *view) []Finding { return v.emulated() },
	},
}

// deadCard is a card that answered with all ones.
type deadCard struct {
	device   *machine.Device
	also     []string
	evidence []string
	entries  []*kernlog.Entry
}

// allOnes collects devices that do not answer: by card, and what lies below
// another one that does not answer belongs to it.
func (v *view) allOnes() []Finding {
	var order []*deadCard
	cards := map[pcie.BDF]*deadCard{}
	card := func(d *machine.Device) *deadCard {
		key := functionZero(d.BDF)
		if cards[key] == nil {
			cards[key] = &deadCard{device: v.cardOf(d)}
			order = append(order, cards[key])
		}
		cards[key].also = append(cards[key].also, d.BDF.String())
		return cards[key]
	}
	for _, d := range v.m.Devices {
		if d.Unreachable() {
			c := card(d)
			c.evidence = append(c.evidence, d.BDF.String()+": every register reads all ones")
		}
	}
	note := func(e *kernlog.Entry, d *machine.Device) {
		if d == nil || v.removedBefore(d, e) != nil {
			return
		}
		c := card(d)
		c.entries = append(c.entries, e)
	}
	for i := range v.log {
		e := &v.log[i]
		switch event := e.Event.(type) {
		case kernlog.Bandwidth:
			if event.Capable.Width == pcie.WidthAllOnes {
				note(e, v.device(e.Device))
			} else if event.Limit.Width == pcie.WidthAllOnes {
				note(e, v.device(event.At))
			}
		case kernlog.AERError:
			if event.AllOnes() {
				note(e, v.device(e.Device))
			}
		case kernlog.LinkStatus:
			if event.Value == 0xffff {
				note(e, v.device(e.Device))
			}
		case kernlog.PowerState:
			if d := v.device(e.Device); event.Inaccessible && d != nil && !isCard(d, e) {
				note(e, d)
			}
		}
	}
	v.mergeDead(&order)
	var out []Finding
	for _, c := range order {
		f := Finding{
			Component: c.device.BDF.String(), Also: c.also, Affects: v.affected(c.device),
			Evidence: append(c.evidence, lines(c.entries...)...),
		}
		if len(c.entries) > 0 {
			f.CausedBy = v.causeOfLoss(c.device, c.entries[0])
		}
		out = append(out, f)
	}
	return out
}

// cardOf is the function that stands for the card of a dead one: the first,
// which every card has, unless that one answers.
func (v *view) cardOf(d *machine.Device) *machine.Device {
	if d.PhysicalFunction != nil {
		return d
	}
	first := v.device(kernlog.Address(functionZero(d.BDF).String()))
	if r := &first.Registers; !first.Unreachable() && (r.Control != nil || r.Express != nil || r.Readable > 0) {
		return d
	}
	return first
}

// mergeDead joins what one dead device took with it: the devices below it, and
// where no input shows the tree, those that went silent in the same minute on
// buses behind it.
func (v *view) mergeDead(order *[]*deadCard) {
	var kept []*deadCard
next:
	for _, c := range *order {
		for _, k := range kept {
			below := v.isAbove(k.device, c.device)
			if !below && len(c.evidence) == 0 && len(k.entries) > 0 && len(c.entries) > 0 && v.mayBeAbove(k.device, c.device) {
				below = near(k.entries[len(k.entries)-1], c.entries[0], kernlog.Minute, kernlog.Minute)
			}
			if below {
				k.also = append(k.also, c.also...)
				k.entries = append(k.entries, c.entries...)
				if len(k.evidence) == 0 {
					k.evidence = c.evidence
				}
				continue next
			}
		}
		kept = append(kept, c)
	}
	*order = kept
}

func (v *view) emulated() []Finding {
	var ports []*machine.Device
	for _, d := range v.m.Devices {
		if d.IsBridge() && isEmulated(d) {
			ports = append(ports, d)
		}
	}
	if len(ports) == 0 && !v.m.Virtual.Likely() {
		return nil
	}
	f := Finding{Component: Host}
	for _, p := range ports {
		f.Also = append(f.Also, p.BDF.String())
		if f.Component == Host && len(v.affected(p)) > 0 {
			f.Component = p.BDF.String()
		}
		f.Affects = append(f.Affects, v.affected(p)...)
	}
	if f.Component == Host && len(ports) > 0 {
		f.Component = ports[0].BDF.String()
	}
	if h := v.m.Virtual.Hypervisor; h != "" {
		f.Evidence = append(f.Evidence, "hypervisor: "+h)
	}
	f.Evidence = append(f.Evidence, v.m.Virtual.Hints...)
	if len(ports) > 0 {
		f.Evidence = append(f.Evidence, fmt.Sprintf("%s is an emulated port: %s", ports[0].BDF, ports[0].Name()))
	}
	return []Finding{f}
}
