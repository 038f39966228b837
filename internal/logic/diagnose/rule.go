package diagnose

import (
	"slices"
	"strings"
)

// Rule is one thing that the doctor can say.
type Rule struct {
	Code     Code
	Severity Severity
	// When says in a sentence what is true when it is said, and Unless what
	// looks the same and is healthy ("" if nothing does).
	When, Unless string
	// Needs are the facts without which it cannot judge.
	Needs []Fact
	// Explanation says why it matters.
	Explanation string
	// Now is what to do tonight, ForGood what ends it.
	Now, ForGood string
	// Follows are the codes of which this may be a consequence.
	Follows []Code

	find func(*view) []Finding
}

// Rules returns every rule, in the order of the documentation.
func Rules() []Rule {
	return slices.Concat(linkRules, registerRules, peerRules, signalRules,
		resourceRules, aerRules, slotRules, gpuRules, blindRules)
}

// Detail is what the finding's explanation says of this case, before what its
// rule says of all.
func (f *Finding) Detail() string {
	for _, r := range Rules() {
		if r.Code == f.Code {
			return strings.TrimSpace(strings.TrimSuffix(f.Explanation, r.Explanation))
		}
	}
	return f.Explanation
}

// complete fills in what a finding of the rule does not say itself.
func (r *Rule) complete(f Finding) Finding {
	f.Code = r.Code
	if f.Severity == "" {
		f.Severity = r.Severity
	}
	if f.Explanation == "" {
		f.Explanation = r.Explanation
	} else {
		f.Explanation += " " + r.Explanation
	}
	if f.Remedy == "" {
		own := *r
		if f.now != "" {
			own.Now, f.now = f.now, ""
		}
		f.Remedy = own.Remedy()
	}
	if at := ends(f.Component); at[0] != Host {
		f.Remedy = strings.NewReplacer("PORT", at[0], "BDF", at[len(at)-1]).Replace(f.Remedy)
	}
	f.Also = tidy(f.Also, f.Component)
	f.Affects = tidy(f.Affects, "")
	if f.Evidence == nil {
		f.Evidence = []string{}
	}
	return f
}

// The two halves of a remedy.
const (
	remedyNow     = "Now: "
	remedyForGood = " For good: "
)

// Remedy is what to do, now and for good.
func (r *Rule) Remedy() string {
	text := remedyNow + r.Now
	if r.ForGood != "" {
		text += remedyForGood + r.ForGood
	}
	return text
}

// SplitRemedy parts a finding's remedy into its halves again.
func SplitRemedy(remedy string) (now, forGood string) {
	now, forGood, _ = strings.Cut(strings.TrimPrefix(remedy, remedyNow), remedyForGood)
	return now, forGood
}

// tidy drops repeats, blanks and the component's own names, and keeps the
// order.
func tidy(names []string, component string) []string {
	out := []string{}
	seen := map[string]bool{"": true, component: true}
	for _, n := range ends(component) {
		seen[n] = true
	}
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}
