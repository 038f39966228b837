package diagnose

import "slices"

// standing are causes that need no time to be told: a finding of the code
// follows from one of these on the same device or link.
var standing = map[Code][]Code{
	"dpc-contained":      {"mps-mismatch"},
	"aer-fatal":          {"mps-mismatch"},
	"aer-nonfatal":       {"bus-range-conflict"},
	"registers-all-ones": {"device-lost"},
	"device-lost":        {"power-insufficient"},
}

// addCauses names the causes that only show when all findings are there.
func addCauses(findings []Finding) {
	for i := range findings {
		f := &findings[i]
		if f.CausedBy != nil {
			continue
		}
		for _, code := range standing[f.Code] {
			j := slices.IndexFunc(findings, func(c Finding) bool { return c.Code == code && touch(&c, f) })
			if j >= 0 {
				r := findings[j].reference()
				f.CausedBy = &r
				break
			}
		}
	}
}

// touch reports whether a device of f's own component is one of c's.
func touch(c, f *Finding) bool {
	names := append(ends(c.Component), c.Also...)
	names = append(names, c.Affects...)
	for _, n := range ends(f.Component) {
		if n != Host && slices.Contains(names, n) {
			return true
		}
	}
	return false
}
