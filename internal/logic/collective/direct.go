package collective

import s "ringlane/internal/model/schedule"

// The direct family: every piece of data goes straight from the rank that has
// it to the ranks that need it, through a private channel where one rank needs
// it and through the shared one where all do. The fewest steps and the fewest
// bytes written, and no Partial ever travels; it asks for memory that all ranks
// see. Ranks start with the one after them, so that they do not all crowd at
// one rank.

// directAllReduce has rank r reduce chunk r of n from all inputs, in rank
// order, and show the result to everyone: 2 steps. A rank writes n chunks, so
// the message once, and reads 2(n-1).
var directAllReduce = s.Algorithm{
	Name:   "direct",
	Chunks: each,
	Program: func(ranks, rank, _ int) s.Program {
		if ranks == 1 {
			return alone()
		}
		p := append(directReduceTo(ranks, rank), s.Step{Kind: s.Send, Chunk: rank, Value: s.Output, Peer: s.Everyone})
		return append(p, recvShared(ranks, rank)...)
	},
}

// directReduceScatter is the first step of directAllReduce: a rank writes and
// reads n-1 chunks of n.
var directReduceScatter = s.Algorithm{
	Name:   "direct",
	Chunks: each,
	Program: func(ranks, rank, _ int) s.Program {
		if ranks == 1 {
			return alone()
		}
		return directReduceTo(ranks, rank)
	},
}

// directAllGather has each rank show its input to everyone: one step, the own
// input written once and n-1 others read.
var directAllGather = s.Algorithm{
	Name:   "direct",
	Chunks: each,
	Program: func(ranks, rank, _ int) s.Program {
		if ranks == 1 {
			return alone()
		}
		p := s.Program{
			{Kind: s.Send, Chunk: rank, Value: s.Input, Peer: s.Everyone},
			{Kind: s.Copy, Chunk: rank},
		}
		return append(p, recvShared(ranks, rank)...)
	},
}

// directBroadcast has the root show its input to everyone: one step, the
// message written once by the root and read once by each other rank.
var directBroadcast = s.Algorithm{
	Name:   "direct",
	Chunks: one,
	Program: func(ranks, rank, root int) s.Program {
		switch {
		case ranks == 1:
			return alone()
		case rank == root:
			return s.Program{
				{Kind: s.Send, Value: s.Input, Peer: s.Everyone},
				{Kind: s.Copy},
			}
		}
		return s.Program{{Kind: s.Recv, Peer: root, Shared: true}}
	},
}

// directReduce has each rank send its input to the root, which combines them in
// rank order: one step, the message written once by each other rank and read
// n-1 times by the root.
var directReduce = s.Algorithm{
	Name:   "direct",
	Chunks: one,
	Program: func(ranks, rank, root int) s.Program {
		switch {
		case ranks == 1:
			return alone()
		case rank == root:
			return s.Program{{Kind: s.Reduce, Value: s.Output, From: inRankOrder(ranks, rank, false)}}
		}
		return s.Program{{Kind: s.Send, Value: s.Input, Peer: root}}
	},
}

// directGather has each rank send its input to the root: one step, one chunk
// written by each other rank and n-1 read by the root.
var directGather = s.Algorithm{
	Name:   "direct",
	Chunks: each,
	Program: func(ranks, rank, root int) s.Program {
		if rank != root {
			return s.Program{{Kind: s.Send, Chunk: rank, Value: s.Input, Peer: root}}
		}
		p := s.Program{{Kind: s.Copy, Chunk: rank}}
		for k := 1; k < ranks; k++ {
			source := after(rank, k, ranks)
			p = append(p, s.Step{Kind: s.Recv, Chunk: source, Peer: source})
		}
		return p
	},
}

// directScatter has the root send each rank its chunk: one step, n-1 chunks
// written by the root and one read by each other rank.
var directScatter = s.Algorithm{
	Name:   "direct",
	Chunks: each,
	Program: func(ranks, rank, root int) s.Program {
		if rank != root {
			return s.Program{{Kind: s.Recv, Chunk: rank, Peer: root}}
		}
		var p s.Program
		for k := 1; k < ranks; k++ {
			reader := after(rank, k, ranks)
			p = append(p, s.Step{Kind: s.Send, Chunk: reader, Value: s.Input, Peer: reader})
		}
		return append(p, s.Step{Kind: s.Copy, Chunk: rank})
	},
}

// directAllToAll has each rank send each other rank its chunk, numbered
// source*n + destination: one step, n-1 chunks written and read by each rank.
var directAllToAll = s.Algorithm{
	Name:   "direct",
	Chunks: func(ranks int) int { return ranks * ranks },
	Program: func(ranks, rank, _ int) s.Program {
		var p s.Program
		for k := 1; k < ranks; k++ {
			reader := after(rank, k, ranks)
			p = append(p, s.Step{Kind: s.Send, Chunk: rank*ranks + reader, Value: s.Input, Peer: reader})
		}
		p = append(p, s.Step{Kind: s.Copy, Chunk: rank*ranks + rank})
		// The rank before this one sent here first.
		for k := 1; k < ranks; k++ {
			source := after(rank, -k, ranks)
			p = append(p, s.Step{Kind: s.Recv, Chunk: source*ranks + rank, Peer: source})
		}
		return p
	},
}

// directSendRecv has each rank send its input to the next one: one step, one
// chunk written and read by each rank.
var directSendRecv = s.Algorithm{
	Name:   "direct",
	Chunks: each,
	Program: func(ranks, rank, _ int) s.Program {
		if ranks == 1 {
			return alone()
		}
		next, prev := after(rank, 1, ranks), after(rank, -1, ranks)
		return s.Program{
			{Kind: s.Send, Chunk: rank, Value: s.Input, Peer: next},
			{Kind: s.Recv, Chunk: prev, Peer: prev},
		}
	},
}

// directReduceTo sends chunk p of the input to every other rank p and reduces
// the own chunk.
func directReduceTo(ranks, rank int) s.Program {
	var p s.Program
	for k := 1; k < ranks; k++ {
		owner := after(rank, k, ranks)
		p = append(p, s.Step{Kind: s.Send, Chunk: owner, Value: s.Input, Peer: owner})
	}
	return append(p, s.Step{Kind: s.Reduce, Chunk: rank, Value: s.Output, From: inRankOrder(ranks, rank, false)})
}

// recvShared takes chunk p from the shared channel of every other rank p.
func recvShared(ranks, rank int) s.Program {
	var p s.Program
	for k := 1; k < ranks; k++ {
		source := after(rank, k, ranks)
		p = append(p, s.Step{Kind: s.Recv, Chunk: source, Peer: source, Shared: true})
	}
	return p
}
