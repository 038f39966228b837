package weakmem

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Kind is what is wrong with an execution.
type Kind uint8

// The kinds of violations.
const (
	None  Kind = iota
	Wrong      // a check failed
	Lost       // a thread sleeps and nobody is left to wake it
	Stuck      // a thread polls for ever
)

func (k Kind) String() string { return [...]string{"none", "wrong", "lost sleeper", "stuck"}[k] }

// Result is what exploring a program found.
type Result struct {
	States   int
	Outcomes []string // of the observed registers and words, sorted
	Kind     Kind
	// Trace is the shortest execution that ends in the violation, a step a line.
	Trace []string
}

// plan is what the model makes of one step of one thread. Each set of steps is
// a mask.
type plan struct {
	before  uint64 // performed before it
	values  uint64 // loads that its value needs
	guards  uint64 // loads that decide whether it happens
	forward []int  // earlier stores to its word that it may overtake, latest first
	readers uint64 // steps that use its register
	reg     int    // where its register lies in a state, or -1
	kept    bool   // its register is observed
}

// A state is a string of bytes: the words, then for each thread the mask of
// steps performed, the mask of steps settled (performed or skipped, and sure to
// be on the thread's path), whether it sleeps, and its registers.
const (
	atDone    = 0
	atSettled = 8
	atAsleep  = 16
	atRegs    = 17
)

type explorer struct {
	*Program
	model Model
	plans [][]plan
	base  []int // where each thread's part of a state begins
	size  int
	// reads and writes are each thread's steps on each word; what is written
	// counts as read too.
	reads, writes [][]uint64

	args  []int    // scratch of eval
	masks []uint64 // scratch of open
	next  []byte   // scratch of follow

	seen   map[string]struct{}
	states []visit
}

// visit is a state and how it was first reached.
type visit struct {
	state        string
	parent       int
	thread, step int
}

// Explore runs p in every way that differs for anyone under m, in the order of
// the number of steps, and stops at the first violation. It refuses to visit more
// than limit states.
func Explore(p *Program, m Model, limit int) (Result, error) {
	r, err := newExplorer(p, m).search(limit, true)
	if r.Kind == None {
		return r, err
	}
	// Steps that nobody minds have been taken at once: there may be a shorter way.
	if shortest, err := newExplorer(p, m).search(limit, false); err == nil {
		shortest.States += r.States
		return shortest, nil
	}
	return r, nil
}

func newExplorer(p *Program, m Model) *explorer {
	e := &explorer{Program: p, model: m, seen: map[string]struct{}{}, size: len(p.words)}
	for _, t := range p.threads {
		e.base = append(e.base, e.size)
		e.size += atRegs
		e.plans = append(e.plans, e.prepare(t))
		reads, writes := make([]uint64, len(p.words)), make([]uint64, len(p.words))
		for i := range t.steps {
			s := &t.steps[i]
			if s.kind == fence || s.kind == check {
				continue
			}
			reads[s.word] |= 1 << i
			if s.writes() {
				writes[s.word] |= 1 << i
			}
		}
		e.reads, e.writes = append(e.reads, reads), append(e.writes, writes)
	}
	e.next = make([]byte, e.size)
	return e
}

// search is Explore. If reduced, it follows only one step out of a state where
// there is one that stands alone: every order with the others ends alike.
func (e *explorer) search(limit int, reduced bool) (Result, error) {
	start := make([]byte, e.size)
	copy(start, e.initial)
	what := e.settleAll(start)
	e.visit(start, -1, 0, 0)
	if what != "" {
		return e.violation(Wrong, 0, what), nil
	}
	outcomes := map[string]struct{}{}
	for at := 0; at < len(e.states); at++ {
		if len(e.states) > limit {
			return Result{}, fmt.Errorf("explore under %v: more than %d states (make the program smaller)", e.model, limit)
		}
		moved, what := false, ""
		if reduced {
			moved, what = e.follow(at, true)
		}
		if !moved {
			moved, what = e.follow(at, false)
		}
		switch {
		case what != "":
			return e.violation(Wrong, len(e.states)-1, what), nil
		case moved:
		case e.over(at):
			outcomes[e.outcome(e.states[at].state)] = struct{}{}
		default:
			return e.stopped(at), nil
		}
	}
	r := Result{States: len(e.states)}
	for o := range outcomes {
		r.Outcomes = append(r.Outcomes, o)
	}
	slices.Sort(r.Outcomes)
	return r, nil
}

