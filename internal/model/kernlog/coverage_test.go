package kernlog

import (
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// sharedFolder finds the folder of reference data: RINGLANE_SHARED, or one
// named shared beside the repository.
func sharedFolder(t testing.TB) string {
	if folder := os.Getenv("RINGLANE_SHARED"); folder != "" {
		return folder
	}
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
		shared := filepath.Join(folder, "shared")
		if info, err := os.Stat(filepath.Join(shared, "reference")); err == nil && info.IsDir() {
			return shared
		}
	}
	t.Skip("no shared folder beside the repository (set RINGLANE_SHARED to one)")
	return ""
}

// notPCIe are templates that the list holds by accident, each with the reason.
var notPCIe = []struct {
	pattern *regexp.Regexp
	reason  string
}{
	{regexp.MustCompile(`[a-z_]+\+NxH/NxH`), "stack trace or lock dump that passes through pciehp"},
	{regexp.MustCompile(`irq/N-pciehp`), "task that a warning names"},
	{regexp.MustCompile(`(__pfx_|^)pciehp_\w+( \(drivers.*)?$`), "stack trace, decoded"},
	{regexp.MustCompile(`\[N\] BAD `), "hex dump"},
	{regexp.MustCompile(`NETLINK`), "network protocols"},
	{regexp.MustCompile(`USBN _OSC|_OSC evaluated|_OSC native thermal|\\_SB_\._OSC`), "_OSC of USB and processors"},
	{regexp.MustCompile(`^(DPC|pciehp) [a-z]|^DPC and|^DPC recovery\.|^DPC with|should$`), "prose"},
	{regexp.MustCompile(`^Hardware name:|^DMI:`), "name of a machine"},
	{regexp.MustCompile(`^AMD-Vi: Extended features`), "feature words of an IOMMU"},
	{regexp.MustCompile(`<Dev ID>|<endpoint>`), "text with a placeholder"},
}

var lone = regexp.MustCompile(`N`)

// example turns a template into a line: BDF and numbers stand for any.
func example(template string) string {
	text := strings.NewReplacer("BDF", "0000:03:00.0", "HHHHHHHH", "10000000", "HHHH", "1000", "NxH", "0x10").Replace(template)
	for _, word := range []string{"Non-Fatal", "NonFatal", "Not ", "NMI", "NoCompl", "ERR_NONFATAL", "Native", "PNP", "PCIe N", "No ", "Notify"} {
		text = strings.ReplaceAll(text, word, strings.ReplaceAll(word, "N", "\x01"))
	}
	var out strings.Builder
	last := 0
	for _, at := range lone.FindAllStringIndex(text, -1) {
		i := at[0]
		out.WriteString(text[last:i])
		last = i + 1
		before, next := byte(' '), byte(' ')
		if i > 0 {
			before = text[i-1]
		}
		if i+1 < len(text) {
			next = text[i+1]
		}
		switch {
		case 'A' <= before && before <= 'Z' && before != 'D' && before != 'T' && before != 'A' && next >= 'A' && next <= 'Z':
			out.WriteByte('N')
		case isHex(before) && before != 'D' || isHex(next):
			out.WriteByte('1')
		default:
			out.WriteString("12")
		}
	}
	out.WriteString(text[last:])
	return strings.ReplaceAll(out.String(), "\x01", "N")
}

// understood reports whether a line becomes part of an event, after a bus
// error or containment of its device, whose record it may belong to; or is knowingly ignored.
func understood(text string) bool {
	l := line{message: uncarry(clean(text)).text}
	l.locate()
	found := false
	s := NewScanner(func(e Entry) {
		for _, raw := range e.Raw {
			found = found || strings.Contains(raw, clean(text))
		}
	})
	if l.device != "" {
		before := ": PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
		if strings.Contains(l.text, "aer_") {
			before = ": aer_status: 0x00000001, aer_mask: 0x00000000"
		} else if strings.HasPrefix(l.text, "DPC: ") {
			before = ": DPC: containment event, status:0x1f01 source:0x0000"
		}
		s.Line(l.driver + " " + string(l.device) + before)
	}
	s.Line(text)
	s.Flush()
	return found || ignored(&l) != ""
}

func TestTemplateCoverage(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(sharedFolder(t), "reference", "kernel-line-templates.tsv"))
	if err != nil {
		t.Skip(err)
	}
	type miss struct {
		weight   int
		template string
	}
	var misses []miss
	total, covered, templates, aside := 0, 0, 0, 0
	for row := range strings.Lines(string(list)) {
		fields := strings.SplitN(strings.TrimRight(row, "\n"), "\t", 4)
		if len(fields) != 4 {
			continue
		}
		weight, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatalf("row %q: %v", row, err)
		}
		unrelated := false
		for _, n := range notPCIe {
			unrelated = unrelated || n.pattern.MatchString(fields[3])
		}
		if unrelated {
			aside += weight
			continue
		}
		templates++
		total += weight
		if understood(example(fields[3])) {
			covered += weight
		} else {
			misses = append(misses, miss{weight, fields[3] + "   <= " + example(fields[3])})
		}
	}
	share := 100 * float64(covered) / float64(total)
	t.Logf("%.2f %% of %d lines in %d PCIe templates typed or knowingly ignored (%d lines of other kinds left out)", share, total, templates, aside)
	sort.SliceStable(misses, func(i, j int) bool { return misses[i].weight > misses[j].weight })
	for _, m := range misses {
		t.Logf("not understood: %4d  %s", m.weight, m.template)
	}
	if share < 97 {
		t.Errorf("%.2f %% covered, want 97 %% or more", share)
	}
}
