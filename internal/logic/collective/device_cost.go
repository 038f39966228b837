package collective

import (
	"math"
	"slices"

	"ringlane/internal/model/schedule"
)

// What pays on GPUs depends on the paths between them. The limits of choices were
// measured on one machine; other paths move them by what they carry in the time
// that a flag takes, in steps of two: what is measured of one machine scatters by
// less than half a step, and a choice that changes from run to run may change bits.

// Pace is how fast the slowest of some paths is; zero where none was measured.
type Pace struct {
	Rate    float64 // gigabytes a second that a rank writes to another
	Latency float64 // microseconds that a flag takes
}

// The paths that limits were measured on: NVLink between two H200, and host memory
// over PCIe of the fifth generation.
var (
	peerPace = Pace{Rate: 348, Latency: 0.81}
	hostPace = Pace{Rate: 45, Latency: 1.3}
)

const (
	// leastShift and mostShift bound, as powers of two, how far from what was
	// measured anywhere limits are moved.
	leastShift, mostShift = -4, 1
	// slotHop is how many flags a step by slots takes: the fence before it, the
	// flag, and what kernels do in between.
	slotHop = 3
	// hierarchicalBlocks fill a link of PCIe, and hierarchicalPieces of a block let
	// the islands be at work at the same time.
	hierarchicalBlocks, hierarchicalPieces = 32, 8
)

// shift is how many times two limits are off for a path of pace p where they were
// measured for one of pace at.
func (p Pace) shift(at Pace) int {
	if p.Rate <= 0 || p.Latency <= 0 {
		return 0
	}
	steps := math.Round(math.Log2(p.Rate * p.Latency / (at.Rate * at.Latency)))
	return int(min(max(steps, leastShift), mostShift))
}

// scaled moves limits.
func (l deviceLimits) scaled(shift int) deviceLimits {
	for _, limit := range []*int{&l.short, &l.oneshot, &l.line, &l.line16, &l.sentinel} {
		if shift < 0 {
			*limit >>= -shift
		} else {
			*limit <<= shift
		}
	}
	return l
}

// acrossIslands reports whether ranks are in islands that straight paths join: then
// calls in which all write to all at once are for what is short, since streams that
// cross each other at a switch hold each other up there.
func (d *Devices) acrossIslands() bool { return d.Islands != nil && !d.Host }

// crossing is how much longer the way out of an island is, for one rank's message
// to every other rank, than the way out of a rank: all ranks of the island share it.
func (d *Devices) crossing() float64 {
	longest := float64(d.Ranks - 1)
	if !d.acrossIslands() {
		return longest
	}
	for _, island := range d.Islands.Of(d.Ranks) {
		m := len(island)
		longest = max(longest, float64(m*(d.Ranks-m))*d.slower())
	}
	return longest
}

// slower is how many times slower it is across islands than inside them.
func (d *Devices) slower() float64 {
	if d.Inside.Rate <= 0 || d.Pace.Rate <= 0 {
		return 1
	}
	return max(d.Inside.Rate/d.Pace.Rate, 1)
}

// hierarchical reports whether an AllReduce goes through islands: where it is asked
// for, or where they are and the steps of a ring cost more than that the leader of
// an island takes all of it in.
func (d *Devices) hierarchical(c schedule.Collective, bytes int) bool {
	if c != schedule.AllReduce || d.Ranks == 1 || d.Lines || d.Sentinels || d.Threads < 2*leastShare {
		return false
	}
	if d.Algorithm != "" {
		return d.Algorithm == Hierarchical
	}
	return d.acrossIslands() && bytes <= d.mostHierarchical()
}

// mostHierarchical is up to how many bytes islands are ahead of a ring that enters
// and leaves each of them once, rounded to a power of two.
func (d *Devices) mostHierarchical() int {
	of := d.Islands.Of(d.Ranks)
	widest := slices.MaxFunc(of, func(a, b []int) int { return len(a) - len(b) })
	n, k, m := float64(d.Ranks), float64(len(of)), float64(len(widest))
	out := min(k-1, 2) // messages that leave an island
	saved := 2*(n-1) - 2*k
	pace := d.Pace
	if pace.Rate <= 0 || pace.Latency <= 0 {
		pace = hostPace
	}
	// In times that a message takes from one island to another.
	more := max((m-1+out)/d.slower(), out) - 2*(n-1)/n
	switch {
	case saved <= 0:
		return 0
	case more <= 0:
		return NoLimit
	}
	bytes := saved * slotHop * pace.Latency * pace.Rate * 1000 / more
	return 1 << int(min(max(math.Round(math.Log2(bytes)), 0), 40))
}

// throughIslands is how a hierarchical AllReduce runs: in pieces so short that one
// is on its way through the chain behind the other.
func (d *Devices) throughIslands(bytes int) DeviceChoice {
	few := *d
	few.Blocks = min(d.Blocks, hierarchicalBlocks)
	choice := few.bulk(DeviceChoice{Algorithm: Hierarchical}, 2, slotThreads, bytes)
	// Sums under way may be twice as wide.
	choice.Piece = min(max(choice.Piece/hierarchicalPieces, leastPiece), d.Layout.SlotBytes/2)
	return choice
}
