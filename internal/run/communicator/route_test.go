package communicator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringlane/internal/logic/collective"
	"ringlane/internal/logic/cost"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/tuning"
)

// The table of rank 0 holds for all, whatever the others were given, and for
// their groups.
func TestRankZeroChoosesForAll(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir, job := t.TempDir(), uniqueJob()
	private(t, dir)
	together(t, 3, func(cfg *Config) { cfg.Job, cfg.Rendezvous = job, dir }, func(c *Comm) error {
		// Join again, each rank with another table.
		rules := []string{"allreduce:<=1K=ring/ll;allreduce=tree/simple/4K", "allreduce=direct", "default"}
		again, err := Join(Config{Rank: c.rank, Size: 3, Job: job + "-again", Rendezvous: dir, Tune: rules[c.rank]})
		if err != nil {
			return err
		}
		defer again.Close()
		group, err := again.Group([]int{2, 1, 0})
		if err != nil {
			return err
		}
		defer group.Close()
		for _, comm := range []*Comm{again, group} {
			for count, want := range map[int]string{256: "ring/ll", 257: "tree/simple/4K"} {
				call := Call{Collective: schedule.AllReduce, Type: dtype.F32, Count: count}
				if got := comm.Route(call).String(); got != want {
					return fmt.Errorf("%d elements: %s, want %s", count, got, want)
				}
			}
			if got := comm.Route(Call{Collective: schedule.AllToAll, Count: 1}); got.Algorithm != "direct" {
				return fmt.Errorf("what the rules leave out is %v", got)
			}
			for _, n := range []int{1, 300, 5000, 100000} {
				if err := allReduceOnes(comm, n); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// A table that is changed between two calls holds from the next one on.
func TestUse(t *testing.T) {
	together(t, 3, nil, func(c *Comm) error {
		for _, text := range []string{"any=direct/ll;any=direct", "any=ring/simple/1K;any=direct", "any=tree/simple/64K;any=direct", "any=oneshot/ll;any=direct"} {
			table, err := collective.ParseTable(text)
			if err != nil {
				return err
			}
			c.Use(table)
			if got, want := c.Route(Call{Collective: schedule.AllReduce, Count: 5000}), table[0].Choice; got != want {
				return fmt.Errorf("%v, want %v", got, want)
			}
			for range 3 {
				if err := allReduceOnes(c, 5000); err != nil {
					return err
				}
			}
			if p := c.planFor(&Call{Collective: schedule.AllReduce, Type: dtype.F32, Count: 5000}, nil); p.most > 5000 && table[0].Segment == 1<<10 {
				return fmt.Errorf("%s: segments of %d elements", text, p.most)
			}
		}
		return nil
	})
}

// Whatever a table says, results are right.
func TestEveryChoiceIsRight(t *testing.T) {
	for _, n := range []int{2, 3} {
		together(t, n, nil, func(c *Comm) error {
			for _, bytes := range []int{4, 4096, 200000} {
				for _, choice := range cost.Candidates(schedule.AllReduce, bytes) {
					for _, choice := range append(cost.Segments(choice, n, bytes), choice) {
						c.Use(collective.Table{{MaxRanks: collective.NoLimit, MaxBytes: collective.NoLimit, Choice: choice}})
						if err := allReduceOnes(c, bytes/4); err != nil {
							return fmt.Errorf("%v: %w", choice, err)
						}
					}
				}
			}
			return nil
		})
	}
}

func TestBadRulesAreRefused(t *testing.T) {
	for _, rank := range []int{0, 1} {
		_, err := Join(Config{Rank: rank, Size: 2, Job: uniqueJob(), Tune: "allreduce:<=4K=magic"})
		if !errors.Is(err, Argument) || !strings.Contains(err.Error(), `RINGLANE_TUNE: rule 1, "allreduce:<=4K=magic": allreduce has no algorithm "magic"`) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// What was measured on this machine is taken, and a file that is damaged is not.
func TestTheMachinesFileIsRead(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	machine := tuning.ThisMachine("", Version)
	path, err := machine.Path()
	if err != nil {
		t.Fatal(err)
	}
	chosen := func() string {
		c, err := Join(Config{Size: 1, Job: uniqueJob()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Route(Call{Collective: schedule.AllReduce, Type: dtype.F32, Count: 1}).String()
	}
	builtIn := chosen()
	if err := (tuning.File{Machine: machine, Table: "allreduce=ring/ll;any=direct"}).Save(path); err != nil {
		t.Fatal(err)
	}
	if got := chosen(); got != "ring/ll" {
		t.Errorf("with a file: %s", got)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := chosen(); got != builtIn {
		t.Errorf("with a damaged file: %s, want %s", got, builtIn)
	}
	if left, _ := filepath.Glob(filepath.Dir(path) + "/.tune-*"); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// The cost model knows the layout of staging memory by figures of its own.
func TestCostModelKnowsTheLayout(t *testing.T) {
	for _, n := range []int{2, 8, 32, MaxRanks} {
		l, err := newLayout(n, DefaultStaging)
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(cost.Slot(n)) / float64(l.segment); got < 0.9 || got > 1.1 {
			t.Errorf("%d ranks: a slot of %d bytes, the model has %d", n, l.segment, cost.Slot(n))
		}
	}
	if cost.LendFrom != lendFrom || cost.AnsweredFrom != answeredFrom {
		t.Errorf("references from %d bytes on, or %d, the model has %d and %d", lendFrom, answeredFrom, cost.LendFrom, cost.AnsweredFrom)
	}
}
