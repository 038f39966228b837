package tuning

import (
	"fmt"
	"slices"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/schedule"
)

// Correct takes over rules that were measured among a number of ranks. What was
// measured of other collectives stays.
func (f *File) Correct(ranks int, rules collective.Table) error {
	old, err := collective.ParseTable(f.Measured[ranks])
	if err != nil {
		return fmt.Errorf("rules for %d ranks: %w", ranks, err)
	}
	kept := slices.DeleteFunc(old, func(r collective.Rule) bool {
		return slices.ContainsFunc(r.Collectives, func(c schedule.Collective) bool {
			return slices.ContainsFunc(rules, func(n collective.Rule) bool { return slices.Contains(n.Collectives, c) })
		})
	})
	if f.Measured == nil {
		f.Measured = map[int]string{}
	}
	f.Measured[ranks] = append(kept, rules...).String()
	return nil
}

// Rebuild makes the table of what was measured, and of the model for the rest.
func (f *File) Rebuild() (collective.Table, error) {
	measured := map[int]collective.Table{}
	for ranks, text := range f.Measured {
		rules, err := collective.ParseTable(text)
		if err != nil {
			return nil, fmt.Errorf("rules for %d ranks: %w", ranks, err)
		}
		measured[ranks] = rules
	}
	table := f.Parameters.Table(measured)
	f.Table = table.String()
	return table, nil
}
