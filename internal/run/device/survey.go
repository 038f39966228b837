package device

import (
	"slices"

	hardware "ringlane/internal/hardware/probe"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
	"ringlane/internal/model/topology"
	"ringlane/internal/run/communicator"
)

// measurements are what paths are taken for.
var measurements = func(paths []Path) []Path { return paths }

// survey finds what choices depend on besides sizes: the order of the ring, islands,
// and how fast paths are. Every rank finds the same: all know what all have
// measured, and rank 0 alone looks at the machine. line is how many bytes arrive
// together on every path: 16 over PCIe.
func (d *Comm) survey(line int) error {
	v := &d.devices
	paths := measurements(d.paths)
	rates := ratesOf(paths, d.size)
	islands, err := d.findIslands(rates, line)
	if err != nil {
		return err
	}
	v.Islands = islands
	if order := topology.Order(d.size, rates, islands); !slices.IsSorted(order) {
		v.Order = order
	}
	v.Pace = paceOf(paths, func(*Path) bool { return true })
	if islands != nil {
		v.Inside = paceOf(paths, func(p *Path) bool { return islands[p.From] == islands[p.To] })
	}
	return nil
}

// Ring is the ranks in the order of the ring, from rank 0 on.
func (d *Comm) Ring() []int { return append([]int{0}, d.devices.Others(0)...) }

// Islands says which ranks reach each other without leaving an island, as
// RINGLANE_DEVICE_ISLANDS takes it; "" if all do.
func (d *Comm) Islands() string { return d.devices.Islands.String() }

// ratesOf are the measured gigabytes a second that each rank writes to each other.
// Ranks that share a GPU have no path between them that could be slow.
func ratesOf(paths []Path, ranks int) topology.Bandwidths {
	fastest := 0.0
	for i := range paths {
		fastest = max(fastest, paths[i].Push)
	}
	rates := make(topology.Bandwidths, ranks)
	for r := range rates {
		rates[r] = make([]float64, ranks)
	}
	for _, p := range paths {
		if p.From != p.To {
			rates[p.From][p.To] = p.Push
			if p.Kind == Same {
				rates[p.From][p.To] = fastest
			}
		}
	}
	return rates
}

// paceOf is that of the slowest path between GPUs among some; zero where one of
// them was not measured, or there are none.
func paceOf(paths []Path, among func(p *Path) bool) (slowest collective.Pace) {
	for i := range paths {
		p := &paths[i]
		if p.From == p.To || p.Kind == Same || !among(p) {
			continue
		}
		if p.Push <= 0 || p.Latency <= 0 {
			return collective.Pace{}
		}
		if slowest.Rate == 0 || p.Push < slowest.Rate {
			slowest.Rate = p.Push
		}
		slowest.Latency = max(slowest.Latency, float64(p.Latency)/1000)
	}
	return slowest
}

// findIslands takes those that Options name; else, where ranks reach each other straight
// over PCIe, what is near by what was measured, or by the tree of the machine.
func (d *Comm) findIslands(rates topology.Bandwidths, line int) (collective.Islands, error) {
	switch text := d.options.Islands; text {
	case islandsOff:
		return nil, nil
	case islandsAuto:
	default:
		islands, err := collective.ParseIslands(text, d.size)
		if err != nil {
			return nil, failf(communicator.Argument, "join: RINGLANE_DEVICE_ISLANDS: %v", err)
		}
		return islands, nil
	}
	if d.devices.Host || line > 16 || d.size < 4 {
		return nil, nil
	}
	if islands := rates.Nearest(); islands != nil {
		return islands, nil
	}
	var mine []int
	if d.rank == 0 {
		// A machine that cannot be read has no islands that are known.
		if m, err := hardware.Live("/"); err == nil {
			mine = islandsIn(m, d.members)
		}
	}
	all, err := agree(d.comm, mine, nil)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// islandsIn are the islands that the tree of a machine has for some of its GPUs.
func islandsIn(m *machine.Machine, members []member) []int {
	g := topology.New(m)
	gpus := make([]*topology.Node, len(members))
	for r := range members {
		at, err := pcie.ParseBDF(members[r].Address)
		if err != nil {
			return nil
		}
		i := slices.IndexFunc(g.GPUs, func(n *topology.Node) bool { return n.Device != nil && n.Device.BDF == at })
		if i < 0 {
			return nil
		}
		gpus[r] = g.GPUs[i]
	}
	return g.Islands(gpus)
}
