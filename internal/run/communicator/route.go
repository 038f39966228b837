package communicator

import (
	"slices"
	"strings"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// route is what a collective's way through the ranks does not owe to the size
// of the message.
type route struct {
	number  int // position in the registry, part of the tag
	chunks  int
	program schedule.Program
	partial bool // messages may carry partial results
}

type kernelKey struct {
	typ dtype.Type
	op  dtype.Op
}

// kernel looks each kernel up once.
func (c *Comm) kernel(typ dtype.Type, op dtype.Op) reduce.Kernel {
	key := kernelKey{typ, op}
	k := c.kernels[key]
	if k == nil {
		k = reduce.For(typ, op)
		c.kernels[key] = k
	}
	return k
}

type routeKey struct {
	collective schedule.Collective
	algorithm  string
	root       int
}

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

// dispatch chooses the program of o. The holder of driver calls it.
func (c *Comm) dispatch(o *operation) {
	algorithm, protocol := c.Route(o.call)
	o.shared, o.private = sharedSimple, privateSimple
	if protocol == collective.LL {
		o.shared, o.private = sharedLL, privateLL
	}
	key := routeKey{o.call.Collective, algorithm, o.call.Root}
	r := c.routes[key]
	if r == nil {
		r = newRoute(key, c.size, c.rank)
		c.routes[key] = r
	}
	o.route = r
}

func newRoute(key routeKey, size, rank int) *route {
	a, err := collective.Find(key.collective, key.algorithm)
	if err != nil {
		panic(err) // Route names only algorithms that exist
	}
	r := &route{chunks: a.Chunks(size)}
	for i, b := range collective.Algorithms(key.collective) {
		if b.Name == a.Name {
			r.number = i
		}
	}
	// Whether partial results travel must be the same on all ranks, since it
	// decides how large a segment is.
	for other := range size {
		for _, s := range a.Program(size, other, key.root) {
			r.partial = r.partial || s.Kind == schedule.Send && s.Value == schedule.Partial
		}
	}
	r.program = a.Program(size, rank, key.root)
	return r
}
