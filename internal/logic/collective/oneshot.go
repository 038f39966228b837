package collective

import s "ringlane/internal/model/schedule"

// Oneshot is the name of the schedule in which every rank reduces everything.
const Oneshot = "oneshot"

// oneshotAllReduce has each rank show its whole input to everyone and reduce
// all inputs itself: one step, the message written once and read n-1 times by
// each rank. The terms are combined in rank order, the own one in its place, so
// every rank computes the same bits. For messages so small that a step costs
// more than reading them n-1 times.
var oneshotAllReduce = s.Algorithm{
	Name:   Oneshot,
	Chunks: one,
	Program: func(ranks, rank, _ int) s.Program {
		if ranks == 1 {
			return alone()
		}
		return s.Program{
			{Kind: s.Send, Value: s.Input, Peer: s.Everyone},
			{Kind: s.Reduce, Value: s.Output, From: inRankOrder(ranks, rank, true)},
		}
	},
}

// inRankOrder lists the inputs of all ranks, in rank order whoever combines
// them, so that the result does not depend on who does.
func inRankOrder(ranks, rank int, shared bool) []s.Source {
	from := make([]s.Source, ranks)
	for r := range from {
		from[r] = s.Source{Rank: r, Value: s.Input, Shared: shared && r != rank}
	}
	return from
}
