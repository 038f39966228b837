package topology

import (
	"slices"
	"strings"

	"ringlane/internal/model/machine"
)

// matrixNames joins the names of nvidia-smi's matrices to nodes.
type matrixNames struct {
	node map[string]*Node // by name
	numa map[*Node]int    // from the affinity columns, or from the cells
}

// nameByMatrix finds which node GPU0, NIC0, mlx5_0 … are: a GPU by
// nvidia-smi's number, which follows the address; a NIC by its interface.
func nameByMatrix(g *Graph, m *machine.Machine) matrixNames {
	names := matrixNames{node: map[string]*Node{}, numa: map[*Node]int{}}
	if m.Matrix == nil {
		return names
	}
	var nvidia []*Node
	numbered := true
	for _, n := range g.GPUs {
		if n.Device.Of(machine.VendorNVIDIA) || !n.Device.Vendor.Known {
			nvidia = append(nvidia, n)
			numbered = numbered && n.Device.GPU != nil && n.Device.GPU.Index != nil
		}
	}
	var rows []string
	for _, name := range m.Matrix.Names {
		if strings.HasPrefix(name, "GPU") {
			rows = append(rows, name)
		}
	}
	slices.SortFunc(rows, compareNames)
	for i, name := range rows {
		switch {
		case numbered:
			_, index := splitNumber(name)
			for _, n := range nvidia {
				if n.Index == index {
					names.node[name], n.Matrix = n, name
				}
			}
		case len(rows) == len(nvidia): // otherwise a guess would be worse than nothing
			names.node[name], nvidia[i].Matrix = nvidia[i], name
		}
	}
	places := numaByMatrix(m)
	for name, n := range names.node {
		if node, ok := places[name]; ok {
			names.numa[n] = node
		}
	}
	return names
}

// numaByMatrix tells the NUMA node of each name: by the affinity columns,
// else by the sets between which cells say SYS. In the last two cases the
// numbers are ours.
func numaByMatrix(m *machine.Machine) map[string]int {
	out := map[string]int{}
	var cpus []string
	gpus := 0
	for i := range m.Matrix.Rows {
		r := &m.Matrix.Rows[i]
		if !strings.HasPrefix(r.Name, "GPU") {
			continue
		}
		gpus++
		if r.NUMA != nil && *r.NUMA >= 0 {
			out[r.Name] = *r.NUMA
		}
		if r.CPUs != "" && !slices.Contains(cpus, r.CPUs) {
			cpus = append(cpus, r.CPUs)
		}
	}
	if len(out) == gpus {
		return out
	}
	clear(out)
	for i := range m.Matrix.Rows {
		r := &m.Matrix.Rows[i]
		if node := slices.Index(cpus, r.CPUs); node >= 0 && strings.HasPrefix(r.Name, "GPU") {
			for _, n := range m.NUMANodes {
				if n.CPUs == r.CPUs {
					node = n.ID
				}
			}
			out[r.Name] = node
		}
	}
	if len(out) == gpus && len(cpus) > 1 {
		return out
	}
	clear(out)
	for i, set := range closures(m.Matrix, m.Matrix.Names, NODE) {
		for _, name := range set {
			out[name] = i
		}
	}
	return out
}

// closures parts names into sets whose members reach each other over cells no
// farther than most, in the order of their first names.
func closures(matrix *machine.Matrix, names []string, most PathKind) [][]string {
	set := make([]int, len(names))
	for i := range set {
		set[i] = i
	}
	for i := range names {
		for j := range i {
			k := cellKind(matrix, names[i], names[j])
			if k == "" || k.farther(most) || set[i] == set[j] {
				continue
			}
			from, to := max(set[i], set[j]), min(set[i], set[j])
			for x := range set {
				if set[x] == from {
					set[x] = to
				}
			}
		}
	}
	var out [][]string
	for i := range names {
		var members []string
		for j := range names {
			if set[j] == i {
				members = append(members, names[j])
			}
		}
		if members != nil {
			out = append(out, members)
		}
	}
	return out
}

// cellKind is the path that a matrix gives, "" where it shows none (NVLink
// hides it).
func cellKind(m *machine.Matrix, a, b string) PathKind {
	for _, cell := range []string{m.Cell(a, b), m.Cell(b, a)} {
		switch k := PathKind(cell); {
		case cell == "SOC": // the name before 2017
			return SYS
		case cell == "PSB": // within one card
			return PIX
		case slices.Contains(pathKinds, k):
			return k
		}
	}
	return ""
}

// placeByMatrix builds the tree from the matrix where no GPU has a known place
// in the PCI tree: sets within PIX share a switch, within PXB a chain of
// switches, within PHB a host bridge, within NODE a NUMA node.
func (b *builder) placeByMatrix() bool {
	if b.m.Matrix == nil {
		return false
	}
	for _, n := range b.g.GPUs {
		if !n.Unplaced {
			return false
		}
	}
	names := b.m.Matrix.Names
	node := func(name string) *Node {
		if n := b.names.node[name]; n != nil {
			return n
		}
		n := &Node{Kind: NIC, ID: Printable(name), Name: Printable(b.m.Matrix.NICs[name]), Matrix: name}
		if strings.HasPrefix(name, "GPU") {
			n.Kind, n.Name = GPU, n.ID
			_, n.Index = splitNumber(name)
			b.g.GPUs = append(b.g.GPUs, n)
		}
		b.names.node[name] = n
		return n
	}
	for _, name := range names {
		node(name)
	}
	if len(b.g.GPUs) == 0 {
		return false
	}
	slices.SortFunc(b.g.GPUs, compare)
	places := numaByMatrix(b.m)
	for _, set := range closures(b.m.Matrix, names, NODE) {
		numa := unknownNUMA
		for _, name := range set {
			if place, ok := places[name]; ok {
				numa = place
				break
			}
		}
		b.nest(b.numa(numa), set, PHB, node)
	}
	b.tops = slices.DeleteFunc(b.tops, func(t *Node) bool { return t.Parent != nil })
	for _, n := range b.g.GPUs {
		n.Unplaced = false
	}
	b.attachTops()
	return true
}

// nest hangs a set of names below a node, in sets that are nearer and nearer.
func (b *builder) nest(above *Node, set []string, most PathKind, node func(string) *Node) {
	for _, part := range closures(b.m.Matrix, set, most) {
		at := above
		if len(part) == 1 {
			at.add(node(part[0]))
			continue
		}
		repeated := at.Kind == Switch && len(part) == len(set)
		if !repeated {
			at = &Node{Kind: Switch, ID: Printable(strings.Join(part, "<->")), Name: "switch"}
			if most == PHB {
				at.Kind, at.Name = HostBridge, "host bridge"
			}
			above.add(at)
		}
		if i := slices.Index(pathKinds, most); i > 0 {
			b.nest(at, part, pathKinds[i-1], node)
			continue
		}
		for _, name := range part {
			at.add(node(name))
		}
	}
}
