package collective

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// patterns put any number of ranks into islands.
var patterns = []struct {
	name   string
	island func(rank, ranks int) int
}{
	{"one", func(int, int) int { return 0 }},
	{"halves", func(rank, ranks int) int { return rank * 2 / ranks }},
	{"pairs", func(rank, _ int) int { return rank / 2 }},
	{"dealt", func(rank, _ int) int { return rank % 3 }},
	{"first", func(rank, _ int) int { return min(rank, 1) }},
}

func islandsBy(island func(rank, ranks int) int, ranks int) Islands {
	i := make(Islands, ranks)
	for rank := range i {
		i[rank] = island(rank, ranks)
	}
	return i
}

// shuffled is an order of ranks that has little to do with their numbers.
func shuffled(ranks int) []int {
	order := make([]int, ranks)
	for i := range order {
		order[i] = i
	}
	for i := 1; i < ranks; i++ {
		j := (i*7 + 3) % (i + 1)
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// placedCases calls f for the algorithms that depend on where ranks are.
func placedCases(f func(c schedule.Collective, a schedule.Algorithm)) {
	for _, p := range patterns {
		f(schedule.AllReduce, schedule.Algorithm{
			Name:   Hierarchical + " " + p.name,
			Chunks: one,
			Program: func(ranks, rank, root int) schedule.Program {
				return hierarchicalAllReduce(islandsBy(p.island, ranks)).Program(ranks, rank, root)
			},
		})
	}
	for _, c := range []schedule.Collective{schedule.AllReduce, schedule.ReduceScatter, schedule.AllGather} {
		a, err := Find(c, Ring)
		if err != nil {
			panic(err)
		}
		f(c, schedule.Algorithm{
			Name:   "ring in another order",
			Chunks: a.Chunks,
			Program: func(ranks, rank, root int) schedule.Program {
				return inOrder(a, shuffled(ranks)).Program(ranks, rank, root)
			},
		})
	}
}

func everyPlacedCase(f func(c schedule.Collective, a schedule.Algorithm)) {
	everyCase(f)
	placedCases(f)
}

// TestPlacedProof proves what depends on where ranks are for every number of them,
// and has a hierarchical AllReduce take the steps that are promised.
func TestPlacedProof(t *testing.T) {
	placedCases(func(c schedule.Collective, a schedule.Algorithm) {
		t.Run(fmt.Sprintf("%v/%s", c, a.Name), func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= schedule.MaxRanks; n++ {
				claim := schedule.Claim{Programs: a.Programs(n, 0), Chunks: a.Chunks(n), Goal: Goal(c, n, 0), Slots: 1}
				cost, err := claim.Prove()
				if err != nil {
					t.Fatalf("%d ranks: %v", n, err)
				}
				for _, p := range patterns {
					if a.Name == Hierarchical+" "+p.name && n > 1 {
						of := islandsBy(p.island, n).Of(n)
						k := len(of)
						// The chain begins and ends with a step in an island.
						long := len(of[0]) > 1 && len(of[max(k-2, 0)]) > 1
						if cost.Steps > 2*k || long && cost.Steps != 2*k {
							t.Fatalf("%d ranks in %d islands take %d steps", n, k, cost.Steps)
						}
					}
				}
			}
		})
	})
}

// TestRankOrder has islands that are rows of ranks combine terms as direct does, so
// that a result does not depend on which of the two is chosen.
func TestRankOrder(t *testing.T) {
	for _, p := range patterns {
		islands := islandsBy(p.island, 12)
		if !slices.IsSorted(islands) {
			continue
		}
		var terms [12][]int // that what a rank holds is made of, in order
		programs := hierarchicalAllReduce(islands).Programs(12, 0)
		for _, members := range islands.Of(12) {
			lead := members[0]
			for _, step := range programs[lead] {
				if step.Kind != schedule.Reduce {
					continue
				}
				for _, from := range step.From {
					if from.Value == schedule.Input {
						terms[lead] = append(terms[lead], from.Rank)
					} else {
						terms[lead] = append(terms[lead], terms[from.Rank]...)
					}
				}
				if step.Value == schedule.Output && !slices.Equal(terms[lead], inNumbers(12)) {
					t.Errorf("%s: combined in the order %v", p.name, terms[lead])
				}
			}
		}
	}
}

func inNumbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// crossed is what an AllReduce of a message of length 1 sends out of the island that
// most leaves: how much, from how many ranks, to how many islands; and the most that
// a rank sends or takes.
type crossed struct {
	out, ranks, islands, busiest float64
}

func cross(programs []schedule.Program, chunks int, islands Islands) (most crossed) {
	n, chunk := len(islands), 1/float64(chunks)
	sent, taken := make([]float64, n), make([]float64, n)
	left := map[int]float64{}
	senders, targets := map[[2]int]bool{}, map[[2]int]bool{}
	for rank, p := range programs {
		for _, step := range p {
			for peer := range n {
				// On GPUs what everyone reads is stored for each.
				if step.Kind != schedule.Send || peer == rank || step.Peer != peer && step.Peer != schedule.Everyone {
					continue
				}
				sent[rank] += chunk
				taken[peer] += chunk
				if from, to := islands[rank], islands[peer]; from != to {
					left[from] += chunk
					senders[[2]int{from, rank}], targets[[2]int{from, to}] = true, true
				}
			}
		}
	}
	count := func(island int, pairs map[[2]int]bool) (n float64) {
		for pair := range pairs {
			if pair[0] == island {
				n++
			}
		}
		return n
	}
	for island, out := range left {
		most.out = max(most.out, out)
		most.ranks, most.islands = max(most.ranks, count(island, senders)), max(most.islands, count(island, targets))
	}
	most.busiest = max(slices.Max(sent), slices.Max(taken))
	return most
}

// TestStreams counts what goes between islands and compares it with the table in
// docs/algorithms.md. A ring in the order of islands and a hierarchical AllReduce
// have one stream out of each island, to one other island. The ring's busiest rank
// moves the least there is to move, but its steps grow with the ranks: it is for long
// messages, the hierarchical one for those before.
func TestStreams(t *testing.T) {
	rows := rowsUnder(t, "### Islands")
	for _, shape := range [][2]int{{2, 2}, {2, 4}, {2, 8}, {3, 2}, {4, 4}, {8, 2}} {
		k, m := shape[0], shape[1]
		n := k * m
		for _, place := range []func(rank int) int{func(rank int) int { return rank / m }, func(rank int) int { return rank % k }} {
			d := Devices{Ranks: n, Islands: islandsBy(func(rank, _ int) int { return place(rank) }, n)}
			d.Order = slices.Concat(d.Islands.Of(n)...)
			for _, row := range rows {
				if row["k"] == "2" && k != 2 || row["k"] == "more" && k == 2 {
					continue
				}
				a, err := d.Schedule(schedule.AllReduce, row["AllReduce"])
				if err != nil {
					t.Fatal(err)
				}
				claim := schedule.Claim{Programs: a.Programs(n, 0), Chunks: a.Chunks(n), Goal: Goal(schedule.AllReduce, n, 0), Slots: 1}
				cost, err := claim.Prove()
				if err != nil {
					t.Fatal(err)
				}
				got := cross(claim.Programs, claim.Chunks, d.Islands)
				vars := map[string]float64{"n": float64(n), "m": float64(m), "k": float64(k), "N": 1}
				for column, counted := range map[string]float64{
					"Steps": float64(cost.Steps), "Out": got.out, "Ranks": got.ranks, "Islands": got.islands, "Busiest": got.busiest,
				} {
					if want := evaluate(t, row[column], vars); math.Abs(counted-want) > 1e-9 {
						t.Errorf("%s, %d islands of %d: docs/algorithms.md says %s = %s = %v, counted %v", a.Name, k, m, column, row[column], want, counted)
					}
				}
			}
		}
	}
}

func TestParseIslands(t *testing.T) {
	for text, want := range map[string]Islands{
		"0-3/4-7":     {0, 0, 0, 0, 1, 1, 1, 1},
		"1,3/0,2,4-7": {0, 1, 0, 1, 0, 0, 0, 0},
		"0-7":         nil,
	} {
		got, err := ParseIslands(text, 8)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, []int(got), err, []int(want))
		}
		if back, err := ParseIslands(got.String(), 8); got != nil && (err != nil || !slices.Equal(back, got)) {
			t.Errorf("%q is written as %q", text, got)
		}
	}
	for text, want := range map[string]string{
		"":          `"" is neither`,
		"0-3":       "rank 4 is missing",
		"0-8":       "rank 8 is outside 0 to 7",
		"0-4/4-7":   "rank 4 is there twice",
		"0-3/7-4":   `"7-4" is neither`,
		"0-3/four":  `"four" is neither`,
		"-1-3/4-7":  `"-1-3" is neither`,
		"0-3//4-7":  `"" is neither`,
		"0-3/4-7,7": "rank 7 is there twice",
	} {
		if _, err := ParseIslands(text, 8); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestPacedChoice has what was measured decide: as today on the paths that limits
// were measured on, less by lines and more by the ring or islands on slower ones.
func TestPacedChoice(t *testing.T) {
	reference, host := Pace{348, 0.81}, Pace{40, 1.3}
	gen3, gen4, gen5 := Pace{12, 1.7}, Pace{24, 1.5}, Pace{50, 1.3}
	for _, test := range []struct {
		pace, inside Pace
		host         bool
		islands      string
		ranks, bytes int
		want         string
	}{
		// Exactly what is chosen where nothing was measured.
		{pace: reference, ranks: 2, bytes: 64 << 10, want: "oneshot:line16:32x256"},
		{pace: reference, ranks: 2, bytes: 512 << 10, want: "oneshot:line128:128x512"},
		{pace: reference, ranks: 2, bytes: 4 << 20, want: "direct:sentinel:128x512"},
		{pace: host, host: true, ranks: 2, bytes: 64 << 10, want: "oneshot:line64:32x256"},
		{pace: host, host: true, ranks: 2, bytes: 4 << 20, want: "direct:line64:32x256"},
		{pace: host, host: true, ranks: 4, bytes: 64 << 20, want: "ring:slot:48x512"},
		// Below one switch.
		{pace: gen4, ranks: 2, bytes: 8 << 10, want: "oneshot:line16:8x128"},
		{pace: gen4, ranks: 2, bytes: 64 << 10, want: "oneshot:line16:32x256"},
		{pace: gen4, ranks: 2, bytes: 128 << 10, want: "direct:sentinel:4x512"},
		{pace: gen4, ranks: 4, bytes: 64 << 10, want: "direct:sentinel:1x512"},
		{pace: gen5, ranks: 2, bytes: 128 << 10, want: "oneshot:line16:64x256"},
		{pace: gen3, ranks: 2, bytes: 64 << 10, want: "direct:sentinel:2x512"},
		{pace: gen4, ranks: 4, bytes: 64 << 20, want: "direct:slot:128x640"},
		// Islands that are as fast inside as outside, and such that are not.
		{pace: gen4, inside: gen4, islands: "0-3/4-7", ranks: 8, bytes: 4 << 10, want: "oneshot:line16:4x128"},
		{pace: Pace{1, 3e-5}, inside: Pace{1, 1}, islands: "0-3/4-7", ranks: 8, bytes: 129, want: "oneshot:line16:4x64"}, // a flag that takes no time
		{pace: gen4, inside: gen4, islands: "0-3/4-7", ranks: 8, bytes: 16 << 10, want: "hierarchical:slot:4x768"},
		{pace: gen4, inside: gen4, islands: "0-3/4-7", ranks: 8, bytes: 512 << 10, want: "hierarchical:slot:32x768"},
		{pace: gen4, inside: gen4, islands: "0-3/4-7", ranks: 8, bytes: 16 << 20, want: "ring:slot:128x512"},
		{pace: Pace{6, 2}, inside: gen4, islands: "0-3/4-7", ranks: 8, bytes: 1 << 30, want: "hierarchical:slot:32x768"},
		{pace: gen4, inside: gen4, islands: "0-1/2-3", ranks: 4, bytes: 256 << 10, want: "hierarchical:slot:32x768"},
		{pace: gen4, inside: gen4, islands: "0/1/2/3", ranks: 4, bytes: 1 << 20, want: "ring:slot:64x512"},
		// Host memory has no islands.
		{pace: host, host: true, islands: "0-1/2-3", ranks: 4, bytes: 64 << 20, want: "ring:slot:48x512"},
	} {
		d := devices(t, test.ranks, test.host, "")
		if test.pace == gen3 || test.pace == gen4 || test.pace == gen5 || test.islands != "" && !test.host {
			d.Line = 16
		}
		d.Pace, d.Inside = test.pace, test.inside
		if test.islands != "" {
			var err error
			if d.Islands, err = ParseIslands(test.islands, test.ranks); err != nil {
				t.Fatal(err)
			}
		}
		for _, factor := range []float64{0.85, 1, 1.15} { // figures scatter
			d.Pace.Rate = test.pace.Rate * factor
			d.Inside.Rate = test.inside.Rate * factor
			if got := d.Choose(schedule.AllReduce, dtype.F32, test.bytes).String(); got != test.want {
				t.Errorf("%+v at %v times the rate: %s", test, factor, got)
			}
		}
	}
}
