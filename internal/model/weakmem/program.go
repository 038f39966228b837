// Package weakmem explores every execution of a small program of threads over
// shared words, under sequential consistency, x86-TSO and a weak model in the
// manner of arm64, and reports the shortest one that breaks a check, loses a
// sleeper or waits for ever.
//
// # The machine
//
// There is one memory, and a store that is performed is visible to every thread
// at once (multi-copy atomicity, which x86, arm64 and RISC-V all have). What a
// model decides is only the order in which one thread performs its own steps:
// a step may be performed before an earlier one unless the model orders the two
// (see ordered). A load whose own thread has an earlier store to the word
// pending takes that store's value. This is a store buffer under TSO, and
// out-of-order execution with speculation past branches under the weak model,
// without a mechanism for either. Loads early enough that a store to the same
// word can depend on them (LB) are admitted, which matters: a reader that gives
// memory back before it has read it is exactly that.
//
// Where the weak model differs from arm64 it is weaker: words are addressed by
// constants, so that an address depends on nothing, a Release store is not kept
// before a later SeqCst load, and steps after an If do not depend on it.
//
// # Programs
//
// A program has no loops; they are unrolled. Await is a polling loop, of which
// only the poll that succeeds is a step: those that fail change nothing.
package weakmem

import (
	"fmt"
	"slices"
)

// Order is the ordering that a load or store asks for.
type Order uint8

// The orders. Go's sync/atomic is SeqCst: on amd64 a store is an XCHG and a load
// a MOV, on arm64 STLR and LDAR.
const (
	Plain   Order = iota // none beyond the coherence of one word
	Acquire              // a load: before everything that follows it
	Release              // a store: after everything that precedes it
	SeqCst               // Acquire or Release, and in one order with all SeqCst
	// NonTemporal is a store past the caches: Plain, except that under TSO no
	// store but a SeqCst one keeps its order with it.
	NonTemporal
)

func (o Order) String() string {
	return [...]string{"plain", "acquire", "release", "seq_cst", "non-temporal"}[o]
}

// Word is a shared memory location.
type Word int

// Reg is what a load found. Only its own thread can use it.
type Reg struct {
	thread *Thread
	step   int
}

// Value is computed from registers of one thread.
type Value struct {
	regs []Reg
	of   func(args []int) int
}

// Const is the value n.
func Const(n int) Value { return Value{of: func([]int) int { return n }} }

// Of is the value of a pure function of registers. A register whose load was
// skipped holds 0.
func Of(f func(args []int) int, regs ...Reg) Value { return Value{regs, f} }

// When is 1 if cond holds of the registers, else 0.
func When(cond func(args []int) bool, regs ...Reg) Value {
	return Value{regs, func(args []int) int {
		if cond(args) {
			return 1
		}
		return 0
	}}
}

// Equal is 1 if r holds n, else 0.
func Equal(r Reg, n int) Value {
	return When(func(args []int) bool { return args[0] == n }, r)
}

// Test is a condition on the value of a word.
type Test struct {
	text string
	ok   func(v int) bool
}

// That is a condition of the caller's, with its text in traces.
func That(text string, ok func(v int) bool) Test { return Test{text, ok} }

// Is holds for n alone.
func Is(n int) Test {
	return That(fmt.Sprintf("== %d", n), func(v int) bool { return v == n })
}

// AtLeast holds from n on.
func AtLeast(n int) Test {
	return That(fmt.Sprintf(">= %d", n), func(v int) bool { return v >= n })
}

type kind uint8

const (
	load kind = iota
	await
	store
	add
	fence
	sleep
	wake
	check
)

// step is one instruction of a thread.
type step struct {
	kind   kind
	order  Order
	word   Word
	value  Value   // stored, added, expected by the sleeper, or checked
	test   Test    // of an await
	guards []Value // performed only if all are true, from the outermost
	what   string  // of a check
	site   string
}

// reads and writes are about memory; sleep and wake go through the kernel.
func (s *step) reads() bool  { return s.kind == load || s.kind == await || s.kind == add }
func (s *step) writes() bool { return s.kind == store || s.kind == add }

// maxSteps is the number of steps of a thread: a bit each.
const maxSteps = 64

// Thread is a sequence of steps. Words hold 0 to 255.
type Thread struct {
	name   string
	steps  []step
	guards []Value
	site   string
}

// Program is a set of threads over shared words.
type Program struct {
	words    []string
	initial  []byte
	threads  []*Thread
	observed []observed
}

type observed struct {
	name string
	reg  Reg // of a thread, else word
	word Word
}

// Word adds a shared word.
func (p *Program) Word(name string, initial int) Word {
	p.words = append(p.words, name)
	p.initial = append(p.initial, byte(initial))
	return Word(len(p.words) - 1)
}

// Thread adds a thread.
func (p *Program) Thread(name string) *Thread {
	t := &Thread{name: name}
	p.threads = append(p.threads, t)
	return t
}

// Observe makes the final value of a register a part of the outcome.
func (p *Program) Observe(name string, r Reg) {
	p.observed = append(p.observed, observed{name: name, reg: r})
}

// ObserveWord makes the final value of a word a part of the outcome.
func (p *Program) ObserveWord(w Word) {
	p.observed = append(p.observed, observed{name: p.words[w], word: w})
}

func (t *Thread) emit(s step) Reg {
	if len(t.steps) == maxSteps {
		panic(fmt.Sprintf("weakmem: thread %s has more than %d steps", t.name, maxSteps))
	}
	for _, v := range append([]Value{s.value}, t.guards...) {
		for _, r := range v.regs {
			if r.thread != t {
				panic(fmt.Sprintf("weakmem: thread %s uses a register of another", t.name))
			}
		}
	}
	s.guards = slices.Clone(t.guards)
	s.site = t.site
	t.steps = append(t.steps, s)
	return Reg{t, len(t.steps) - 1}
}

// At names the code that the steps which follow mirror.
func (t *Thread) At(site string) { t.site = site }

// Load reads a word.
func (t *Thread) Load(w Word, o Order) Reg { return t.emit(step{kind: load, word: w, order: o}) }

// Await polls a word until its value passes the test. What is stored after it
// depends on it.
func (t *Thread) Await(w Word, o Order, until Test) Reg {
	return t.emit(step{kind: await, word: w, order: o, test: until})
}

// Store writes a word.
func (t *Thread) Store(w Word, o Order, v Value) {
	t.emit(step{kind: store, word: w, order: o, value: v})
}

// Add adds to a word in one atomic step.
func (t *Thread) Add(w Word, o Order, n int) {
	t.emit(step{kind: add, word: w, order: o, value: Const(n)})
}

// Fence orders all that precedes before all that follows.
func (t *Thread) Fence() { t.emit(step{kind: fence}) }

// Sleep is a futex wait without a time limit: it sleeps until a Wake of the
// word, unless the word no longer holds the ticket. It is a system call, so a
// fence as well.
func (t *Thread) Sleep(w Word, ticket Value) {
	t.emit(step{kind: sleep, word: w, value: ticket})
}

// Wake wakes all who sleep on the word. It is a system call, so a fence as well.
func (t *Thread) Wake(w Word) { t.emit(step{kind: wake, word: w}) }

// Check demands that a value is not 0, once every Await before it has passed.
func (t *Thread) Check(what string, holds Value) {
	t.emit(step{kind: check, what: what, value: holds})
}

// If makes the steps of body happen only if cond is not 0. Registers loaded in
// it are 0 otherwise.
func (t *Thread) If(cond Value, body func()) {
	t.guards = append(t.guards, cond)
	body()
	t.guards = t.guards[:len(t.guards)-1]
}
