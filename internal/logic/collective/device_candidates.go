package collective

import (
	"math/bits"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// DeviceCandidate is a choice that an override makes.
type DeviceCandidate struct {
	Override DeviceOverride
	Choice   DeviceChoice
}

var (
	candidateBlocks  = []int{1, 2, 4, 8, 16, 32, 48, 64, 96, 128}
	candidateThreads = []int{64, 128, 256, 512, reduceThreads, slotThreads}
)

// What can be ahead, with room to both sides of what was measured anywhere: a
// table for a new machine is found among these.
const (
	mostOneshot   = 8 << 20 // that a rank is sent
	mostLine      = 64 << 20
	mostShortLine = 4 << 20 // by lines that are shorter than paths carry
	leastSlot     = 32 << 10
	leastEngine   = 1 << 20
	// farOff is how many times fewer threads than there is work for, or than fit,
	// cannot be ahead; bulk has room for less.
	farOff, farOffInBulk = 8, 4
	// alwaysWarps are few enough for the smallest call.
	alwaysWarps = 32
)

// Candidates are the fixed choices for a call that can be ahead of the built-in
// one, each once, with the override that makes it. Lines are no longer than
// arrives together on every path; copy engines take part where they have memory.
func (d *Devices) Candidates(c schedule.Collective, typ dtype.Type, bytes int) (all []DeviceCandidate) {
	add := func(o DeviceOverride, want DeviceChoice) {
		with := *d
		with.DeviceOverride = o
		got := with.Choose(c, typ, bytes)
		want.Piece = got.Piece
		// An override that cannot be followed says little about what it asks for.
		if got == want && got.Blocks <= d.Blocks && with.canLead(c, got, bytes) {
			all = append(all, DeviceCandidate{o, got})
		}
	}
	algorithms := []string{Oneshot, directAllReduce.Name, Ring}
	if d.Islands != nil {
		algorithms = append(algorithms, Hierarchical)
	}
	for _, algorithm := range algorithms {
		for _, blocks := range candidateBlocks {
			for _, threads := range candidateThreads {
				o := DeviceOverride{Algorithm: algorithm, Blocks: blocks, Threads: threads}
				want := DeviceChoice{Algorithm: algorithm, Blocks: blocks, Threads: threads}
				engines, slots, sentinels := o, o, o
				engines.Engines, engines.Lanes, slots.Slots, sentinels.Sentinels = true, EngineLanes, true, true
				engine, sentinel := want, want
				engine.Lanes, sentinel.Sentinel = EngineLanes, true
				add(engines, engine)
				add(slots, want)
				add(sentinels, sentinel)
				for _, line := range []int{16, 64, 128} {
					lines, want := o, want
					lines.Lines, lines.Line, want.Line = true, line, line
					if line <= d.Line {
						add(lines, want)
					}
				}
			}
		}
	}
	return all
}

// canLead reports whether a choice makes sense for a call of so many bytes.
func (d *Devices) canLead(c schedule.Collective, choice DeviceChoice, bytes int) bool {
	message := bytes
	if c == schedule.AllReduce && choice.Algorithm != Oneshot && choice.Algorithm != Hierarchical {
		message = (bytes + d.Ranks - 1) / d.Ranks
	}
	most := min(maxDeviceBlocks, d.Blocks)
	switch {
	case choice.Lanes > 0: // blocks and threads are of what reduces, and that is little
		return bytes >= leastEngine && choice.Threads == power(min(engineThreads, d.Threads)) && (reduces(c) || choice.Blocks == 1)
	case choice.Sentinel:
		warps, rows := choice.Blocks*choice.Threads/32, (message+deviceRow-1)/deviceRow
		fit := power(most) * min(lineThreads, d.Threads) / 32
		return message >= leastSlot && min(rows, fit)/farOffInBulk <= warps && warps <= 2*rows
	case choice.Line == 0:
		pieces := (message + leastPiece - 1) / leastPiece
		least := min(pieces, most, d.Layout.BulkBlocks) / farOffInBulk
		// A ring of two is direct, but one step after the other.
		return message >= leastSlot && least <= choice.Blocks && choice.Blocks <= pieces &&
			(choice.Algorithm != Ring || d.Ranks > 2)
	case choice.Algorithm == Oneshot && bytes*(d.Ranks-1) > mostOneshot,
		message > mostLine, message > mostShortLine && choice.Line < d.Line:
		return false
	}
	warps := choice.Blocks * choice.Threads / 32
	rows := choice.rows(message)
	fit := power(most) * min(lineThreads, d.Threads) / 32
	return min(rows, fit)/farOff <= warps && warps <= max(2*(1<<bits.Len(uint(rows-1))), alwaysWarps)
}
