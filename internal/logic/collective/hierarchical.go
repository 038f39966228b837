package collective

import (
	"slices"

	s "ringlane/internal/model/schedule"
)

// Hierarchical is the name of the schedule that goes through islands.
const Hierarchical = "hierarchical"

// hierarchicalAllReduce has every rank send its input to the one that leads its
// island. The leaders stand in a chain: each adds the terms of its island, in rank
// order, to what the one before has made of those before, and the last one has the
// result, which goes on round to the first leader and from there to the last but
// one; and from each leader to its island. So of an island one rank alone sends
// out, and to one other island alone; and where islands are runs of ranks, terms
// are combined in rank order. 2k steps of the whole message with k islands; what
// an island sends out is the message twice, once of two. A leader of m ranks takes
// m-1 messages from its island and shows it m-1.
func hierarchicalAllReduce(islands Islands) s.Algorithm {
	return s.Algorithm{
		Name:   Hierarchical,
		Chunks: one,
		Program: func(ranks, rank, _ int) s.Program {
			if ranks == 1 {
				return alone()
			}
			of := islands.Of(ranks)
			at := slices.IndexFunc(of, func(members []int) bool { return slices.Contains(members, rank) })
			lead := of[at][0]
			if rank != lead {
				return s.Program{
					{Kind: s.Send, Value: s.Input, Peer: lead},
					{Kind: s.Recv, Peer: lead},
				}
			}
			return leaderProgram(of, at)
		},
	}
}

// leaderProgram is what the leader of island at does.
func leaderProgram(of [][]int, at int) s.Program {
	lead, last := of[at][0], len(of)-1
	before, next := of[(at+last)%len(of)][0], of[(at+1)%len(of)][0]
	var p s.Program
	var from []s.Source
	if at > 0 {
		from = append(from, s.Source{Rank: before, Value: chained(of, at-1)})
	}
	for _, member := range of[at] {
		from = append(from, s.Source{Rank: member, Value: s.Input})
	}
	switch {
	case at == last:
		p = append(p, s.Step{Kind: s.Reduce, Value: s.Output, From: from})
	case len(from) > 1:
		p = append(p, s.Step{Kind: s.Reduce, Value: s.Partial, From: from})
	}
	if at < last {
		p = append(p, s.Step{Kind: s.Send, Value: chained(of, at), Peer: next}, s.Step{Kind: s.Recv, Peer: before})
	}
	if onward(at, len(of)) {
		p = append(p, s.Step{Kind: s.Send, Value: s.Output, Peer: next})
	}
	for _, member := range of[at] {
		if member != lead {
			p = append(p, s.Step{Kind: s.Send, Value: s.Output, Peer: member})
		}
	}
	return p
}

// chained is what the leader of island at sends along the chain: one that is alone
// at its beginning has only its input.
func chained(of [][]int, at int) s.Value {
	if at == 0 && len(of[0]) == 1 {
		return s.Input
	}
	return s.Partial
}

// onward reports whether the leader of island at of so many sends the result on to
// the next one: the last one made it, and it ends before that.
func onward(at, islands int) bool { return islands > 1 && at != islands-2 }

// Schedule is the algorithm of c that a choice names, as these devices carry it out.
func (d *Devices) Schedule(c s.Collective, name string) (s.Algorithm, error) {
	if c == s.AllReduce && name == Hierarchical {
		return hierarchicalAllReduce(d.Islands), nil
	}
	a, err := Find(c, name)
	if err == nil && name == Ring {
		a = inOrder(a, d.Order)
	}
	return a, err
}

// Others are the other ranks in the order of the ring, from the next one on.
func (d *Devices) Others(rank int) []int {
	others := make([]int, 0, d.Ranks-1)
	at := rank
	if d.Order != nil {
		at = slices.Index(d.Order, rank)
	}
	for k := 1; k < d.Ranks; k++ {
		next := (at + k) % d.Ranks
		if d.Order != nil {
			next = d.Order[next]
		}
		others = append(others, next)
	}
	return others
}

// inOrder is an algorithm of the ring in which the ranks stand in another order,
// and own the chunks of their numbers as before; nil is by number.
func inOrder(a s.Algorithm, order []int) s.Algorithm {
	if order == nil {
		return a
	}
	ordered := a
	ordered.Program = func(ranks, rank, root int) s.Program {
		p := a.Program(ranks, slices.Index(order, rank), root)
		for i := range p {
			step := &p[i]
			if a.Chunks(ranks) == ranks {
				step.Chunk = order[step.Chunk]
			}
			if step.Kind == s.Send || step.Kind == s.Recv {
				step.Peer = order[step.Peer]
			}
			for k := range step.From {
				step.From[k].Rank = order[step.From[k].Rank]
			}
		}
		return p
	}
	return ordered
}
