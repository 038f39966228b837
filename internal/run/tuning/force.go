package tuning

import (
	"errors"
	"fmt"
	"io/fs"

	"ringlane/internal/logic/collective"
)

// Variable is the environment variable whose rules come before all others.
const Variable = "RINGLANE_TUNE"

// BuiltIn as the value of Variable does without the machine's file.
const BuiltIn = "default"

// InForce is a table and where its rules come from.
type InForce struct {
	Table   collective.Table
	Sources []string // in the order in which their rules are asked
	Warning error    // why a file was passed over
}

// Find puts together the table in force on machine m: the rules of the text,
// then those that were measured here, or where there are none the built-in
// ones.
func Find(text string, m Machine) (t InForce, err error) {
	if text == BuiltIn {
		return InForce{Table: collective.Defaults(), Sources: []string{"built in"}}, nil
	}
	own, err := collective.ParseTable(text)
	if err != nil {
		return t, err
	}
	if own != nil {
		t.Sources = append(t.Sources, Variable)
	}
	base, from := collective.Defaults(), "built in"
	if path, err := m.Path(); err == nil {
		switch file, measured, err := Load(path, m); {
		case err == nil:
			base, from = measured, fmt.Sprintf("%s, measured %s", path, file.Date)
		case !errors.Is(err, fs.ErrNotExist):
			t.Warning = err
		}
	}
	if t.Table = append(own, base...); len(t.Table.String()) > collective.MaxTable {
		return t, fmt.Errorf("with the %d rules of this machine the table is too long (at most %d characters together)", len(base), collective.MaxTable)
	}
	t.Sources = append(t.Sources, from)
	return t, nil
}