// follow visits the states that one step leads to from state number at: every
// step, or the first one that stands alone. It reports whether there was one,
// and which check failed after it, if one did.
func (e *explorer) follow(at int, alone bool) (moved bool, failed string) {
	current := e.states[at].state
	open := e.open(current)
	next := e.next
	for t, mask := range open {
		for ; mask != 0; mask &= mask - 1 {
			s := bits.TrailingZeros64(mask)
			if alone && !e.alone(open, t, s) {
				continue
			}
			copy(next, current)
			if !e.perform(next, t, s) {
				continue
			}
			if failed := e.settleAll(next); failed != "" {
				e.states = append(e.states, visit{string(next), at, t, s})
				return true, failed
			}
			e.visit(next, at, t, s)
			if moved = true; alone {
				return true, ""
			}
		}
	}
	return moved, ""
}

// over reports whether every thread has come to its end.
func (e *explorer) over(at int) bool {
	return !slices.ContainsFunc(e.open(e.states[at].state), func(mask uint64) bool { return mask != 0 })
}

// open is the steps that each thread still has to perform.
func (e *explorer) open(state string) []uint64 {
	masks := e.masks[:0]
	for t, thread := range e.threads {
		part := state[e.base[t]:]
		done := binary.LittleEndian.Uint64([]byte(part[:8]))
		masks = append(masks, (uint64(1)<<len(thread.steps)-1)&^done)
	}
	e.masks = masks
	return masks
}

// alone reports whether no step that another thread has left can influence step
// s of thread t or be influenced by it.
func (e *explorer) alone(open []uint64, t, s int) bool {
	st := &e.threads[t].steps[s]
	if st.kind == sleep || st.kind == wake {
		return false
	}
	for u, mask := range open {
		if u == t || st.kind == fence {
			continue
		}
		if mask&e.writes[u][st.word] != 0 || st.writes() && mask&e.reads[u][st.word] != 0 {
			return false
		}
	}
	return true
}

// visit notes a state, unless a path that is no longer led to it before.
func (e *explorer) visit(state []byte, parent, thread, step int) {
	if _, known := e.seen[string(state)]; known {
		return
	}
	key := string(state)
	e.seen[key] = struct{}{}
	e.states = append(e.states, visit{key, parent, thread, step})
}

// prepare works out the plans of a thread's steps and gives its registers room.
func (e *explorer) prepare(t *Thread) []plan {
	plans := make([]plan, len(t.steps))
	for j := range t.steps {
		b, p := &t.steps[j], &plans[j]
		p.reg = -1
		if b.reads() && b.kind != add {
			p.reg = e.size
			e.size++
		}
		for _, r := range b.value.regs {
			p.values |= 1 << r.step
			plans[r.step].readers |= 1 << j
		}
		for _, g := range b.guards {
			for _, r := range g.regs {
				p.guards |= 1 << r.step
				plans[r.step].readers |= 1 << j
			}
		}
		for i := j - 1; i >= 0; i-- {
			a := &t.steps[i]
			if e.model.ordered(a, b) {
				p.before |= 1 << i
			} else if a.kind == store && b.reads() && a.word == b.word {
				p.forward = append(p.forward, i)
			}
		}
	}
	for i := range plans {
		plans[i].kept = slices.ContainsFunc(e.observed, func(o observed) bool { return o.reg == Reg{t, i} })
	}
	return plans
}

func (e *explorer) mask(state []byte, t, at int) uint64 {
	return binary.LittleEndian.Uint64(state[e.base[t]+at:])
}

func (e *explorer) put(state []byte, t, at int, mask uint64) {
	binary.LittleEndian.PutUint64(state[e.base[t]+at:], mask)
}

func (e *explorer) eval(state []byte, t int, v Value) int {
	e.args = e.args[:0]
	for _, r := range v.regs {
		e.args = append(e.args, int(state[e.plans[t][r.step].reg]))
	}
	return v.of(e.args)
}

