package benchmark

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// sweep runs s on n ranks as goroutines and returns the results of rank 0.
func sweep(t *testing.T, n int, tune string, s Sweep) (results []Result) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for rank := range n {
		ranks.Go(func() {
			c, err := communicator.Join(communicator.Config{Rank: rank, Size: n, Job: t.Name(), Rendezvous: dir, Timeout: 30 * time.Second, Tune: tune})
			if err == nil {
				defer c.Close()
				before := c.Table().String()
				err = s.Run(c, func(r Result) error {
					results = append(results, r)
					return nil
				})
				if after := c.Table().String(); after != before {
					t.Errorf("the sweep leaves the table %s", after)
				}
			}
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	ranks.Wait()
	return results
}

var most = []schedule.Collective{
	schedule.AllReduce, schedule.ReduceScatter, schedule.AllGather, schedule.Broadcast, schedule.Reduction,
	schedule.Gather, schedule.Scatter, schedule.AllToAll, schedule.Barrier,
}

// A sweep times every candidate in both kinds of memory, and its rules name
// what it timed.
func TestSweep(t *testing.T) {
	results := sweep(t, 2, "default", Sweep{Collectives: most, Sizes: []int{8, 8192, 64 << 10}, Limit: 100 * time.Millisecond})
	seen := map[string]bool{}
	for _, r := range results {
		seen[r.Collective+" "+r.Memory] = true
		if len(r.Choices) == 0 || r.Auto != nil || slices.ContainsFunc(r.Choices, func(c Timed) bool { return !(c.Time > 0) }) {
			t.Errorf("%+v", r)
		}
	}
	if len(seen) != 2*len(most)-1 { // a barrier has no buffers
		t.Errorf("%d kinds of results: %v", len(seen), seen)
	}
	rules, observed, err := Rules(2, 2, results)
	if err != nil || len(observed) < len(results) {
		t.Errorf("%d observations, %v", len(observed), err)
	}
	for _, k := range most {
		if choice := rules.Choose(k, 2, 1<<30); choice == (collective.Choice{}) {
			t.Errorf("no rule for %v", k)
		} else if _, err := collective.Find(k, choice.Algorithm); err != nil {
			t.Error(err)
		}
	}
}

// A check times the table in force beside the fixed choices.
func TestCheck(t *testing.T) {
	results := sweep(t, 3, "allreduce=ring/simple/4K", Sweep{Collectives: most[:1], Sizes: []int{16 << 10}, Limit: 50 * time.Millisecond, Check: true})
	if len(results) != 2 || results[0].Auto == nil || results[0].Auto.Choice != "ring/simple/4K" || !(results[0].Auto.Time > 0) {
		t.Errorf("%+v", results)
	}
	for _, c := range results[0].Choices {
		if strings.Count(c.Choice, "/") != 1 {
			t.Errorf("%s is no fixed choice", c.Choice)
		}
	}
}

// Rules follow what is fastest, in the kind of memory where a choice does worst.
func TestRulesFollowTimes(t *testing.T) {
	result := func(bytes int, memory string, oneshot, direct float64) Result {
		return Result{Collective: "allreduce", Bytes: bytes, Memory: memory, Choices: []Timed{{"oneshot/simple", oneshot}, {"direct/simple", direct}}}
	}
	rules, _, err := Rules(4, 4, []Result{
		result(8, Ordinary, 1, 2),
		result(4096, Ordinary, 2, 2.2), result(4096, Window, 3, 1), // oneshot loses more
		result(1<<20, Ordinary, 20, 60), result(1<<20, Window, 11, 10), // direct does
	})
	if err != nil || rules.Choose(schedule.AllReduce, 4, 1<<20).Algorithm != "oneshot" || rules.Choose(schedule.AllReduce, 4, 8).Algorithm != "oneshot" || rules.Choose(schedule.AllReduce, 4, 4096).Algorithm != "direct" {
		t.Errorf("%v, %v", rules, err)
	}
	for _, bad := range []Result{{Collective: "magic"}, {Collective: "allreduce", Choices: []Timed{{"direct/magic", 1}}}} {
		if _, _, err := Rules(2, 2, []Result{bad}); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
