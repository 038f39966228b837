package ordering

import (
	"testing"
	"time"

	"ringlane/internal/model/weakmem"
)

// designs is every protocol, in sizes small enough to explore and large enough
// that slots are used again. The large ones are explored as they are, and not
// once for each change.
var designs = []struct {
	name  string
	large bool
	build func(change) *design
}{
	{"simple", false, simpleStream(1, 2, 4, false)},
	{"simple, 2 slots", false, simpleStream(2, 2, 4, false)},
	{"simple, asleep", false, simpleStream(1, 1, 2, true)},
	{"simple, 2 asleep", true, simpleStream(1, 2, 2, true)},
	{"answers", false, simpleAnswers(1, 3)},
	{"answers, 2 slots", false, simpleAnswers(2, 3)},
	{"ll", false, llStream(1, 4, false)},
	{"ll, 2 readers", false, llStream(2, 4, false)},
	{"ll, asleep", false, llStream(1, 2, true)},
	{"reference", false, references(false, weakmem.Plain, 2, 2, 3)},
	{"reference, 1 slot", false, references(false, weakmem.Plain, 1, 1, 3)},
	{"reference, streamed", false, references(false, weakmem.NonTemporal, 1, 2, 3)},
	{"reference by ll", false, references(true, weakmem.Plain, 1, 2, 3)},
	{"reference by ll, streamed", false, references(true, weakmem.NonTemporal, 1, 2, 3)},
	{"allreduce", false, allReduce(2)},
	{"allreduce, 3 ranks", true, allReduce(3)},
	{"oneshot", false, oneShot},
}

// TestDesigns explores every protocol as it is under every model.
func TestDesigns(t *testing.T) {
	for _, p := range designs {
		for _, m := range weakmem.Models {
			start := time.Now()
			d := p.build(change{})
			r, err := weakmem.Explore(&d.Program, m, limit)
			if err != nil {
				t.Errorf("%s: %v", p.name, err)
				continue
			}
			t.Logf("%-26s %-4v %7d states, %v", p.name, m, r.States, time.Since(start).Round(time.Millisecond))
			if r.Kind != weakmem.None {
				t.Errorf("%s under %v: %v", p.name, m, text(r))
			}
		}
	}
}

func text(r weakmem.Result) string {
	s := r.Kind.String()
	for _, line := range r.Trace {
		s += "\n    " + line
	}
	return s
}