// perform performs step s of thread t in state if that is possible now.
func (e *explorer) perform(state []byte, t, s int) bool {
	st, p := &e.threads[t].steps[s], &e.plans[t][s]
	done, settled := e.mask(state, t, atDone), e.mask(state, t, atSettled)
	if state[e.base[t]+atAsleep] != 0 {
		return false
	}
	if p.before&^done != 0 || p.values&^settled != 0 || st.kind == check {
		return false
	}
	if p.guards&^settled != 0 && st.kind != load {
		return false // a load alone may be speculated
	}
	switch st.kind {
	case load, await:
		v := int(state[st.word])
		for _, i := range p.forward {
			if done>>i&1 != 0 {
				continue
			}
			q := &e.plans[t][i]
			if (q.guards|q.values)&^settled != 0 {
				return false // it is not known whether or what that store stores
			}
			v = e.eval(state, t, e.threads[t].steps[i].value)
			break
		}
		if st.kind == await && !st.test.ok(v) {
			return false
		}
		state[p.reg] = byte(v)
	case store:
		state[st.word] = byte(e.eval(state, t, st.value))
	case add:
		state[st.word] += byte(e.eval(state, t, st.value))
	case sleep:
		if int(state[st.word]) == e.eval(state, t, st.value) {
			state[e.base[t]+atAsleep] = 1 + byte(s)
			return true
		}
	case wake:
		for u := range e.threads {
			sleeper := &state[e.base[u]+atAsleep]
			if *sleeper == 0 || e.threads[u].steps[*sleeper-1].word != st.word {
				continue
			}
			e.put(state, u, atDone, e.mask(state, u, atDone)|1<<(*sleeper-1))
			*sleeper = 0
		}
	}
	e.put(state, t, atDone, done|1<<s)
	return true
}

// settleAll settles every thread and says which check failed, if one did.
func (e *explorer) settleAll(state []byte) string {
	for t := range e.threads {
		if failed := e.settle(state, t); failed >= 0 {
			return e.threads[t].name + ": " + e.threads[t].steps[failed].what
		}
	}
	return ""
}

// settle skips the steps of thread t whose guards have turned out false, makes
// the checks that are due, and forgets registers that nothing will read. It
// returns a check that fails, or -1.
func (e *explorer) settle(state []byte, t int) int {
	done, settled := e.mask(state, t, atDone), e.mask(state, t, atSettled)
	steps, plans := e.threads[t].steps, e.plans[t]
	failed := -1
	for open := (uint64(1)<<len(steps) - 1) &^ settled; open != 0; open &= open - 1 {
		s := bits.TrailingZeros64(open)
		bit := uint64(1) << s
		skipped, sure := e.decide(state, t, s, settled)
		switch {
		case skipped:
			done, settled = done|bit, settled|bit
			if plans[s].reg >= 0 {
				state[plans[s].reg] = 0
			}
		case !sure:
		case done&bit != 0:
			settled |= bit
		case steps[s].kind == check && plans[s].before&^done == 0 && plans[s].values&^settled == 0:
			if e.eval(state, t, steps[s].value) == 0 && failed < 0 {
				failed = s
			}
			done, settled = done|bit, settled|bit
		}
	}
	for s := range plans {
		if p := &plans[s]; p.reg >= 0 && !p.kept && settled>>s&1 != 0 && p.readers&^settled == 0 {
			state[p.reg] = 0
		}
	}
	e.put(state, t, atDone, done)
	e.put(state, t, atSettled, settled)
	return failed
}

// decide reports whether step s is skipped, or sure to happen, as far as the
// settled loads tell.
func (e *explorer) decide(state []byte, t, s int, settled uint64) (skipped, sure bool) {
	for _, g := range e.threads[t].steps[s].guards {
		for _, r := range g.regs {
			if settled>>r.step&1 == 0 {
				return false, false
			}
		}
		if e.eval(state, t, g) == 0 {
			return true, true
		}
	}
	return false, true
}

func (e *explorer) outcome(state string) string {
	var parts []string
	for _, o := range e.observed {
		at := int(o.word)
		if o.reg.thread != nil {
			at = e.plans[slices.Index(e.threads, o.reg.thread)][o.reg.step].reg
		}
		parts = append(parts, fmt.Sprintf("%s=%d", o.name, state[at]))
	}
	return strings.Join(parts, " ")
}
