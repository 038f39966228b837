package collective

import s "ringlane/internal/model/schedule"

// The tree family: a binomial tree over the ranks counted from the root. Few
// messages on the longest chain and few at any one rank, but each carries the
// whole message: for small messages among many ranks, or for long ones where a
// rank reaches only its neighbours in the tree.
//
// Counted from the root, the parent of v is v without its lowest set bit, and
// the subtree of v is v up to v + that bit - 1. A rank combines its own term and
// then its children's in rising order, so the terms stay in the order of v.

// treeAllReduce is a Reduce to rank 0 and a Broadcast from there.
// 2*floor(log2 n) messages follow each other on the longest chain; with one
// message at a time at every rank it takes 2*ceil(log2 n) steps. A rank with k
// children writes and reads k+1 times the message (the root k times); what goes
// up from a rank with children is a Partial.
var treeAllReduce = s.Algorithm{
	Name:   "tree",
	Chunks: one,
	Program: func(ranks, rank, _ int) s.Program {
		if ranks == 1 {
			return alone()
		}
		return append(treeUp(ranks, rank, 0), treeDown(ranks, rank, 0, s.Output)...)
	},
}

// treeBroadcast takes half the steps of treeAllReduce. A rank with k children
// writes k times the message, and each but the root reads it once.
var treeBroadcast = s.Algorithm{
	Name:   "tree",
	Chunks: one,
	Program: func(ranks, rank, root int) s.Program {
		p := treeDown(ranks, rank, root, s.Input)
		if rank == root {
			p = append(p, s.Step{Kind: s.Copy})
		}
		return p
	},
}

// treeReduce takes half the steps of treeAllReduce. A rank with k children
// reads k times the message, and each but the root writes it once: a Partial if
// it has children.
var treeReduce = s.Algorithm{
	Name:   "tree",
	Chunks: one,
	Program: func(ranks, rank, root int) s.Program {
		if ranks == 1 {
			return alone()
		}
		return treeUp(ranks, rank, root)
	},
}

// treeUp sends the sum of each subtree to the parent and leaves the whole sum
// on root.
func treeUp(ranks, rank, root int) s.Program {
	v := after(rank, -root, ranks)
	from := []s.Source{{Rank: rank, Value: s.Input}}
	for _, child := range treeChildren(ranks, v) {
		sent := s.Partial
		if len(treeChildren(ranks, child)) == 0 {
			sent = s.Input
		}
		from = append(from, s.Source{Rank: after(child, root, ranks), Value: sent})
	}
	parent := after(v&(v-1), root, ranks)
	switch {
	case v == 0:
		return s.Program{{Kind: s.Reduce, Value: s.Output, From: from}}
	case len(from) == 1:
		return s.Program{{Kind: s.Send, Value: s.Input, Peer: parent}}
	}
	return s.Program{
		{Kind: s.Reduce, Value: s.Partial, From: from},
		{Kind: s.Send, Value: s.Partial, Peer: parent},
	}
}

// treeDown hands what root holds as held down to every rank, the largest
// subtree first.
func treeDown(ranks, rank, root int, held s.Value) s.Program {
	v := after(rank, -root, ranks)
	var p s.Program
	if v != 0 {
		p = append(p, s.Step{Kind: s.Recv, Peer: after(v&(v-1), root, ranks)})
		held = s.Output
	}
	children := treeChildren(ranks, v)
	for i := len(children) - 1; i >= 0; i-- {
		p = append(p, s.Step{Kind: s.Send, Value: held, Peer: after(children[i], root, ranks)})
	}
	return p
}

// treeChildren lists the children of v, smallest subtree first; all of them are
// counted from the root.
func treeChildren(ranks, v int) []int {
	var children []int
	for bit := 1; v&bit == 0 && v+bit < ranks; bit <<= 1 {
		children = append(children, v+bit)
	}
	return children
}
