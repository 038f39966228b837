package collective

import s "ringlane/internal/model/schedule"

// The ring family: each rank sends to the next one only and receives from the
// one before it only. No link carries more than one stream each way, so it is
// the one to use where ranks are joined by links, and the slowest to start: the
// steps grow with the ranks.

// Ring is the name of the schedules of this family.
const Ring = "ring"

// ringAllReduce is a reduce-scatter followed by an all-gather on the ring:
// 2(n-1) steps of one chunk of n, so 2(n-1)/n of the message written and read
// by each rank, which no algorithm on private channels can undercut. n-2 of the
// chunks that a rank writes are Partials.
var ringAllReduce = s.Algorithm{
	Name:   Ring,
	Chunks: each,
	Program: func(ranks, rank, _ int) s.Program {
		if ranks == 1 {
			return alone()
		}
		return append(ringReduceTo(ranks, rank), ringPass(ranks, rank, s.Output)...)
	},
}

// ringReduceScatter takes n-1 steps of one chunk of n; n-2 of the chunks that a
// rank writes are Partials.
var ringReduceScatter = s.Algorithm{
	Name:   Ring,
	Chunks: each,
	Program: func(ranks, rank, _ int) s.Program {
		if ranks == 1 {
			return alone()
		}
		return ringReduceTo(ranks, rank)
	},
}

// ringAllGather takes n-1 steps of one rank's input.
var ringAllGather = s.Algorithm{
	Name:   Ring,
	Chunks: each,
	Program: func(ranks, rank, _ int) s.Program {
		own := s.Step{Kind: s.Copy, Chunk: rank}
		if ranks == 1 {
			return s.Program{own}
		}
		pass := ringPass(ranks, rank, s.Input)
		return append(s.Program{pass[0], own}, pass[1:]...)
	},
}

// ringReduceTo leaves the sum of chunk rank on rank. Chunk c starts at rank
// c+1 and gains a term at every rank until it is complete at rank c: in step k
// a rank sends chunk rank-k-1 and receives chunk rank-k-2.
func ringReduceTo(ranks, rank int) s.Program {
	next, prev := after(rank, 1, ranks), after(rank, -1, ranks)
	var p s.Program
	travels := s.Input
	for k := range ranks - 1 {
		made := s.Partial
		if k == ranks-2 {
			made = s.Output
		}
		p = append(p,
			s.Step{Kind: s.Send, Chunk: after(rank, -k-1, ranks), Value: travels, Peer: next},
			s.Step{Kind: s.Reduce, Chunk: after(after(rank, -k-1, ranks), -1, ranks), Value: made, From: []s.Source{
				{Rank: prev, Value: travels},
				{Rank: rank, Value: s.Input},
			}})
		travels = made
	}
	return p
}

// ringPass hands chunk rank, held as first, once around the ring: in step k a
// rank sends chunk rank-k and receives chunk rank-k-1.
func ringPass(ranks, rank int, first s.Value) s.Program {
	next, prev := after(rank, 1, ranks), after(rank, -1, ranks)
	var p s.Program
	held := first
	for k := range ranks - 1 {
		p = append(p,
			s.Step{Kind: s.Send, Chunk: after(rank, -k, ranks), Value: held, Peer: next},
			s.Step{Kind: s.Recv, Chunk: after(rank, -k-1, ranks), Peer: prev})
		held = s.Output
	}
	return p
}
