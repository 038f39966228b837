package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
	"ringlane/internal/model/topology"
)

var blindRules = []Rule{
	{
		Code: "aer-firmware-owned", Severity: Blind,
		When:        "firmware owns AER on a host bridge (_OSC): an empty kernel log proves nothing",
		Explanation: "Firmware keeps PCIe errors from the kernel there, so that none in this log does not mean that there were none.",
		Now:         "read the error log of the BMC (ipmitool sel list), and look for \"Hardware Error\" (APEI) and BERT lines in the kernel log.",
		ForGood:     "give AER to the kernel: \"OS native AER\" (or disable \"firmware first\") in firmware.",
		find:        func(v *view) []Finding { return v.firmwareOwned() },
	},
	{
		Code: "log-rate-limited", Severity: Blind,
		When:        "the kernel dropped lines: counts from text are too low",
		Explanation: "Errors counted from this log are a lower bound.",
		Now:         "read the counters: grep . /sys/bus/pci/devices/*/aer_dev_* (ringlane capture takes them).",
		find: func(v *view) []Finding {
			var entries []*kernlog.Entry
			f := Finding{Component: Host}
			each(v, func(_ int, e *kernlog.Entry, l kernlog.LinesLost) {
				if l.Scope == kernlog.LostOther {
					return
				}
				entries = append(entries, e)
				if d := v.device(e.Device); d != nil {
					f.Also = append(f.Also, d.BDF.String())
				}
			})
			if len(entries) == 0 {
				return nil
			}
			f.Evidence = lines(entries...)
			return []Finding{f}
		},
	},
	{
		Code: "unprivileged-capture", Severity: Blind,
		When:        "lspci was run without root, or config space beyond 64 bytes was not readable: ACS and AER are unknown, not off",
		Explanation: "Access control, error registers and link settings are in the part that only root may read.",
		Now:         "take it again as root: sudo ringlane capture, or sudo lspci -vvv.",
		find:        func(v *view) []Finding { return v.unprivileged() },
	},
	{
		Code: "not-measured", Severity: Blind,
		When:        "a verdict needs a measurement or a file that the input lacks",
		Explanation: "What was not seen is unknown, not healthy.",
		Now:         "ringlane capture on the machine takes all of it in one file.",
		find:        func(v *view) []Finding { return v.notMeasured() },
	},
}

// firmwareOwned lists the host bridges where the kernel did not get AER.
func (v *view) firmwareOwned() []Finding {
	refused := map[string]*kernlog.Entry{}
	var order []string
	buses := map[string]string{}
	each(v, func(_ int, e *kernlog.Entry, o kernlog.OSC) {
		if o.Bus != "" {
			buses[o.Bridge] = o.Bus
		}
		switch {
		case o.Verb == kernlog.OSCRefused && o.Has("AER"), o.Verb == kernlog.OSCNotRequested, o.Verb == kernlog.OSCFailed:
			if !slices.Contains(order, o.Bridge) {
				order = append(order, o.Bridge)
			}
			refused[o.Bridge] = e
		case o.Verb == kernlog.OSCControls && o.Has("AER"):
			delete(refused, o.Bridge)
		}
	})
	f := Finding{Component: Host}
	var entries []*kernlog.Entry
	for _, bridge := range order {
		e := refused[bridge]
		if e == nil {
			continue
		}
		entries = append(entries, e)
		name := bridge
		if b, err := pcie.ParseBDF(buses[bridge] + ":00.0"); buses[bridge] != "" && err == nil {
			name = b.String()
		}
		f.Also = append(f.Also, name)
	}
	if len(entries) == 0 {
		return nil
	}
	f.Evidence = lines(entries...)
	return []Finding{f}
}

func (v *view) unprivileged() []Finding {
	f := Finding{Component: Host}
	denied, seen := 0, 0
	for _, d := range v.m.Devices {
		r := &d.Registers
		if d.Unreachable() {
			continue
		}
		switch {
		case r.CapabilitiesDenied && r.Express == nil, r.Readable > 0 && r.Readable <= 64:
			denied++
			f.Also = append(f.Also, d.BDF.String())
		case r.Express != nil:
			seen++
		}
	}
	if denied == 0 || seen > denied {
		return nil
	}
	f.Evidence = []string{fmt.Sprintf("capabilities of %d devices were not readable", denied)}
	return []Finding{f}
}

// Fact is something that rules need to have seen.
type Fact struct {
	Name string
	How  string // to see it

	applies func(*view) bool // does it matter on this machine?
	seen    func(*view) bool
}

func always(*view) bool { return true }

func manyGPUs(v *view) bool { return len(v.graph.GPUs) > 1 }

func anyDevice(f func(*machine.Device) bool) func(*view) bool {
	return func(v *view) bool { return slices.ContainsFunc(v.m.Devices, f) }
}

func notVirtual(v *view) bool { return !v.m.Virtual.Likely() }

