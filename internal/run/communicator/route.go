package communicator

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/tuning"
)

// Route says how a call is carried out. It depends on nothing that may differ
// between ranks.
func (c *Comm) Route(call Call) collective.Choice {
	bytes := call.Count * call.Type.Size()
	if call.SendCounts != nil {
		bytes = collective.NoLimit
	}
	choice := c.table.Choose(call.Collective, c.size, bytes)
	if a := c.cfg.Algorithm; a != "" && a != auto {
		if _, err := collective.Find(call.Collective, a); err == nil {
			choice.Algorithm = a
		}
	}
	if p := c.cfg.Protocol; p != "" && p != auto {
		choice.Protocol = p
	}
	return choice
}

// Table is what this communicator chooses by, the same on all ranks.
func (c *Comm) Table() collective.Table { return c.table }

// Use makes t the table for the calls that follow. All ranks must do so between
// the same two calls, with the same table and no call under way; its last rule
// must fit every call.
func (c *Comm) Use(t collective.Table) {
	c.driver.Lock()
	c.table = t
	for i := range c.plans {
		c.plans[i].route = nil
		c.plans[i].desc = description{count: -1} // no call that is looked up has it
	}
	c.leave()
}

const auto = "auto"

// overrides checks what Config says about the choice.
func overrides(cfg *Config) error {
	if _, err := collective.ParseTable(cfg.tuneText()); err != nil {
		return failf(Argument, "join: %s: %v", tuning.Variable, err)
	}
	if p := cfg.Protocol; p != "" && p != auto && p != collective.LL && p != collective.Simple {
		return failf(Argument, "join: there is no protocol %q (RINGLANE_PROTOCOL is one of auto, %s, %s)", p, collective.LL, collective.Simple)
	}
	if cfg.Algorithm == "" || cfg.Algorithm == auto {
		return nil
	}
	names := []string{auto}
	for _, c := range schedule.Collectives {
		for _, a := range collective.Algorithms(c) {
			if a.Name == cfg.Algorithm {
				return nil
			}
			if !slices.Contains(names, a.Name) {
				names = append(names, a.Name)
			}
		}
	}
	return failf(Argument, "join: there is no algorithm %q (RINGLANE_ALGO is one of %s)", cfg.Algorithm, strings.Join(names, ", "))
}

// tuneText is Tune without the word that stands for no rules.
func (cfg *Config) tuneText() string {
	if cfg.Tune == tuning.BuiltIn {
		return ""
	}
	return cfg.Tune
}

// chooseBy is the table that rank 0 hands to all.
func (cfg *Config) chooseBy() (collective.Table, error) {
	if cfg.table != nil {
		return *cfg.table, nil
	}
	found, err := tuning.Find(cfg.Tune, tuning.ThisMachine("", Version))
	if err != nil {
		return nil, failf(Argument, "join: %s: %v", tuning.Variable, err)
	}
	if found.Warning != nil {
		fmt.Fprintf(os.Stderr, "ringlane: %v\n", found.Warning)
	}
	return found.Table, nil
}
