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

var peerRules = []Rule{
	{
		Code: "uplink-shared", Severity: Notice, Needs: []Fact{Tree},
		When:        "two GPUs or more, or a GPU and a NIC or NVMe drive, share one uplink; with nested switches, at every level where it is true",
		Explanation: "What leaves the switch at once has to fit through this link. Neighbours on a ring should sit below the same switch.",
		Now:         "nothing: ringlane run orders the ranks so (ringlane topo shows the ring).",
		find:        func(v *view) []Finding { return v.sharedUplinks() },
	},
	{
		Code: "acs-redirect", Severity: Fault, Needs: []Fact{Tree, ACS},
		When:        "ReqRedir or CmpltRedir is on at a port that lies on a path between two GPUs, or between a GPU and an RDMA NIC",
		Unless:      "only SrcValid or UpstreamFwd is on; the port is on no such path",
		Explanation: "Peer-to-peer packets are sent up to the IOMMU and back instead of straight to the peer: they lose most of their bandwidth, and NCCL often hangs on it.",
		Now:         clearACS("PORT"),
		ForGood:     "disable ACS (or virtualization of I/O) in firmware, or run this at boot. Do not if the machine isolates virtual machines by IOMMU groups.",
		find:        func(v *view) []Finding { return v.redirects() },
	},
	{
		Code: "iommu-translated", Severity: Warning, Needs: []Fact{IOMMU},
		When:        "the IOMMU translates device DMA (not passthrough, not off) on a machine with two GPUs or more",
		Unless:      "one GPU only; an IOMMU that only remaps interrupts",
		Explanation: "Every peer-to-peer packet goes up to the IOMMU for translation, which costs bandwidth and breaks peer access on some platforms.",
		Now:         "nothing until a reboot is possible.",
		ForGood:     "add iommu=pt to the kernel command line (with intel_iommu=on or amd_iommu=on if virtual machines are used), or switch the IOMMU off in firmware.",
		find:        func(v *view) []Finding { return v.translated() },
	},
	{
		Code: "iommu-page-fault", Severity: Fault, Needs: []Fact{KernelLog},
		When:        "the log holds IOMMU faults of a GPU, or of a device on its path",
		Explanation: "The IOMMU refused DMA of the device: the data did not arrive. With GPUs this is mostly peer access that the platform does not allow, or a driver bug.",
		Now:         "boot with iommu=pt (or iommu=off) and see whether it stays away; until then disable peer access (NCCL_P2P_DISABLE=1).",
		ForGood:     "keep iommu=pt, and update driver and firmware.",
		find:        func(v *view) []Finding { return v.pageFaults() },
	},
	{
		Code: "p2p-unavailable", Severity: Warning, Needs: []Fact{Peers},
		When:        "the driver or the hardware refuses peer access between a pair of GPUs",
		Explanation: "The pair cannot write into each other's memory: Ringlane stages its traffic through pinned host memory, at less than half the bandwidth.",
		Now:         "nothing: it is chosen by itself.",
		ForGood:     "if the cards can do it and the driver refuses the topology, move them below one switch, or clear ACS and the IOMMU; most GeForce RTX cards do not do it at all.",
		find:        func(v *view) []Finding { return v.refusedPeers() },
	},
	{
		Code: "socket-crossing", Severity: Notice, Needs: []Fact{NUMA},
		When:        "the path of a pair of GPUs crosses the CPU interconnect",
		Explanation: "The interconnect is slower than the links and shared with everything else. A ring has to cross it twice, no more.",
		Now:         "nothing: ringlane run uses the order in the evidence.",
		find:        func(v *view) []Finding { return v.crossings() },
	},
	{
		Code: "numa-unknown", Severity: Notice, Needs: []Fact{NUMA},
		When:        "the machine has several NUMA nodes, and a GPU's node is unknown",
		Unless:      "a machine of one node; a virtual machine",
		Explanation: "Ranks cannot be bound to the memory near their GPU, and the ring may cross sockets more often than it must.",
		Now:         "nothing.",
		ForGood:     "update the firmware: it should tell the node of every host bridge (_PXM). Until then bind ranks by hand (numactl).",
		find:        func(v *view) []Finding { return v.unknownNodes() },
	},
}

// clearACS clears the two redirect bits of every port, and no other.
func clearACS(ports ...string) string {
	var commands []string
	for _, p := range ports {
		commands = append(commands, fmt.Sprintf("setpci -s %s ECAP_ACS+6.w=0:%x", p, uint16(pcie.ACSRedirect)))
	}
	return "switch it off, until the next boot: " + strings.Join(commands, "; ")
}

