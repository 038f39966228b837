package weakmem

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// stopped describes a state that nothing leads out of although threads have
// steps left.
func (e *explorer) stopped(at int) Result {
	kind := Stuck
	var waits []string
	state := e.states[at].state
	for t, thread := range e.threads {
		part := state[e.base[t]:]
		done := binary.LittleEndian.Uint64([]byte(part[:8]))
		open := (uint64(1)<<len(thread.steps) - 1) &^ done
		if open == 0 {
			continue
		}
		s := &thread.steps[bits.TrailingZeros64(open)]
		if part[atAsleep] != 0 {
			kind = Lost
			waits = append(waits, fmt.Sprintf("%s sleeps on %s", thread.name, e.words[s.word]))
		} else {
			waits = append(waits, fmt.Sprintf("%s waits: %s", thread.name, e.text(s, 0)))
		}
	}
	return e.violation(kind, at, strings.Join(waits, "; "))
}

// violation tells how state number at was reached and what is wrong there.
func (e *explorer) violation(kind Kind, at int, what string) Result {
	var trace []string
	for i := at; e.states[i].parent >= 0; i = e.states[i].parent {
		trace = append(trace, e.line(i))
	}
	slices.Reverse(trace)
	return Result{States: len(e.states), Kind: kind, Trace: append(trace, kind.String()+": "+what)}
}

// line is the step that led to state number i.
func (e *explorer) line(i int) string {
	v := e.states[i]
	before, after := []byte(e.states[v.parent].state), []byte(v.state)
	thread := e.threads[v.thread]
	s := &thread.steps[v.step]
	result := 0
	switch reg := e.plans[v.thread][v.step].reg; {
	case s.kind == load || s.kind == await:
		// The register may be forgotten by now: perform the step once more.
		again := slices.Clone(before)
		e.perform(again, v.thread, v.step)
		result = int(again[reg])
	case s.writes():
		result = int(after[s.word])
	}
	text := fmt.Sprintf("%-8s %s", thread.name, e.text(s, result))
	if s.kind == sleep && e.mask(after, v.thread, atDone)>>v.step&1 != 0 {
		text += ", which has changed: awake"
	}
	if s.site != "" {
		text += "  [" + s.site + "]"
	}
	var overtaken []string
	open := (uint64(1)<<v.step - 1) &^ e.mask(before, v.thread, atDone)
	for ; open != 0; open &= open - 1 {
		o := &thread.steps[bits.TrailingZeros64(open)]
		if o.kind != check {
			overtaken = append(overtaken, e.words[o.word])
		}
	}
	if len(overtaken) > 0 {
		text += "  (ahead of its earlier access to " + strings.Join(slices.Compact(overtaken), ", ") + ")"
	}
	return text
}

// text is a step with what it found or stored.
func (e *explorer) text(s *step, result int) string {
	name := e.words[s.word]
	switch s.kind {
	case load:
		return fmt.Sprintf("load %s -> %d, %v", name, result, s.order)
	case await:
		return fmt.Sprintf("poll %s until %s, %v", name, s.test.text, s.order)
	case store:
		return fmt.Sprintf("store %s := %d, %v", name, result, s.order)
	case add:
		return fmt.Sprintf("add to %s -> %d, %v", name, result, s.order)
	case sleep:
		return "sleep on " + name
	case wake:
		return "wake sleepers on " + name
	case fence:
		return "fence"
	}
	return "check " + s.what
}
