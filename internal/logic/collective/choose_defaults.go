package collective

import "ringlane/internal/model/schedule"

// Defaults is the table for ranks that share memory, read off runs of
//
//	ringlane bench allreduce -n N --algo A --protocol P --sizes 8,64,…,64K
//
// for every A and P and N = 2, 4, 8, on a 16-core Xeon and a 2-core EPYC (Zen 4)
// on 2026-11-29. The lines for more ranks continue what those show.
//
//   - One step and n-1 reads win for as long as reading the whole message n-1
//     times costs less than a second step: up to 4 KiB for 2 ranks, 2 KiB for
//     4, 1 KiB for 8. Beyond, every rank reduces its own chunk.
//   - Above 32 ranks the 3(n-1)+1 messages of direct cost a small message more
//     than the logarithmic number of tree does.
//   - simple is nowhere slower than ll: memory that caches keep coherent and in
//     order does not need a flag in every word, and ll takes twice the lines.
//     ll is for windows that give no such order.
func Defaults() Table {
	allReduce := []schedule.Collective{schedule.AllReduce}
	return Table{
		{allReduce, 2, 4 << 10, Choice{Algorithm: "oneshot", Protocol: Simple}},
		{allReduce, 4, 2 << 10, Choice{Algorithm: "oneshot", Protocol: Simple}},
		{allReduce, 8, 1 << 10, Choice{Algorithm: "oneshot", Protocol: Simple}},
		{allReduce, 32, 256, Choice{Algorithm: "oneshot", Protocol: Simple}},
		{allReduce, 32, NoLimit, Choice{Algorithm: "direct", Protocol: Simple}},
		{allReduce, NoLimit, 8 << 10, Choice{Algorithm: "tree", Protocol: Simple}},
		{nil, NoLimit, NoLimit, Choice{Algorithm: "direct", Protocol: Simple}},
	}
}
