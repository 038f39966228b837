package ordering

import (
	"fmt"
	"strings"
	"testing"

	"ringlane/internal/model/weakmem"
)

// caught is what the explorer finds under SC, TSO and the weak model.
type caught [3]weakmem.Kind

var (
	harmless  = caught{}
	wrong     = caught{weakmem.Wrong, weakmem.Wrong, weakmem.Wrong}
	lost      = caught{weakmem.Lost, weakmem.Lost, weakmem.Lost}
	stuck     = caught{weakmem.Stuck, weakmem.Stuck, weakmem.Stuck}
	tsoLost   = caught{weakmem.None, weakmem.Lost, weakmem.Lost}
	weakLost  = caught{weakmem.None, weakmem.None, weakmem.Lost}
	weakWrong = caught{weakmem.None, weakmem.None, weakmem.Wrong}
)

// orders is what an atomic at a site may be weakened to.
type orders []weakmem.Order

var (
	halfStore = orders{weakmem.Release}
	halfLoad  = orders{weakmem.Acquire}
	plain     = orders{weakmem.Plain}
	anyStore  = orders{weakmem.Release, weakmem.Plain}
	anyLoad   = orders{weakmem.Acquire, weakmem.Plain}
)

// atomics says of every atomic what is needed of it: what goes wrong in a design
// if it is weaker. A harmless line holds of every design.
var atomics = []struct {
	site   string
	to     orders
	design string
	caught caught
	why    string
}{
	// The channel simple.
	{"simple.writer.Commit: sys.Publish", plain, "simple", weakWrong, "publishes the bytes"},
	{"simple.writer.Commit: sys.Publish", plain, "reference", weakWrong, "publishes the data in the writer's window too"},
	{"simple.reader.Release: sys.Publish", plain, "answers", weakWrong, "publishes the answer"},
	{"simple.reader.Release: sys.Publish", plain, "allreduce", weakWrong, "publishes the sum"},
	{"simple.reader.Peek: s.sequence.Load", plain, "simple", weakWrong, "the bytes are read after it"},
	{"simple.reader.Peek: s.sequence.Load", plain, "reference", weakWrong, "and the writer's data"},
	{"simple.reader.Peek: s.sequence.Load", anyLoad, "simple, asleep", weakLost, "follows the store that says asleep"},
	{"simple.reader.Arrived: s.sequence.Load", anyLoad, "", harmless, "Peek looks again"},
	{"simple.reader.Release: sys.Publish", plain, "simple", weakWrong, "the bytes have been read before"},
	{"simple.reader.Release: sys.Publish", plain, "reference", weakWrong, "the writer's data has been read before"},
	{"simple.reader.Release: sys.Publish", plain, "allreduce", weakWrong, "the next input must not be seen by a late load"},

	// The channel ll. Flags of these designs repeat at once; in the real one a
	// word would have to stay on its way for 2^28 messages.
	{"ll.writer.Commit: w.fence.Store", anyStore, "ll", weakWrong, "old flags are gone before the next message"},
	{"ll.load: Load", halfLoad, "ll, asleep", weakLost, "follows the store that says asleep"},
	{"ll.load: Load", plain, "ll", weakWrong, "a flag of an earlier lap is not read ahead"},
	{"ll.reader.Release: r.ack.Store", plain, "reference by ll", weakWrong, "the writer's data has been read before"},
	{"ll.reader.Release: r.ack.Store", halfStore, "", harmless, "a store that wakes somebody has a Ring behind it"},

	// Acknowledgements. Of simple channels none is here: nothing is stored into a
	// slot before the load that allows it, since a store is never speculated.
	{"channel.Credit.look: a.Load", plain, "answers", weakWrong, "the answer is read after it"},
	{"channel.Credit.look: a.Load", plain, "allreduce", weakWrong, "and the sum"},
	{"channel.Credit.look: a.Load", anyLoad, "ll", weakWrong, "old flags are gone before the next message"},
	{"channel.Credit.look: a.Load", anyLoad, "simple, asleep", weakLost, "follows the store that says asleep"},

	// The bell.
	{"channel.Waker.Ring: w.fence.Store", anyStore, "simple, asleep", tsoLost, "lies between what was published and the look at the sleeper"},
	{"channel.Bell.Doze: b.asleep.Store", anyStore, "simple, asleep", tsoLost, "precedes the last look for work"},
	{"channel.Bell.Ring: b.asleep.Load", anyLoad, "simple, asleep", weakLost, "follows the store of the work"},
	{"channel.Bell.Doze: b.rings.Load", anyLoad, "", harmless, "the store that says asleep follows it"},
	{"channel.Bell.Awake: b.asleep.Store", anyStore, "", harmless, "a ring too many"},
	{"channel.Bell.Ring: b.rings.Add", anyStore, "", harmless, "the system call that wakes follows it"},
}

