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
	LL     = "ll"     // data and flag in one atomic store: needs no order of stores
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

// Defaults is the table for ranks that share memory, read off runs of
//
//	ringlane bench allreduce -n N --algo A --protocol P --sizes 8,64,…,64K
//
// for every A and P and N = 2, 4, 8, on a 16-core Xeon and a 2-core EPYC (Zen 4)
// on 2026-11-29. The lines for more ranks continue what those show.
//
//   - One step and n-1 reads win for as long as reading the whole message n-1
//     times costs less than a second step: up to 4 KiB for 2 ranks, 2 KiB for
//     4, 1 KiB for 8. Beyond, every rank reduces its own chunk.
//   - Above 32 ranks the 3(n-1)+1 messages of direct cost a small message more
//     than the logarithmic number of tree does.
//   - simple is nowhere slower than ll: memory that caches keep coherent and in
//     order does not need a flag in every word, and ll takes twice the lines.
//     ll is for windows that give no such order.
func Defaults() Table {
	allReduce := []schedule.Collective{schedule.AllReduce}
	return Table{
		{allReduce, 2, 4 << 10, "oneshot", Simple},
		{allReduce, 4, 2 << 10, "oneshot", Simple},
		{allReduce, 8, 1 << 10, "oneshot", Simple},
		{allReduce, 32, 256, "oneshot", Simple},
		{allReduce, 32, NoLimit, "direct", Simple},
		{allReduce, NoLimit, 8 << 10, "tree", Simple},
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
