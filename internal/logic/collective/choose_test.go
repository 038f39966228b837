package collective

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringlane/internal/model/schedule"
)

func TestChooseTakesTheFirstRuleThatFits(t *testing.T) {
	table, err := ParseTable(`
		allreduce,reduce:n<=2:<=4K=tree/ll
		allreduce:<=4K=oneshot
		any=ring/simple/64K
		any=direct`)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		c            schedule.Collective
		ranks, bytes int
		want         string
	}{
		{schedule.AllReduce, 2, 4096, "tree/ll"},
		{schedule.AllReduce, 3, 4096, "oneshot/simple"},
		{schedule.AllReduce, 2, 4097, "ring/simple/64K"},
		{schedule.Reduction, 2, 8, "tree/ll"},
		{schedule.Reduction, 3, 8, "direct/simple"}, // has no ring
	} {
		if got := table.Choose(test.c, test.ranks, test.bytes).String(); got != test.want {
			t.Errorf("%v, %d ranks, %d bytes: %s, want %s", test.c, test.ranks, test.bytes, got, test.want)
		}
	}
	if got := (Table{}).Choose(schedule.AllReduce, 2, 8); got != (Choice{}) {
		t.Errorf("an empty table chooses %v", got)
	}
}

// TestDefaultsChooseWhatExists checks every choice of the built-in table.
func TestDefaultsChooseWhatExists(t *testing.T) {
	for _, c := range schedule.Collectives {
		for ranks := 1; ranks <= schedule.MaxRanks; ranks++ {
			for bytes := 0; bytes <= 1<<30; bytes = 2*bytes + 1 {
				choice := Defaults().Choose(c, ranks, bytes)
				if _, err := Find(c, choice.Algorithm); err != nil {
					t.Error(err)
				}
				if choice.Protocol != LL && choice.Protocol != Simple {
					t.Errorf("no protocol %q", choice.Protocol)
				}
			}
		}
	}
}

func TestFindUnknown(t *testing.T) {
	_, err := Find(schedule.AllReduce, "bogus")
	if err == nil || !strings.Contains(err.Error(), "one of direct oneshot ring tree") {
		t.Error(err)
	}
}

func TestParseTableSaysWhereItFails(t *testing.T) {
	for text, want := range map[string]string{
		"allreduce":                     `rule 1, "allreduce": it chooses nothing`,
		"allreduce:<=4K":                "it chooses nothing",
		"=ring":                         "it chooses nothing",
		"any=direct;allreduce=":         `rule 2, "allreduce=": allreduce has no algorithm ""`,
		"allreduce=tree;nonsense=ring":  `rule 2, "nonsense=ring": unknown collective "nonsense"`,
		"allreduce:4K=ring":             `"4K" is not a bound`,
		"allreduce:<=4X=ring":           `"4X" is not a size`,
		"allreduce:n<=0=ring":           `"n<=0" is no bound of ranks`,
		"allreduce:n<=65=ring":          `"n<=65" is no bound of ranks`,
		"allreduce:n<=2:n<=3=ring":      `"n<=3" bounds the same again`,
		"allreduce:<=2:<=3=ring":        `"<=3" bounds the same again`,
		"alltoall=ring":                 `alltoall has no algorithm "ring"`,
		"allreduce,gather=ring":         `gather has no algorithm "ring"`,
		"any=bogus":                     `no collective has an algorithm "bogus"`,
		"any=direct/udp":                `there is no protocol "udp"`,
		"any=direct/simple/8":           "too small",
		"any=direct/simple/64K/more":    "more than ALGORITHM/PROTOCOL/SEGMENT",
		strings.Repeat(" ", MaxTable+1): "too long",
	} {
		if _, err := ParseTable(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func drawTable(t *rapid.T) Table {
	var table Table
	for range rapid.IntRange(0, 8).Draw(t, "rules") {
		var r Rule
		if !rapid.Bool().Draw(t, "any") {
			r.Collectives = rapid.SliceOfNDistinct(rapid.SampledFrom(schedule.Collectives), 1, 3, rapid.ID).Draw(t, "collectives")
		}
		limit := func(what string, generator *rapid.Generator[int]) int {
			if rapid.Bool().Draw(t, what+" unlimited") {
				return NoLimit
			}
			return generator.Draw(t, what)
		}
		r.MaxRanks = limit("ranks", rapid.IntRange(1, schedule.MaxRanks))
		r.MaxBytes = limit("bytes", rapid.IntRange(0, 1<<40))
		r.Algorithm = "direct" // which every collective has
		r.Protocol = rapid.SampledFrom([]string{LL, Simple}).Draw(t, "protocol")
		if rapid.Bool().Draw(t, "segmented") {
			r.Segment = rapid.IntRange(MinSegment, 1<<30).Draw(t, "segment")
		}
		table = append(table, r)
	}
	return table
}

func TestTableReadsAsItWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := drawTable(t)
		read, err := ParseTable(table.String())
		if err != nil || !reflect.DeepEqual(table, read) {
			t.Fatalf("%s reads %s, %v", table, read, err)
		}
	})
}

// FuzzParseTable: what is read at all is written as something that reads the
// same.
func FuzzParseTable(f *testing.F) {
	f.Add(Defaults().String())
	f.Add("allreduce:n<=2:<=4K=oneshot/simple;allreduce=direct/simple/128K")
	f.Add("any:<=0=ring/ll\n\n; barrier = direct")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := ParseTable(text)
		if err != nil {
			return
		}
		again, err := ParseTable(table.String())
		if len(table.String()) <= MaxTable && (err != nil || !reflect.DeepEqual(table, again)) {
			t.Fatalf("%q is written %q, which reads %v, %v", text, table, again, err)
		}
	})
}

func ExampleTable_Text() {
	table, _ := ParseTable("allreduce:n<=2:<=4K=oneshot;allgather,reduce:<=64K=direct/ll;any=direct/simple/64K")
	fmt.Print(table.Text())
	// Output:
	// collective        ranks<=  bytes<=  algorithm  protocol  segment
	// allreduce               2       4K  oneshot    simple       slot
	// allgather reduce      any      64K  direct     ll           slot
	// any                   any      any  direct     simple        64K
}
