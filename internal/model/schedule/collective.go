package schedule

import (
	"fmt"
	"strings"
)

// Collective is an operation that all ranks of a communicator perform together.
// The names are those of nccl-tests.
type Collective uint8

// The collectives. Chunks are numbered over all ranks, so that a chunk is the
// same piece of data wherever it lies.
const (
	// AllReduce leaves the reduction of all inputs on every rank.
	AllReduce Collective = iota
	// ReduceScatter leaves chunk r of the reduction of all inputs on rank r.
	ReduceScatter
	// AllGather leaves the inputs of all ranks on every rank: chunk r is the
	// input of rank r.
	AllGather
	// Broadcast leaves the root's input on every rank.
	Broadcast
	// Reduction leaves the reduction of all inputs on the root. Its name is
	// "reduce"; the identifier Reduce is the Kind of a step.
	Reduction
	// Gather leaves the inputs of all ranks on the root: chunk r is the input
	// of rank r.
	Gather
	// Scatter leaves chunk r of the root's input on rank r.
	Scatter
	// AllToAll leaves on rank d one chunk from each rank s: chunk s*ranks+d.
	AllToAll
	// SendRecv leaves on each rank the input of the rank before it, as the
	// benchmark of that name does: chunk r is the input of rank r.
	SendRecv
	// Barrier lets no rank leave before every rank has come. It is an AllGather
	// of one byte a rank.
	Barrier
)

// Collectives lists every collective.
var Collectives = []Collective{
	AllReduce, ReduceScatter, AllGather, Broadcast, Reduction,
	Gather, Scatter, AllToAll, SendRecv, Barrier,
}

var collectives = [...]string{
	AllReduce: "allreduce", ReduceScatter: "reducescatter", AllGather: "allgather",
	Broadcast: "broadcast", Reduction: "reduce", Gather: "gather", Scatter: "scatter",
	AllToAll: "alltoall", SendRecv: "sendrecv", Barrier: "barrier",
}

// Valid reports whether c is one of the collectives.
func (c Collective) Valid() bool { return int(c) < len(collectives) }

func (c Collective) String() string {
	if !c.Valid() {
		return fmt.Sprintf("collective(%d)", uint8(c))
	}
	return collectives[c]
}

// Rooted reports whether one rank, the root, has a role of its own in c.
func (c Collective) Rooted() bool {
	return c == Broadcast || c == Reduction || c == Gather || c == Scatter
}

// ParseCollective turns a name such as "allreduce" into its Collective.
func ParseCollective(name string) (Collective, error) {
	for i, n := range collectives {
		if n == name {
			return Collective(i), nil
		}
	}
	return 0, fmt.Errorf("unknown collective %q (one of %s)", name, strings.Join(collectives[:], " "))
}