// habits says of what every protocol does besides ordering what it is good for.
var habits = []struct {
	habit  string
	design string
	caught caught
}{
	{"the sequence number is stored last", "simple", wrong},
	{"Release after the last look at the bytes", "simple", wrong},
	{"Release after the last word", "ll", stuck},
	{"data and flag are one store", "ll", weakWrong},
	{"old flags are cleared", "ll", wrong},
	{"Reserve waits for acknowledgements", "simple", wrong},
	{"Reserve waits for acknowledgements", "ll", wrong},
	{"Free looks at every reader", "simple", wrong},
	{"Free looks at every reader", "ll, 2 readers", wrong},
	{"Doze before the last look", "simple, asleep", lost},
	{"Sleep compares the ticket of Doze", "simple, asleep", lost},
	{"Ring counts before it wakes", "simple, asleep", lost},
	{"a ring follows what was published", "simple, asleep", lost},
	{"a reference is released after the data is read", "reference", wrong},
	{"a reference is released after the data is read", "allreduce", wrong},
	{"a store and a load, seq_cst, lie between data and its reference by ll", "reference by ll", weakWrong},
	{"a store and a load, seq_cst, lie between data and its reference by ll", "reference by ll, streamed", caught{weakmem.None, weakmem.Wrong, weakmem.Wrong}},
	{"a lock is taken between data and its reference", "reference, streamed", caught{weakmem.None, weakmem.Wrong, weakmem.None}},
	{"a call ends when its channels are drained", "reference", wrong},
	{"a call ends when its channels are drained", "reference by ll", wrong},
	{"a call ends when its messages are answered", "allreduce", wrong},
	{"Release after the answer is written", "answers", wrong},
	{"Reserve waits until answers have been taken", "answers", wrong},
	{"Drained looks at every reader", "reference", wrong},
	{"an input that its owner overwrites is not lent to everyone", "oneshot", wrong},
}

// TestChanges weakens every atomic and leaves out every habit, one at a time.
// With -v it shows the shortest execution that goes wrong for each.
func TestChanges(t *testing.T) {
	covered := map[change]bool{}
	try := func(c change, in string, want caught, why string) {
		covered[c] = true
		t.Run(c.String()+" in "+in, func(t *testing.T) {
			tried := 0
			for _, p := range designs {
				if p.large || in != "" && p.name != in {
					continue
				}
				if in == "" && !possible(p.build)[c] {
					continue
				}
				tried++
				for i, m := range weakmem.Models {
					d := p.build(c)
					r, err := weakmem.Explore(&d.Program, m, limit)
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%s under %v (%s): %d states, %s", p.name, m, why, r.States, text(r))
					if r.Kind != want[i] {
						t.Errorf("%s under %v: %v, want %v", p.name, m, r.Kind, want[i])
					}
				}
			}
			if tried == 0 {
				t.Error("no design is changed by this")
			}
		})
	}
	for _, a := range atomics {
		for _, o := range a.to {
			try(change{site: a.site, order: o}, a.design, a.caught, a.why)
		}
	}
	for _, h := range habits {
		try(change{habit: h.habit}, h.design, h.caught, "a habit")
	}
	for _, p := range designs {
		for c := range possible(p.build) {
			if !covered[c] {
				t.Errorf("%s: %v is not in the tables", p.name, c)
			}
		}
	}
}

// possible is every change that there is to a design.
func possible(build func(change) *design) map[change]bool {
	d := build(change{})
	all := map[change]bool{}
	for site, to := range d.atomics {
		for _, o := range to {
			all[change{site: site, order: o}] = true
		}
	}
	for h := range d.habits {
		all[change{habit: h}] = true
	}
	return all
}

// TestTrace shows how a violation reads: the store that says asleep waits in a
// store buffer while the last look for work goes ahead.
func TestTrace(t *testing.T) {
	c := change{site: "channel.Bell.Doze: b.asleep.Store", order: weakmem.Release}
	d := simpleStream(1, 1, 2, true)(c)
	r, err := weakmem.Explore(&d.Program, weakmem.TSO, limit)
	if err != nil {
		t.Fatal(err)
	}
	last := r.Trace[len(r.Trace)-1]
	if trace := strings.Join(r.Trace, "\n"); !strings.Contains(trace, "ahead of its earlier access to") || !strings.Contains(last, "sleeps on") {
		t.Errorf("%v:\n%s", r.Kind, trace)
	}
	t.Log(fmt.Sprint(len(r.Trace)-1, " steps: ", text(r)))
}
