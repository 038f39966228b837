package collective

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"ringlane/internal/model/schedule"
)

// The names of the protocols of a channel that a Rule chooses between.
const (
	LL     = "ll"     // data and flag in one atomic store: the fastest for small segments
	Simple = "simple" // bulk data, then a flag
)

// NoLimit as a bound of a Rule lets everything pass.
const NoLimit = math.MaxInt

// Rule is one line of a Table.
type Rule struct {
	Collectives []schedule.Collective // nil: every collective
	MaxRanks    int
	MaxBytes    int
	Algorithm   string
	Protocol    string
}

// Table chooses an algorithm and a protocol: the first rule that fits holds.
type Table []Rule

// Defaults is the table for ranks that share memory. Its constants follow from
// the counts in docs/algorithms.md with about 0.3 us for a step, 0.1 us for
// each message that a rank reads or writes and 5 GB/s for their bytes; measured
// tuning replaces them later.
//
//   - Up to 8 ranks, one step and n-1 reads beat everything for as long as
//     reading the whole message n-1 times costs less than a second step.
//   - Above, that point comes at about 1 KiB, where cutting the message into
//     chunks starts to pay; above 32 ranks the 3(n-1)+1 messages of direct cost
//     more than the logarithmic number of tree.
//   - ll moves 4 bytes of data in each 8, so it ends where bytes start to count.
func Defaults() Table {
	allReduce := []schedule.Collective{schedule.AllReduce}
	return Table{
		{allReduce, 8, 8 << 10, "oneshot", LL},
		{allReduce, 32, 1 << 10, "oneshot", LL},
		{allReduce, 32, 8 << 10, "direct", LL},
		{allReduce, NoLimit, 8 << 10, "tree", LL},
		{allReduce, NoLimit, NoLimit, "direct", Simple},
		{nil, NoLimit, 4 << 10, "direct", LL},
		{nil, NoLimit, NoLimit, "direct", Simple},
	}
}

// Choose returns the algorithm and protocol for c among ranks. bytes is the
// whole message of an AllReduce, Broadcast or Reduce, and what one rank
// contributes to (or gets from) one other rank in the rest; that is a chunk in
// all but AllReduce.
func (t Table) Choose(c schedule.Collective, ranks, bytes int) (algorithm, protocol string) {
	for _, r := range t {
		if (r.Collectives == nil || slices.Contains(r.Collectives, c)) && ranks <= r.MaxRanks && bytes <= r.MaxBytes {
			return r.Algorithm, r.Protocol
		}
	}
	return "", ""
}

// Choose is Defaults().Choose.
func Choose(c schedule.Collective, ranks, bytes int) (algorithm, protocol string) {
	return Defaults().Choose(c, ranks, bytes)
}

// String is the table as text, a line a rule.
func (t Table) String() string {
	limit := func(n int) string {
		if n == NoLimit {
			return "any"
		}
		return fmt.Sprint(n)
	}
	var b strings.Builder
	line := func(cells ...any) { fmt.Fprintf(&b, "%-10s  %7s  %7s  %-9s  %s\n", cells...) }
	line("collective", "ranks<=", "bytes<=", "algorithm", "protocol")
	for _, r := range t {
		names := "any"
		if r.Collectives != nil {
			names = strings.Trim(fmt.Sprint(r.Collectives), "[]")
		}
		line(names, limit(r.MaxRanks), limit(r.MaxBytes), r.Algorithm, r.Protocol)
	}
	return b.String()
}
