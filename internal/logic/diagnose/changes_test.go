package diagnose

import (
	"fmt"
	"strings"
	"testing"
)

func TestChanges(t *testing.T) {
	finding := func(code Code, s Severity, evidence ...string) Finding {
		return Finding{Code: code, Severity: s, Component: Host, Evidence: evidence}
	}
	before := []Finding{
		finding("same", Warning, "a"), finding("worse", Notice), finding("better", Fault),
		finding("again", Warning, "a"), finding("gone", Fault),
	}
	after := []Finding{
		finding("new", Fault), finding("same", Warning, "a"), finding("worse", Warning),
		finding("better", Notice), finding("again", Warning, "a", "b"),
	}
	var got []string
	for _, c := range Changes(before, after) {
		got = append(got, fmt.Sprintf("%s %s", c.Kind, c.Finding.Code))
	}
	if want := "new new, worse worse, better better, again again, gone gone"; strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
	if c := Changes(after, after); len(c) != 0 {
		t.Errorf("nothing has changed, and yet %v", c)
	}
}
