package diagnose

import "slices"

// ChangeKind says how a finding differs between two looks at a machine.
type ChangeKind string

// The kinds of change.
const (
	New    ChangeKind = "new"    // it was not there before
	Worse  ChangeKind = "worse"  // its severity rose
	Better ChangeKind = "better" // its severity fell
	Again  ChangeKind = "again"  // it rests on more, or other, evidence
	Gone   ChangeKind = "gone"   // it is there no more
)

// Change is one difference. Finding is as it is now, or for Gone as it was.
type Change struct {
	Kind    ChangeKind `json:"change"`
	Finding Finding    `json:"finding"`
}

// Changes lists what is different after a second look, in the order of the
// report after it, and then what is gone. A finding is the same one if code and
// component are.
func Changes(before, after []Finding) []Change {
	var changes []Change
	old := map[Reference]*Finding{}
	for i := range before {
		old[before[i].reference()] = &before[i]
	}
	seen := map[Reference]bool{}
	for _, f := range after {
		r := f.reference()
		seen[r] = true
		was := old[r]
		switch {
		case was == nil:
			changes = append(changes, Change{New, f})
		case f.Severity.rank() < was.Severity.rank():
			changes = append(changes, Change{Worse, f})
		case f.Severity.rank() > was.Severity.rank():
			changes = append(changes, Change{Better, f})
		case !slices.Equal(f.Evidence, was.Evidence):
			changes = append(changes, Change{Again, f})
		}
	}
	for _, f := range before {
		if r := f.reference(); !seen[r] {
			seen[r] = true
			changes = append(changes, Change{Gone, f})
		}
	}
	return changes
}