// peerPaths are the paths between two GPUs, and between a GPU and an RDMA NIC.
func (v *view) peerPaths() []topology.Path {
	paths := v.graph.Paths()
	for _, nic := range v.graph.Root.Endpoints() {
		if nic.Kind != topology.NIC || nic.Device == nil || !nic.Device.IsRDMA() {
			continue
		}
		for _, gpu := range v.graph.GPUs {
			paths = append(paths, v.graph.Path(gpu, nic))
		}
	}
	return paths
}

func (v *view) sharedUplinks() []Finding {
	var out []Finding
	for _, u := range v.graph.SharedUplinks() {
		f := Finding{Component: u.Component()}
		var gpus, others []string
		for _, n := range u.GPUs {
			gpus = append(gpus, n.ID)
		}
		for _, n := range u.Others {
			others = append(others, n.ID)
		}
		f.Affects = slices.Concat(gpus, others)
		text := fmt.Sprintf("%s carries %s", f.Component, strings.Join(gpus, ", "))
		if len(others) > 0 {
			text += " and " + strings.Join(others, ", ")
		}
		f.Evidence = []string{text}
		if over := u.Oversubscription(); over > 0 {
			f.Explanation = fmt.Sprintf("%.1f GB/s each way for devices that can use %.1f: oversubscribed %.1f times.", u.GBs(), u.Demand, over)
		}
		if u.Inside != nil {
			f.Explanation = strings.TrimSpace(f.Explanation + " It lies inside " + u.Inside.Component() + ".")
		}
		out = append(out, f)
	}
	return out
}

// redirects is one finding for all ports: whoever clears one clears them all.
func (v *view) redirects() []Finding {
	if v.m.Virtual.Likely() {
		return nil
	}
	var ports []*machine.Device
	pairs := map[*machine.Device][]string{}
	var f Finding
	for _, p := range v.peerPaths() {
		for _, port := range p.Redirects {
			if isEmulated(port) {
				continue
			}
			if pairs[port] == nil {
				ports = append(ports, port)
			}
			pairs[port] = append(pairs[port], p.A.ID+separator+p.B.ID)
			f.Affects = append(f.Affects, p.A.ID, p.B.ID)
		}
	}
	if len(ports) == 0 {
		return nil
	}
	slices.SortFunc(ports, func(a, b *machine.Device) int { return a.BDF.Compare(b.BDF) })
	f.Component = ports[0].BDF.String()
	var all []string
	for _, port := range ports {
		f.Also = append(f.Also, port.BDF.String())
		f.Evidence = append(f.Evidence, fmt.Sprintf("%s ACSCtl: %s+; on the path of %s",
			port.BDF, strings.Join(port.Registers.ACS.Enabled.Names(), "+ "), few(pairs[port])))
		all = append(all, port.BDF.String())
	}
	f.now = clearACS(all...)
	return []Finding{f}
}

// few lists some of many.
func few(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}

// translated judges the IOMMU by the domains of the GPUs, else by the log and
// the command line. The kernel prints its default domain type with the IOMMU
// off or absent too, so that line alone proves nothing.
func (v *view) translated() []Finding {
	gpus := v.m.GPUs()
	if len(gpus) < 2 {
		return nil
	}
	f := Finding{Component: Host}
	for _, g := range gpus {
		f.Affects = append(f.Affects, g.BDF.String())
	}
	told := false
	for _, g := range gpus {
		if g.IOMMUDomain != "" {
			told = true
		}
		if strings.HasPrefix(g.IOMMUDomain, "DMA") {
			f.Evidence = append(f.Evidence, fmt.Sprintf("%s is in an IOMMU domain of type %s", g.BDF, g.IOMMUDomain))
		}
	}
	if told {
		if len(f.Evidence) == 0 {
			return nil
		}
		return []Finding{f}
	}
	if f.Evidence = v.translatedByLog(); len(f.Evidence) == 0 {
		return nil
	}
	return []Finding{f}
}

