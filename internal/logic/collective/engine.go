package collective

import (
	"math/bits"

	"ringlane/internal/model/schedule"
)

// Between two ranks that meet in host memory copy engines can move pieces, while kernels only
// wait and reduce, each for a moment. They fill the link better than loads and stores of
// kernels do, but what passes from copy to copy takes time: with two lanes they are ahead from
// 64 MiB on (two H200, CUDA graphs: 40.4 GB/s against 39.8, at 1 GiB 45.8 against 40.4).
//
// What runs beside them is another matter. Products of matrices took 1.5 to 2.6 times as long
// beside kernels that hold 8 to 48 multiprocessors, 1.04 times beside copy engines with one
// lane, and 1.08 to 1.15 with two, of which one waits while the other copies: who waits, does
// so on a multiprocessor. So engines carry shorter calls too, by one lane, where ranks have
// settled that these run beside other work.

// EngineLayout is the memory that a rank has for a peer whose pieces copy engines
// bring: slots that take turns. The zero value is none.
type EngineLayout struct {
	Slots     int
	SlotBytes int // a power of two
}

const (
	// EngineLanes are as many as pay.
	EngineLanes = 2
	// engineSlots take turns; their bytes together stay in the processor's cache. Each is
	// so long that what passes from copy to copy, some 19 us, is little.
	engineSlots = 6
	engineMost  = 4 << 20
	engineLeast = 4 << 10
	enginePages = 8 << 10 // flags, and what aligns them

	enginePieces = 8 // that a message has at least

	// EngineBeside is from how many bytes on copy engines carry calls beside other work,
	// and engineAlone from how many on they carry all.
	EngineBeside = 16 << 20
	engineAlone  = 64 << 20
	// engineBlocks reduce a piece in a tenth of the time that its copies take. What
	// runs beside them is held up for as long: 12 took 26 us.
	engineBlocks  = 48
	engineThreads = 512
)

// LayOutEngine divides what a layout leaves of window bytes; 0 is as much as pays.
func LayOutEngine(window, ranks int, l DeviceLayout, host bool) EngineLayout {
	left := engineSlots * engineMost
	if window != 0 {
		left = window - l.Bytes() - enginePages
	}
	if !host || ranks != 2 || left < engineSlots*engineLeast {
		return EngineLayout{}
	}
	slot := 1 << (bits.Len(uint(left/engineSlots)) - 1)
	return EngineLayout{Slots: engineSlots, SlotBytes: min(slot, engineMost)}
}

// byEngine is the choice for calls that copy engines carry.
func (d *Devices) byEngine(c schedule.Collective, bytes int) (choice DeviceChoice, ok bool) {
	beside := d.EngineFrom > 0 && bytes >= d.EngineFrom
	alone := bytes >= engineAlone && d.Engine.SlotBytes == engineMost
	ahead := (beside || alone) && d.DeviceOverride == (DeviceOverride{})
	if !d.Engines && !ahead || d.Engine.Slots == 0 || c == schedule.Barrier || c == schedule.SendRecv || bytes == Uneven {
		return choice, false
	}
	choice = DeviceChoice{Lanes: EngineLanes, Algorithm: directAllReduce.Name, Blocks: engineBlocks, Threads: engineThreads}
	switch {
	case d.DeviceOverride.Lanes > 0:
		choice.Lanes = d.DeviceOverride.Lanes
	case beside && !alone:
		choice.Lanes = 1
	}
	message := bytes
	if c == schedule.AllReduce {
		message = (bytes + 1) / 2
	}
	if d.DeviceOverride.Blocks > 0 {
		choice.Blocks, choice.Threads = d.DeviceOverride.Blocks, min(d.DeviceOverride.Threads, engineThreads)/32*32
	}
	if !reduces(c) {
		choice.Blocks = 1
	}
	choice.Blocks = min(choice.Blocks, d.Blocks)
	choice.Threads = min(choice.Threads, d.Threads)
	each := max((message+enginePieces-1)/enginePieces, engineLeast)
	choice.Piece = min(1<<bits.Len(uint(each-1)), d.Engine.SlotBytes)
	return choice, true
}

// NextPiece is how many bytes the next piece has of a message of total bytes whose
// first at are cut already, with pieces of most bytes. The first pieces are
// shorter, because the peer gets nothing before the first has come, and the last
// ones, because nothing goes beside the last.
func NextPiece(at, total, most uint64) uint64 {
	least := max(most/4, 1)
	left := total - at
	size := max(min(at, left/2, most)/least*least, least)
	return min(size, left)
}
