package diagnose

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

//go:generate go test -run ^TestDocument$ -update .

var update = flag.Bool("update", false, "write docs/doctor.md again")

const documentPath = "../../../docs/doctor.md"

// document is docs/doctor.md, from the rules.
func document() string {
	var b strings.Builder
	b.WriteString(`<!-- Code generated from internal/logic/diagnose (go generate ./...). DO NOT EDIT. -->

# What ` + "`ringlane doctor`" + ` can say

Each finding has a code, a severity, a component (an address ` + "`dddd:bb:dd.f`" + `, a link ` + "`A<->B`" + ` with the
upstream end first, or ` + "`host`" + `), evidence, an explanation, a remedy, and whom it affects. One incident is one
finding: both ends of a link, several functions of a card and any number of repeats are one. Codes are never
renamed and never used for something else.

| severity | meaning | exit status |
|---|---|---|
| fault | training is harmed or will be: act | 2 |
| warning | likely to become a fault, or costs real performance | 1 |
| notice | true and worth knowing; needs no action | 0 |
| blind | what was needed could not be seen; always said, never makes the status worse | 0 |

Exit status 3: the input could not be read at all. What follows from a real removal is a notice, whatever its code
says below; any other consequence (` + "`caused_by`" + `) keeps its severity.

**Counting.** One event is one error record of one link: a record that both ends print within a second is one,
"Multiple" is at least two, the same status word after a failed recovery is none. Where counters (` + "`aer_dev_*`" + `)
and text disagree, counters win. ` + "`--storm-minute`, `--storm-hour` and `--storm-total`" + ` set what a storm is.

| code | severity | said when |
|---|---|---|
`)
	for _, r := range Rules() {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s |\n", r.Code, r.Code, r.Severity, r.When)
	}
	for _, r := range Rules() {
		fmt.Fprintf(&b, "\n## %s\n\n%s: %s.\n", r.Code, r.Severity, r.When)
		if r.Unless != "" {
			fmt.Fprintf(&b, "\nNot said for: %s.\n", r.Unless)
		}
		fmt.Fprintf(&b, "\n%s\n\n", r.Explanation)
		fmt.Fprintf(&b, "* Now: %s\n", r.Now)
		if r.ForGood != "" {
			fmt.Fprintf(&b, "* For good: %s\n", r.ForGood)
		}
		if len(r.Needs) > 0 {
			var needs []string
			for _, n := range r.Needs {
				needs = append(needs, fmt.Sprintf("%s (%s)", n.Name, n.How))
			}
			fmt.Fprintf(&b, "* Needs: %s\n", strings.Join(needs, "; "))
		}
		if len(r.Follows) > 0 {
			var codes []string
			for _, c := range r.Follows {
				codes = append(codes, "`"+string(c)+"`")
			}
			fmt.Fprintf(&b, "* May follow from: %s\n", strings.Join(codes, ", "))
		}
	}
	return b.String()
}

func TestDocument(t *testing.T) {
	want := document()
	if *update {
		if err := os.WriteFile(documentPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s does not agree with the rules (run go generate ./internal/logic/diagnose)", documentPath)
	}
}

// published are the codes and severities that are a promise to users.
var published = map[Code]Severity{
	"link-degraded": Fault, "link-idle-speed": Notice, "link-narrow-slot": Notice, "link-target-capped": Fault,
	"uplink-shared": Notice, "registers-all-ones": Fault, "virtual-hardware": Notice, "acs-redirect": Fault,
	"iommu-translated": Warning, "iommu-page-fault": Fault, "p2p-unavailable": Warning, "socket-crossing": Notice,
	"numa-unknown": Notice, "aspm-suspect": Warning, "mps-mismatch": Fault, "bus-numbers-exhausted": Fault,
	"bus-range-conflict": Fault, "bar-unassigned": Fault, "aer-corrected-storm": Warning, "aer-corrected-rare": Notice,
	"aer-nonfatal": Fault, "aer-fatal": Fault, "surprise-down": Fault, "dpc-contained": Fault, "hotplug-removed": Notice,
	"device-lost": Fault, "software-access": Warning, "fabric-congestion": Warning, "error-latched": Notice,
	"gpu-fault": Warning, "power-insufficient": Fault, "aer-firmware-owned": Blind, "log-rate-limited": Blind,
	"unprivileged-capture": Blind, "not-measured": Blind,
}

func TestPublishedCodes(t *testing.T) {
	rules := map[Code]Rule{}
	for _, r := range Rules() {
		if _, twice := rules[r.Code]; twice {
			t.Errorf("%s has two rules", r.Code)
		}
		rules[r.Code] = r
		if r.When == "" || r.Explanation == "" || r.Now == "" || r.find == nil {
			t.Errorf("%s is incomplete", r.Code)
		}
	}
	for code, severity := range published {
		if r, ok := rules[code]; !ok || r.Severity != severity {
			t.Errorf("%s: severity %q, published as %s", code, r.Severity, severity)
		}
	}
	for code, r := range rules {
		if _, ok := published[code]; !ok {
			t.Errorf("%s is not published", code)
		}
		for _, f := range r.Follows {
			if _, ok := published[f]; !ok {
				t.Errorf("%s may follow from %s, which does not exist", code, f)
			}
		}
	}
	for code, causes := range standing {
		for _, c := range causes {
			if !contains(rules[code].Follows, c) {
				t.Errorf("%s is linked to %s, but its rule does not say so", code, c)
			}
		}
	}
}

func contains(list []Code, c Code) bool {
	for _, x := range list {
		if x == c {
			return true
		}
	}
	return false
}

// TestReference compares with the public table where it is at hand.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../../../../shared/reference/doctor-codes.md")
	if err != nil {
		t.Skip("the reference table is not here")
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(text), -1)
	if len(rows) != len(published) {
		t.Errorf("%d codes in the table, %d here", len(rows), len(published))
	}
	for _, row := range rows {
		if published[Code(row[1])] != Severity(row[2]) {
			t.Errorf("%s is a %s in the table, a %q here", row[1], row[2], published[Code(row[1])])
		}
	}
}
