package collective

import (
	"math"
	"slices"

	"ringlane/internal/model/schedule"
)

// The names of the protocols of a channel that a Choice names.
const (
	LL     = "ll"     // data and flag in one atomic store: needs no order of stores
	Simple = "simple" // bulk data, then a flag
)

// Choice is how a call is carried out.
type Choice struct {
	Algorithm string
	Protocol  string
	// Segment bounds the bytes of one message; 0 leaves it to the slots.
	Segment int
}

// NoLimit as a bound of a Rule lets everything pass.
const NoLimit = math.MaxInt

// Rule is one line of a Table.
type Rule struct {
	Collectives []schedule.Collective // nil: every one that has the algorithm
	MaxRanks    int
	MaxBytes    int
	Choice
}

// Table chooses for every call: the first rule that fits holds. It knows
// nothing that may differ between ranks, such as where a buffer lies.
type Table []Rule

// Choose returns the choice for c among ranks, and the zero Choice if no rule
// fits. bytes is the whole message of an AllReduce, Broadcast or Reduce, and
// what one rank contributes to (or gets from) one other rank in the rest; that
// is a chunk in all but AllReduce.
func (t Table) Choose(c schedule.Collective, ranks, bytes int) Choice {
	for _, r := range t {
		if ranks <= r.MaxRanks && bytes <= r.MaxBytes && r.covers(c) {
			return r.Choice
		}
	}
	return Choice{}
}

func (r *Rule) covers(c schedule.Collective) bool {
	if r.Collectives != nil {
		return slices.Contains(r.Collectives, c)
	}
	_, err := Find(c, r.Algorithm)
	return err == nil
}

// Complete reports whether the last rule fits every call, so that Choose always
// finds one.
func (t Table) Complete() bool {
	if len(t) == 0 {
		return false
	}
	last := &t[len(t)-1]
	return last.MaxRanks == NoLimit && last.MaxBytes == NoLimit &&
		!slices.ContainsFunc(schedule.Collectives, func(c schedule.Collective) bool { return !last.covers(c) })
}
