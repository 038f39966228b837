package weakmem

// Model is a memory model.
type Model uint8

// The models, from the strongest.
const (
	// SC performs the steps of a thread in their order.
	SC Model = iota
	// TSO is x86: stores wait in a first-in-first-out buffer while later loads
	// go ahead. SeqCst stores, additions and fences drain it, and with it the
	// write-combining buffers of non-temporal stores.
	TSO
	// Weak performs accesses in any order that acquire, release, fences, the
	// coherence of one word and dependencies leave open: no store is performed
	// before a load that decides whether, or with what value, it happens.
	Weak
)

// Models lists every model.
var Models = []Model{SC, TSO, Weak}

func (m Model) String() string { return [...]string{"SC", "TSO", "weak"}[m] }

// ordered reports whether a thread must perform a, which comes first in its
// program, before b. Dependencies through registers are kept besides.
func (m Model) ordered(a, b *step) bool {
	if m == SC || b.kind == check && a.kind == await || b.writes() && a.kind == await {
		return true
	}
	if a.kind == check || b.kind == check {
		return false // no access to memory
	}
	for _, s := range []*step{a, b} {
		if s.kind == fence || s.kind == sleep || s.kind == wake {
			return true
		}
	}
	if m == TSO {
		if a.kind == store && b.kind == store && a.word != b.word && (a.order == NonTemporal || b.order == NonTemporal) {
			return a.order == SeqCst || b.order == SeqCst
		}
		return a.reads() || b.writes() || a.order == SeqCst
	}
	switch {
	case a.word == b.word && !(a.kind == store && !b.writes()): // else b takes a's value
		return true
	case a.reads() && (a.order == Acquire || a.order == SeqCst):
		return true
	case b.writes() && (b.order == Release || b.order == SeqCst):
		return true
	}
	return a.writes() && a.order == SeqCst && b.reads() && b.order == SeqCst
}
