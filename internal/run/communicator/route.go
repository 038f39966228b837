package communicator

import (
	"slices"
	"strings"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/schedule"
)

// Route says which algorithm and protocol a call takes. It depends on nothing
// that may differ between ranks.
func (c *Comm) Route(call Call) (algorithm, protocol string) {
	bytes := call.Count * call.Type.Size()
	if call.SendCounts != nil {
		bytes = collective.NoLimit
	}
	algorithm, protocol = c.table.Choose(call.Collective, c.size, bytes)
	if a := c.cfg.Algorithm; a != "" && a != auto {
		if _, err := collective.Find(call.Collective, a); err == nil {
			algorithm = a
		}
	}
	if p := c.cfg.Protocol; p != "" && p != auto {
		protocol = p
	}
	return algorithm, protocol
}

const auto = "auto"

// overrides checks the names in Config.Algorithm and Config.Protocol.
func overrides(cfg *Config) error {
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
