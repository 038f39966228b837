package main

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/sys"
)

const (
	maxCalls = 20000
	minCalls = 4
	line     = 64 // bytes of a cache line: nobody's words share one with another's
)

// board is memory of all ranks, for the barrier and for the times.
type board struct {
	crowded bool // more ranks than CPUs: who waits must let the others run
	passed  []*atomic.Uint64
	own     *atomic.Uint64
	wrong   []*atomic.Uint64
	last    *atomic.Uint64 // call of the repetition, by rank 0
	times   [][]byte       // of each rank: float64 seconds of each call
	seconds [][]uint64     // the same, as bits
}

func openBoard(path string, rank, ranks int, crowded bool) (*board, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size := line*(2*ranks+1) + 8*maxCalls*ranks
	if err := file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	b := &board{crowded: crowded, last: sys.Word64(mem, 2*ranks*line)}
	for r := range ranks {
		b.passed = append(b.passed, sys.Word64(mem, r*line))
		b.wrong = append(b.wrong, sys.Word64(mem, (ranks+r)*line))
		times := mem[line*(2*ranks+1):][8*maxCalls*r:][:8*maxCalls]
		b.times = append(b.times, times)
		b.seconds = append(b.seconds, sys.Words64(times))
	}
	b.own = b.passed[rank]
	return b, nil
}

// barrier returns when all ranks have called it.
func (b *board) barrier() {
	now := b.own.Load() + 1
	sys.Publish(b.own, now)
	for _, passed := range b.passed {
		for passed.Load() < now {
			if b.crowded {
				sys.Yield()
			}
		}
	}
}

func (b *board) note(rank, call int, took time.Duration) {
	b.seconds[rank][call] = math.Float64bits(took.Seconds())
}

// sum returns all wrong elements and, as they lie in memory, the seconds of
// each call: the slowest rank counts.
func (b *board) sum(calls int) (wrong uint64, times []byte) {
	slowest := b.seconds[0]
	for r, seconds := range b.seconds {
		wrong += b.wrong[r].Load()
		for i := range calls {
			if math.Float64frombits(slowest[i]) < math.Float64frombits(seconds[i]) {
				slowest[i] = seconds[i]
			}
		}
	}
	return wrong, b.times[0][:8*calls]
}
