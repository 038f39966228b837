package collective

import (
	"math/bits"

	"ringlane/internal/model/schedule"
)

// Between two ranks that meet in host memory copy engines can move pieces, while
// kernels only wait and reduce, each for a moment. By themselves engines fill the link
// better than loads and stores of kernels do; with the kernels in between they end a
// little below (two H200, CUDA graphs: 64 MiB 36.3 GB/s against 39.6, 256 MiB 38.1
// against 40.6). What runs beside them is another matter: products of matrices took 1.04
// times as long, and 1.5 to 2.6 times beside kernels that hold 8 to 48 multiprocessors.
// So a call takes engines where it is told to, and long ones where ranks have settled
// that their calls run beside other work.

// EngineLayout is the memory that a rank has for a peer whose pieces copy engines
// bring: slots that take turns. The zero value is none.
type EngineLayout struct {
	Slots     int
	SlotBytes int // a power of two
}

const (
	// engineSlots take turns; their bytes together stay in the processor's cache. Each is
	// so long that what passes from copy to copy, some 19 us, is little.
	engineSlots = 4
	engineMost  = 4 << 20
	engineLeast = 4 << 10
	enginePages = 8 << 10 // flags, and what aligns them

	enginePieces = 8 // that a message has at least

	// EngineLeast is how long a call is, in bytes, that is worth the launches.
	EngineLeast = 16 << 20
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
	settled := d.EngineFrom > 0 && bytes >= d.EngineFrom && d.DeviceOverride == (DeviceOverride{})
	if !d.Engines && !settled || d.Engine.Slots == 0 || c == schedule.Barrier || c == schedule.SendRecv || bytes == Uneven {
		return choice, false
	}
	choice = DeviceChoice{Engine: true, Algorithm: directAllReduce.Name, Blocks: engineBlocks, Threads: engineThreads}
	message := bytes
	if c == schedule.AllReduce {
		message = (bytes + 1) / 2
	}
	if d.DeviceOverride.Blocks > 0 {
		choice.Blocks, choice.Threads = d.DeviceOverride.Blocks, min(d.DeviceOverride.Threads, engineThreads)/32*32
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
