package topology

import (
	"fmt"
	"slices"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// builder makes a Graph of a machine.
type builder struct {
	g     *Graph
	m     *machine.Machine
	roles roles
	ports map[pcie.BDF]*Node // the node of every bridge
	tops  []*Node            // nodes without a parent yet
	names matrixNames
	// bridges of the host by "domain:bus", NUMA nodes by number.
	hosts map[string]*Node
	numas map[int]*Node
}

// unknownNUMA is the key of the node for what has no known node.
const unknownNUMA = -1

// New draws the graph of a machine. Every machine has one, if an empty one.
func New(m *machine.Machine) *Graph {
	b := &builder{
		g:     &Graph{Machine: m, Root: &Node{Kind: Host, ID: "host", Name: Printable(m.Host)}},
		m:     m,
		roles: roles{m: m, of: map[pcie.BDF]role{}, busy: map[pcie.BDF]bool{}},
		ports: map[pcie.BDF]*Node{},
		hosts: map[string]*Node{},
		numas: map[int]*Node{},
	}
	b.addBridges()
	b.addEndpoints()
	b.addNets()
	b.foldCards()
	b.collectGPUs()
	b.names = nameByMatrix(b.g, b.m)
	if !b.placeByMatrix() {
		b.attachTops()
	}
	sortTree(b.g.Root)
	b.finish()
	return b.g
}

// addBridges makes a node of every root port, switch and bridge. A downstream
// port is a part of its switch.
func (b *builder) addBridges() {
	var bridges []*machine.Device
	for _, d := range b.m.Devices {
		if b.roles.role(d) != notBridge {
			bridges = append(bridges, d)
		}
	}
	for _, d := range bridges {
		if b.roles.role(d) == downstream && b.switchOf(d) != nil {
			continue
		}
		n := &Node{ID: d.BDF.String(), Name: deviceName(d), Device: d, Kind: Switch}
		switch b.roles.role(d) {
		case rootPort:
			n.Kind = RootPort
		case conventional:
			n.Kind = Bridge
		}
		b.ports[d.BDF] = n
	}
	for _, d := range bridges {
		if sw := b.switchOf(d); b.roles.role(d) == downstream && sw != nil {
			n := b.ports[sw.BDF]
			n.Ports = append(n.Ports, d)
			b.ports[d.BDF] = n
		}
	}
	for _, d := range bridges {
		if n := b.ports[d.BDF]; n.Device == d {
			b.hang(n, d)
		}
	}
}

// switchOf returns the upstream port of the chip of a downstream port.
func (b *builder) switchOf(d *machine.Device) *machine.Device {
	if d.Parent == nil {
		return nil
	}
	if p := b.m.Device(*d.Parent); p != nil && b.roles.role(p) == upstream {
		return p
	}
	return nil
}

// hang puts a node below that of the port above its device, with the link
// between them; one that has none above becomes a top.
func (b *builder) hang(n *Node, d *machine.Device) {
	var port *machine.Device
	if d.Parent != nil {
		port = b.m.Device(*d.Parent)
	}
	above := (*Node)(nil)
	if port != nil {
		above = b.ports[port.BDF]
	}
	if above == nil {
		n.Unplaced = !fromNCCL(d) && (d.Parent != nil || !d.ParentKnown && d.RootBus == nil)
		b.tops = append(b.tops, n)
		if n.Kind != RootPort {
			n.Up = known(newLink(nil, d, n.Kind == GPU))
		}
		return
	}
	for up := above; up != nil; up = up.Parent {
		if up == n {
			b.problem(machine.Contradiction, "%s is above and below %s (the bus numbers do not make a tree)", n.ID, above.ID)
			b.tops = append(b.tops, n)
			return
		}
	}
	above.add(n)
	switch b.roles.role(port) {
	case rootPort, downstream:
		n.Up = newLink(port, d, n.Kind == GPU)
	case upstream: // the downstream port is not in the document
		n.Up = newLink(nil, d, n.Kind == GPU)
	}
}

// known drops a link of which nothing is known.
func known(l *Link) *Link {
	if !l.Effective.Known() && l.Note == "" {
		return nil
	}
	return l
}

func (b *builder) addEndpoints() {
	for _, group := range functions(b.m) {
		d := group[0]
		n := &Node{ID: d.BDF.String(), Name: deviceName(d), Kind: kindOf(d), Device: d, Functions: group[1:]}
		var interfaces []string
		for _, f := range group {
			interfaces = append(interfaces, f.Interfaces...)
			for _, net := range nets(b.m, f.BDF) {
				interfaces = append(interfaces, net.Name)
				if n.Kind == Other {
					n.Kind = NIC
				}
			}
		}
		if len(interfaces) > 0 {
			slices.Sort(interfaces)
			interfaces = slices.Compact(interfaces)
			n.Name = strings.TrimSpace(n.Name + " " + Printable(strings.Join(interfaces, " ")))
		}
		b.hang(n, d)
	}
}

// addNets adds the network interfaces that NCCL's file hangs under a bridge
// without an address of their own.
func (b *builder) addNets() {
	if b.m.NCCL == nil {
		return
	}
	for i := range b.m.NCCL.Nodes {
		node := &b.m.NCCL.Nodes[i]
		above := b.ports[node.BDF]
		if above == nil {
			continue
		}
		for _, net := range node.Nets {
			name := Printable(net.Name)
			above.add(&Node{Kind: NIC, ID: name, Name: fmt.Sprintf("%s %d Gbit/s", name, net.Speed/1000)})
		}
	}
}

// foldCards makes a switch that sits on a GPU's own card a part of the GPU.
// The link that counts is the one of the slot.
func (b *builder) foldCards() {
	folded := map[*Node]bool{}
	for _, sw := range b.ports {
		if sw.Kind != Switch || sw.Parent == nil && !slices.Contains(b.tops, sw) {
			continue
		}
		var gpu *Node
		whole := true
		for _, c := range sw.Children {
			switch {
			case c.Kind == GPU && gpu == nil:
				gpu = c
			case !isAudio(c):
				whole = false
			}
		}
		if gpu == nil || !whole || folded[sw] || !isCard(sw, gpu) {
			continue
		}
		folded[sw] = true
		gpu.Card = append([]*machine.Device{sw.Device}, sw.Ports...)
		for _, c := range sw.Children {
			if c != gpu {
				gpu.Functions = append(append(gpu.Functions, c.Device), c.Functions...)
			}
		}
		if gpu.Up = sw.Up; sw.Up != nil {
			gpu.Up = newLink(sw.Up.Upper, sw.Up.Lower, true)
		}
		gpu.Parent, gpu.Unplaced = sw.Parent, sw.Unplaced
		siblings := b.tops
		if sw.Parent != nil {
			siblings = sw.Parent.Children
		}
		siblings[slices.Index(siblings, sw)] = gpu
	}
}

func (b *builder) collectGPUs() {
	for _, t := range b.tops {
		for _, e := range t.Endpoints() {
			if e.Kind == GPU {
				b.g.GPUs = append(b.g.GPUs, e)
			}
		}
	}
	slices.SortFunc(b.g.GPUs, compare)
	for i, n := range b.g.GPUs {
		n.Index = i
		if n.Device.GPU != nil && n.Device.GPU.Index != nil {
			n.Index = *n.Device.GPU.Index
		}
	}
}

// attachTops puts every top below its host bridge and NUMA node.
func (b *builder) attachTops() {
	bridgeNUMA := map[string]int{}
	var nodes []int // all that any device is on: one alone needs no telling
	for _, d := range b.m.Devices {
		if d.NUMA == nil || *d.NUMA < 0 {
			continue
		}
		nodes = append(nodes, *d.NUMA)
		if d.IsHostBridge() {
			bridgeNUMA[fmt.Sprintf("%04x:%02x", d.BDF.Domain, d.BDF.Bus)] = *d.NUMA
		}
	}
	numa := func(t *Node) int {
		node := b.numaBelow(t)
		if node != unknownNUMA {
			nodes = append(nodes, node)
		}
		return node
	}
	direct := map[*Node]int{}
	for _, t := range b.tops {
		key := rootKey(t)
		node := numa(t)
		if key == "" {
			direct[t] = node
			continue
		}
		if have, ok := bridgeNUMA[key]; !ok || have == unknownNUMA {
			bridgeNUMA[key] = node
		}
	}
	for _, n := range b.m.NUMANodes {
		nodes = append(nodes, n.ID)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	settle := func(node int) int {
		if node == unknownNUMA && len(nodes) == 1 {
			return nodes[0]
		}
		return node
	}
	for _, t := range b.tops {
		key := rootKey(t)
		if key == "" {
			b.numa(settle(direct[t])).add(t)
			continue
		}
		if b.hosts[key] == nil {
			b.hosts[key] = &Node{Kind: HostBridge, ID: key, Name: "host bridge " + key}
			b.numa(settle(bridgeNUMA[key])).add(b.hosts[key])
		}
		b.hosts[key].add(t)
	}
}

// numaBelow returns the NUMA node of the first device at or below a top that
// has one, GPUs first.
func (b *builder) numaBelow(t *Node) int {
	all := t.Endpoints()
	slices.SortStableFunc(all, func(x, y *Node) int {
		return slices.Index(kindOrder, x.Kind) - slices.Index(kindOrder, y.Kind)
	})
	if t.Device != nil {
		all = append(all, t)
	}
	for _, e := range all {
		if e.Device != nil && e.Device.NUMA != nil && *e.Device.NUMA >= 0 {
			return *e.Device.NUMA
		}
	}
	for _, e := range all {
		if node, ok := b.names.numa[e]; ok {
			return node
		}
	}
	return unknownNUMA
}

// rootKey names the root bus of a top, "" where it is not known.
func rootKey(t *Node) string {
	d := t.Device
	if d == nil || t.Unplaced || fromNCCL(d) {
		return ""
	}
	bus := d.BDF.Bus
	if d.RootBus != nil {
		bus = *d.RootBus
	}
	return fmt.Sprintf("%04x:%02x", d.BDF.Domain, bus)
}

func (b *builder) numa(node int) *Node {
	n := b.numas[node]
	if n != nil {
		return n
	}
	n = &Node{Kind: NUMA, ID: "numa?", Name: "NUMA node unknown"}
	if node != unknownNUMA {
		n.ID, n.Name, n.Node = fmt.Sprintf("numa%d", node), fmt.Sprintf("NUMA node %d", node), &node
		for i := range b.m.NUMANodes {
			if b.m.NUMANodes[i].ID == node {
				n.Socket = b.m.NUMANodes[i].Socket
			}
		}
	}
	b.numas[node] = n
	b.g.Root.add(n)
	return n
}

// finish copies to every endpoint what its place decides, and says what the
// place of the GPUs lacks.
func (b *builder) finish() {
	var unplaced, homeless []string
	for _, e := range b.g.Root.Endpoints() {
		if n := e.under(NUMA); n != nil {
			e.Node, e.Socket = n.Node, n.Socket
		}
		if e.Kind != GPU || e.Device == nil {
			continue
		}
		for n := e; n != nil; n = n.Parent {
			if n.Unplaced {
				unplaced = append(unplaced, e.ID)
				break
			}
		}
		if e.Node == nil && len(b.g.Root.Children) > 1 {
			homeless = append(homeless, e.ID)
		}
	}
	if len(unplaced) > 0 {
		b.problem(machine.Truncated, "no input shows all ports above %s: links and sharing there are not known (add the output of `lspci -vvv` or `lspci -tv` for the whole machine)", strings.Join(unplaced, ", "))
	}
	if len(homeless) > 0 {
		b.problem(machine.Truncated, "the NUMA node of %s is not known (add `nvidia-smi topo -m`, or `lspci -vv` which prints it)", strings.Join(homeless, ", "))
	}
}

func (b *builder) problem(class machine.ProblemClass, format string, args ...any) {
	b.g.Problems = append(b.g.Problems, machine.Problem{Class: class, Text: fmt.Sprintf(format, args...)})
}
