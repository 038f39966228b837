package collective

import (
	"slices"
	"sync"
)

// builtIn is what the cost model gives for its reference machine, where ranks
// share memory; a test of package cost compares the two. What can be read off it:
//
//   - One step and n-1 reads win for as long as reading the whole message n-1
//     times costs less than a second step. Beyond, every rank reduces its own
//     chunk.
//   - Above 16 ranks the 3(n-1)+1 messages of direct cost a small message more
//     than the logarithmic number of tree does, unless it is so small that only
//     one rank has a chunk.
//   - A root that reads n-1 whole messages is what a reduce waits for: tree shares
//     that work out as soon as it outweighs the steps.
//   - simple is nowhere slower than ll: memory that caches keep coherent and in
//     order does not need a flag in every word, and ll takes twice the lines.
//     ll is for windows that give no such order.
const builtIn = `
	allreduce:n<=16:<=2K=oneshot/simple
	allreduce:n<=16=direct/simple
	allreduce:n<=32:<=256=direct/simple
	allreduce:n<=32:<=8K=tree/simple
	allreduce:n<=32=direct/simple
	allreduce:<=256=direct/simple
	allreduce:<=16K=tree/simple
	allreduce=direct/simple
	reduce:n<=2=direct/simple
	reduce:n<=4:<=256K=direct/simple
	reduce:n<=4=tree/simple
	reduce:n<=8:<=128K=direct/simple
	reduce:n<=8=tree/simple
	reduce:n<=16=tree/simple
	reduce:n<=32:<=512=direct/simple
	reduce:n<=32=tree/simple
	reduce=tree/simple
	any=direct/simple`

var defaults = sync.OnceValue(func() Table {
	t, err := ParseTable(builtIn)
	if err != nil {
		panic("collective: the built-in table: " + err.Error())
	}
	return t
})

// Defaults is the table for a machine that nothing was measured on.
func Defaults() Table { return slices.Clone(defaults()) }