func (v *view) translatedByLog() []string {
	options := strings.Fields(v.commandLine())
	if slices.ContainsFunc(options, asksNotToTranslate) {
		return nil
	}
	asked, by := slices.ContainsFunc(options, asksToTranslate), "kernel command line: "+v.commandLine()
	if n := v.m.NCCL; n != nil && n.NoPassthrough != "" && !asked {
		asked, by = true, n.NoPassthrough
	}
	var mode, unit, group *kernlog.Entry
	translated := false
	for i := range v.log {
		e := &v.log[i]
		switch event := e.Event.(type) {
		case kernlog.IOMMUMode:
			mode, translated = e, event.Translated
		case kernlog.IOMMUUnit:
			if event.Enabled {
				unit = e
			}
		case kernlog.IOMMUGroup:
			if !event.Left {
				group = e
			}
		}
	}
	switch {
	case mode != nil && !translated:
		return nil
	case unit == nil && group == nil:
		if !asked || v.hasNoIOMMU() {
			return nil
		}
		return []string{by}
	case mode == nil && !asked:
		// A group exists under passthrough too. Without the mode (an older
		// kernel, a filtered log) only the command line tells.
		return nil
	}
	var out []string
	for _, e := range []*kernlog.Entry{mode, unit, group} {
		if e != nil {
			out = append(out, e.Raw...)
		}
	}
	return out
}

// hasNoIOMMU reports whether the machine was looked at and runs no such unit:
// by sysfs, or by the log of a whole boot, which names each one.
func (v *view) hasNoIOMMU() bool {
	none := v.m.IOMMU.UnitsSeen && len(v.m.IOMMU.Units) == 0
	each(v, func(int, *kernlog.Entry, kernlog.CommandLine) { none = true })
	each(v, func(int, *kernlog.Entry, kernlog.IOMMUUnit) { none = false })
	each(v, func(int, *kernlog.Entry, kernlog.IOMMUGroup) { none = false })
	return none
}

// iommuKnown reports whether the input tells if the IOMMU translates.
func (v *view) iommuKnown() bool {
	options := strings.Fields(v.commandLine())
	if slices.ContainsFunc(options, asksNotToTranslate) || len(v.translatedByLog()) > 0 || v.hasNoIOMMU() {
		return true
	}
	if slices.ContainsFunc(v.m.GPUs(), func(d *machine.Device) bool { return d.IOMMUDomain != "" }) {
		return true
	}
	mode := false
	each(v, func(int, *kernlog.Entry, kernlog.IOMMUMode) { mode = true })
	return mode
}

func asksNotToTranslate(option string) bool {
	return slices.Contains([]string{"iommu=off", "iommu=pt", "iommu.passthrough=1", "iommu=soft", "amd_iommu=off", "intel_iommu=off", "iommu=noaperture"}, option)
}

func asksToTranslate(option string) bool {
	for _, o := range []string{"intel_iommu=on", "amd_iommu=on", "amd_iommu=force_enable", "iommu=force", "iommu=nopt", "iommu.passthrough=0"} {
		if option == o || strings.HasPrefix(option, o+",") {
			return true
		}
	}
	return false
}

// commandLine is the kernel's, from the document or the last boot in the log.
func (v *view) commandLine() string {
	line := v.m.CommandLine
	if line == "" {
		each(v, func(_ int, _ *kernlog.Entry, c kernlog.CommandLine) { line = c.Text })
	}
	return line
}

func (v *view) pageFaults() []Finding {
	var order []*machine.Device
	entries := map[*machine.Device][]*kernlog.Entry{}
	gpus := v.gpusByLog()
	each(v, func(_ int, e *kernlog.Entry, _ kernlog.IOMMUFault) {
		d := v.device(e.Device)
		if d == nil || !v.onGPUPath(d) && !gpus[functionZero(d.BDF)] {
			return
		}
		if entries[d] == nil {
			order = append(order, d)
		}
		entries[d] = append(entries[d], e)
	})
	var out []Finding
	for _, d := range order {
		f := Finding{Component: d.BDF.String(), Evidence: lines(entries[d]...), Affects: append(v.affected(d), d.BDF.String())}
		if n := len(entries[d]); n > 1 {
			f.Explanation = fmt.Sprintf("%d faults.", n)
		}
		out = append(out, f)
	}
	return out
}

// onGPUPath reports whether d is a GPU, another function of its card, or a
// bridge above one.
func (v *view) onGPUPath(d *machine.Device) bool {
	for _, g := range v.m.GPUs() {
		if g.BDF.SameDevice(d.BDF) || v.isAbove(d, g) {
			return true
		}
	}
	return false
}

