// Package collective knows the ways to perform each collective: as values that
// make the programs of model/schedule, with what each has to achieve and which
// one to take for a message. docs/algorithms.md has their costs in closed form;
// a test compares it with what the prover counts.
//
// Every algorithm is proved for 1 to 64 ranks, with one slot in a channel as
// with more. A single rank only copies.
package collective

import (
	"fmt"
	"strings"

	"ringlane/internal/model/schedule"
)

// Algorithms returns the ways to perform c, the default one first.
func Algorithms(c schedule.Collective) []schedule.Algorithm {
	switch c {
	case schedule.AllReduce:
		return []schedule.Algorithm{directAllReduce, oneshotAllReduce, ringAllReduce, treeAllReduce}
	case schedule.ReduceScatter:
		return []schedule.Algorithm{directReduceScatter, ringReduceScatter}
	case schedule.AllGather, schedule.Barrier:
		return []schedule.Algorithm{directAllGather, ringAllGather}
	case schedule.Broadcast:
		return []schedule.Algorithm{directBroadcast, treeBroadcast}
	case schedule.Reduction:
		return []schedule.Algorithm{directReduce, treeReduce}
	case schedule.Gather:
		return []schedule.Algorithm{directGather}
	case schedule.Scatter:
		return []schedule.Algorithm{directScatter}
	case schedule.AllToAll:
		return []schedule.Algorithm{directAllToAll}
	case schedule.SendRecv:
		return []schedule.Algorithm{directSendRecv}
	}
	return nil
}

// Find returns the algorithm of c that is called name.
func Find(c schedule.Collective, name string) (schedule.Algorithm, error) {
	var names []string
	for _, a := range Algorithms(c) {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return schedule.Algorithm{}, fmt.Errorf("%v has no algorithm %q (one of %s)", c, name, strings.Join(names, " "))
}

// Goal is what c starts from and must leave behind among ranks. root is ignored
// where c has none.
func Goal(c schedule.Collective, ranks, root int) schedule.Goal {
	all := ^uint64(0) >> (schedule.MaxRanks - ranks)
	everywhere := func(int, int) bool { return true }
	own := func(rank, chunk int) bool { return rank == chunk }
	atRoot := func(rank, _ int) bool { return rank == root }

	// from gives the ranks that where names the terms of their chunk.
	from := func(where func(rank, chunk int) bool, terms func(chunk int) uint64) func(int, int) uint64 {
		return func(rank, chunk int) uint64 {
			if !where(rank, chunk) {
				return 0
			}
			return terms(chunk)
		}
	}
	sum := func(int) uint64 { return all }
	source := func(chunk int) uint64 { return 1 << chunk }
	rootTerm := func(int) uint64 { return 1 << root }

	switch c {
	case schedule.AllReduce:
		return schedule.Goal{Input: everywhere, Output: from(everywhere, sum)}
	case schedule.ReduceScatter:
		return schedule.Goal{Input: everywhere, Output: from(own, sum)}
	case schedule.AllGather, schedule.Barrier:
		return schedule.Goal{Input: own, Output: from(everywhere, source)}
	case schedule.Broadcast:
		return schedule.Goal{Input: atRoot, Output: from(everywhere, rootTerm)}
	case schedule.Reduction:
		return schedule.Goal{Input: everywhere, Output: from(atRoot, sum)}
	case schedule.Gather:
		return schedule.Goal{Input: own, Output: from(atRoot, source)}
	case schedule.Scatter:
		return schedule.Goal{Input: atRoot, Output: from(own, rootTerm)}
	case schedule.AllToAll:
		return schedule.Goal{
			Input: func(rank, chunk int) bool { return rank == chunk/ranks },
			Output: from(
				func(rank, chunk int) bool { return rank == chunk%ranks },
				func(chunk int) uint64 { return 1 << (chunk / ranks) }),
		}
	case schedule.SendRecv:
		return schedule.Goal{
			Input:  own,
			Output: from(func(rank, chunk int) bool { return rank == (chunk+1)%ranks }, source),
		}
	}
	panic(fmt.Sprintf("no goal for %v", c))
}

// one and each are the numbers of chunks that algorithms cut a message into.
func one(int) int        { return 1 }
func each(ranks int) int { return ranks }

// alone is the program of a single rank.
func alone() schedule.Program {
	return schedule.Program{{Kind: schedule.Copy}}
}

// after is the rank that follows by k on the ring of ranks; k may be negative,
// down to -ranks.
func after(rank, k, ranks int) int { return (rank + k + ranks) % ranks }