// The facts.
var (
	Devices = Fact{"the list of devices", "lspci -nn", always,
		func(v *view) bool { return len(v.m.Devices) > 0 }}
	Links = Fact{"speed and width of links", "sudo lspci -vvv", notVirtual,
		anyDevice(func(d *machine.Device) bool {
			_, current := d.Current()
			_, most := d.Max()
			return current && most
		})}
	Registers = Fact{"registers of the devices", "sudo lspci -vvv", always,
		anyDevice(func(d *machine.Device) bool {
			return d.Registers.Express != nil || d.Registers.Readable > 0 || d.Registers.AllOnes || d.Lost || d.Registers.Control != nil
		})}
	ErrorRegisters = Fact{"error status registers", "sudo lspci -vvv", notVirtual,
		anyDevice(func(d *machine.Device) bool {
			return d.Registers.AER != nil || d.Registers.Express != nil && d.Registers.Express.DevSta != nil
		})}
	ACS = Fact{"ACS of the ports between GPUs and RDMA NICs", "sudo lspci -vvv", func(v *view) bool { return len(v.peerPaths()) > 0 },
		func(v *view) bool {
			for _, p := range v.peerPaths() {
				if len(p.Unread) > 0 {
					return false
				}
			}
			return slices.ContainsFunc(v.m.Devices, func(d *machine.Device) bool { return d.IsBridge() && len(d.Registers.Capabilities) > 0 })
		}}
	Payloads = Fact{"MaxPayload of the devices", "sudo lspci -vvv", notVirtual,
		func(v *view) bool {
			said := false
			each(v, func(int, *kernlog.Entry, kernlog.Payload) { said = true })
			return said || slices.ContainsFunc(v.m.Devices, func(d *machine.Device) bool { _, ok := payload(d); return ok })
		}}
	BARs = Fact{"addresses of the BARs", "lspci -v or the kernel log of the boot", always,
		func(v *view) bool {
			return len(v.bars) > 0 || slices.ContainsFunc(v.m.Devices, func(d *machine.Device) bool { return len(d.Resources) > 0 })
		}}
	KernelLog = Fact{"the kernel log", "sudo dmesg or journalctl -k", always,
		func(v *view) bool { return len(v.log) > 0 || v.m.Saw(machine.KindKernelLog) }}
	Tree = Fact{"which bridge each GPU is behind", "lspci -t or lspci -vvv of all devices", manyGPUs,
		func(v *view) bool {
			return !slices.ContainsFunc(v.graph.GPUs, func(n *topology.Node) bool { return n.Unplaced })
		}}
	IOMMU = Fact{"the state of the IOMMU", "the kernel log of the boot or /proc/cmdline", manyGPUs,
		(*view).iommuKnown}
	Peers = Fact{"peer access between the GPUs", "nvidia-smi topo -p2p r", manyGPUs,
		func(v *view) bool {
			for _, p := range v.graph.Paths() {
				if p.Peer.Verdict != topology.PeerYes && p.Peer.Verdict != topology.PeerNo {
					return false
				}
			}
			return true
		}}
	NUMA = Fact{"the NUMA nodes of the GPUs", "lspci -vvv or nvidia-smi topo -m", manyGPUs,
		func(v *view) bool {
			return v.nodes() > 0 || slices.ContainsFunc(v.graph.GPUs, func(n *topology.Node) bool { return n.Node != nil }) || v.m.Matrix != nil
		}}
)

var facts = []*Fact{&Devices, &Links, &Registers, &ErrorRegisters, &ACS, &Payloads, &BARs, &KernelLog, &Tree, &IOMMU, &Peers, &NUMA}

// notMeasured says what could not be judged for want of input, and which links
// were seen at rest only. It is one finding: one capture mends it all.
func (v *view) notMeasured() []Finding {
	f := Finding{Component: Host}
	var ways []string
	missing := map[string][]Fact{} // by how to see them
	for _, fact := range facts {
		if !fact.applies(v) || fact.seen(v) {
			continue
		}
		if missing[fact.How] == nil {
			ways = append(ways, fact.How)
		}
		missing[fact.How] = append(missing[fact.How], *fact)
	}
	var lacks []string
	for _, how := range ways {
		var names, codes []string
		for _, fact := range missing[how] {
			names = append(names, fact.Name)
		}
		lacks = append(lacks, names...)
		for _, r := range v.rules {
			if slices.ContainsFunc(r.Needs, func(n Fact) bool { return slices.Contains(names, n.Name) }) {
				codes = append(codes, string(r.Code))
			}
		}
		f.Evidence = append(f.Evidence, fmt.Sprintf("%s: not in the input (%s shows it); no verdict on %s",
			strings.Join(names, ", "), how, strings.Join(codes, ", ")))
	}
	var resting, half []string
	for _, l := range v.links {
		r := v.judge(l)
		switch r.kind {
		case idle:
			resting = append(resting, l.component())
		case unjudged:
			f.Evidence = append(f.Evidence, fmt.Sprintf("%s: runs at %s of %s, and what the port above can do is not in the input", l.component(), r.current, r.possible))
			half = append(half, l.component())
		}
	}
	f.Also = append(f.Also, half...)
	if len(resting) > 0 {
		f.Evidence = append(f.Evidence, "links seen at rest only, unknown under load: "+few(resting))
		f.Also = append(f.Also, resting...)
	}
	if len(f.Evidence) == 0 {
		return nil
	}
	for _, part := range []struct {
		what  string
		names string
	}{
		{"Not in the input: ", strings.Join(lacks, ", ")},
		{"One end not in the input: ", few(half)},
		{"Seen at rest only: ", few(resting)},
	} {
		if part.names != "" {
			f.Explanation += part.what + part.names + ". "
		}
	}
	f.Explanation = strings.TrimSpace(f.Explanation)
	return []Finding{f}
}
