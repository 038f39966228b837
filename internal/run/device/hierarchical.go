package device

import (
	"fmt"
	"slices"

	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// arrangeHierarchical is arrange for schedules that go through islands
// (hierarchical.cuh).
func (d *Comm) arrangeHierarchical(p *plan, s *scheduled, host *communicator.Call) error {
	of := d.devices.Islands.Of(d.size)
	island := slices.IndexFunc(of, func(members []int) bool { return slices.Contains(members, d.rank) })
	if !climbs(s.programs[d.rank], of, island, d.rank) {
		return fmt.Errorf("%s does not go through islands by their first ranks", s.name)
	}
	x, bytes := p.exchange, uint64(host.Count*host.Type.Size())
	d.address(x, p.choice)
	x.Op, x.Island, x.Islands = uint32(host.Op), uint32(island), uint32(len(of))
	p.kernel = kernel{
		module: fmt.Sprintf("hierarchical_%v", host.Type),
		name:   fmt.Sprintf("%v_hierarchical_%v", host.Collective, host.Type),
	}
	if lead := of[island][0]; lead != d.rank {
		up := d.peer(x, lead, p.choice)
		up.SendBytes, up.GatherBytes = bytes, bytes
		return nil
	}
	x.OwnBytes = bytes
	for _, member := range of[island][1:] {
		d.peer(x, member, p.choice)
	}
	members, position := x.Count, x.Position
	if before, after := leadersBeside(of, island); len(of) > 1 {
		d.peer(x, before, p.choice)
		if after != before {
			d.peer(x, after, p.choice)
		}
	}
	x.Count, x.Position = members, position
	return nil
}

// leadersBeside are the leaders of the islands before and after one, on their ring.
func leadersBeside(of [][]int, island int) (before, after int) {
	k := len(of)
	return of[(island+k-1)%k][0], of[(island+1)%k][0]
}

// climbs reports whether the kernel carries a program out: those who do not lead
// an island deal with who does alone, and who does combines in the order of ranks,
// with what comes from the leader before at the beginning.
func climbs(p schedule.Program, of [][]int, island, rank int) bool {
	members, lead := of[island], of[island][0]
	before, after := leadersBeside(of, island)
	from := slices.Clone(members)
	if island > 0 {
		from = append([]int{before}, members...)
	}
	for _, step := range p {
		ok := rank == lead
		switch step.Kind {
		case schedule.Send:
			ok = ok && (step.Peer == after || slices.Contains(members, step.Peer)) || step.Peer == lead
		case schedule.Recv:
			ok = (ok && step.Peer == before || step.Peer == lead) && !step.Shared
		case schedule.Reduce:
			ok = ok && slices.EqualFunc(step.From, from, func(s schedule.Source, r int) bool { return s.Rank == r && !s.Shared })
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}