// refusedPeers is one finding for all pairs that are refused for one reason.
func (v *view) refusedPeers() []Finding {
	var out []Finding
	said := map[string]int{}
	add := func(component, reason string, also ...string) {
		i, seen := said[reason]
		if !seen {
			i = len(out)
			said[reason] = i
			out = append(out, Finding{Component: component})
		}
		f := &out[i]
		f.Also = append(f.Also, also...)
		f.Affects = append(f.Affects, also...)
		if f.Evidence = append(f.Evidence, component+": "+reason); len(f.Evidence) > 8 {
			f.Evidence = append(f.Evidence[:7], "and more pairs alike")
		}
	}
	for _, p := range v.graph.Paths() {
		// Only what the driver says of the pair: what is concluded from the
		// cards alone is topo's guess.
		if p.Peer.Verdict != topology.PeerNo || !strings.HasPrefix(p.Peer.Reason, "the driver says") {
			continue
		}
		reason := p.Peer.Reason
		add(p.A.ID+separator+p.B.ID, reason, p.A.ID, p.B.ID)
	}
	if n := v.m.NCCL; n != nil && n.P2PDisabled != "" && !strings.Contains(n.P2PDisabled, "set by environment") && len(out) == 0 && len(v.graph.GPUs) > 1 {
		a, b := v.graph.GPUs[0], v.graph.GPUs[1]
		add(a.ID+separator+b.ID, "NCCL: "+n.P2PDisabled, a.ID, b.ID)
	}
	return out
}

func (v *view) crossings() []Finding {
	f := Finding{Component: Host}
	byNode := map[int][]string{}
	var nodes []int
	crossed := false
	for _, p := range v.graph.Paths() {
		crossed = crossed || p.Sockets || p.Kind == topology.SYS && !v.oneSocket(p.A, p.B)
	}
	if !crossed {
		return nil
	}
	for _, g := range v.graph.GPUs {
		f.Also = append(f.Also, g.ID)
		if g.Node == nil {
			continue
		}
		if byNode[*g.Node] == nil {
			nodes = append(nodes, *g.Node)
		}
		byNode[*g.Node] = append(byNode[*g.Node], g.ID)
	}
	slices.Sort(nodes)
	for _, n := range nodes {
		f.Evidence = append(f.Evidence, fmt.Sprintf("NUMA node %d: %s", n, strings.Join(byNode[n], ", ")))
	}
	f.Affects = f.Also
	var order []string
	for _, g := range v.graph.Ring(nil).Order {
		order = append(order, g.ID)
	}
	f.Evidence = append(f.Evidence, "ring that crosses it least: "+strings.Join(order, " → "))
	return []Finding{f}
}

// oneSocket reports whether the NUMA nodes of a and b are known to be parts of
// one CPU: nvidia-smi says SYS between any two nodes.
func (v *view) oneSocket(a, b *topology.Node) bool {
	socket := func(n *topology.Node) *int {
		for _, node := range v.m.NUMANodes {
			if n.Node != nil && node.ID == *n.Node {
				return node.Socket
			}
		}
		return nil
	}
	x, y := socket(a), socket(b)
	return x != nil && y != nil && *x == *y
}

func (v *view) unknownNodes() []Finding {
	if v.m.Virtual.Likely() || v.nodes() < 2 {
		return nil
	}
	f := Finding{Component: Host}
	for _, g := range v.graph.GPUs {
		// An input that says nothing of the node of anything is no evidence.
		if g.Node == nil && g.Device != nil && v.looked(g.Device) {
			f.Also = append(f.Also, g.ID)
			f.Evidence = append(f.Evidence, g.ID+" has no NUMA node")
		}
	}
	if len(f.Also) == 0 {
		return nil
	}
	f.Component = f.Also[0]
	f.Affects = f.Also
	return []Finding{f}
}

// nodes counts the NUMA nodes that the input names.
func (v *view) nodes() int {
	seen := map[int]bool{}
	for _, n := range v.m.NUMANodes {
		seen[n.ID] = true
	}
	for _, d := range v.m.Devices {
		if d.NUMA != nil && *d.NUMA >= 0 {
			seen[*d.NUMA] = true
		}
	}
	return len(seen)
}

// looked reports whether the input was asked for the node of the device:
// the kernel said that there is none, or registers were printed beside which
// lspci prints the node of other devices.
func (v *view) looked(d *machine.Device) bool {
	return d.NUMA != nil || d.Registers.Control != nil && (v.m.Saw(machine.KindLspci) || v.m.Saw(machine.KindSysfs))
}
