package telemetry

import (
	"math/bits"
	"sync/atomic"
	"time"

	"ringlane/internal/hardware/sys"
)

// A series counts durations in buckets that are 1 ns wide up to 2 us and twice
// as wide for each doubling beyond, so that a percentile is within 0.1 % of the
// value that was recorded: the layout of an HDR histogram of 3 digits. Adding
// takes three plain stores, where the library's histogram needs a lock to be
// read meanwhile.
type series struct {
	counts            [buckets]atomic.Uint64
	bytes, total, max atomic.Uint64
}

const (
	subBits = 10 // a doubling has 2^subBits buckets
	longest = uint64(2 * time.Hour)
	buckets = (43-subBits)<<subBits + 1<<subBits // 2 hours are less than 2^43 ns
)

// bucket is the index for a duration of ns.
func bucket(ns uint64) int {
	shift := max(bits.Len64(ns)-subBits-1, 0)
	return shift<<subBits + int(ns>>shift)
}

// highest is the longest duration in a bucket.
func highest(bucket int) uint64 {
	shift := max(bucket>>subBits-1, 0)
	return uint64(bucket-shift<<subBits+1)<<shift - 1
}

func (s *series) add(bytes, ns uint64) {
	n := &s.counts[bucket(min(ns, longest))]
	sys.Publish(n, n.Load()+1)
	sys.Publish(&s.bytes, s.bytes.Load()+bytes)
	sys.Publish(&s.total, s.total.Load()+ns)
	if ns > s.max.Load() {
		sys.Publish(&s.max, ns)
	}
}

// summarise fills in count, percentiles and maximum.
func (s *series) summarise(l *Latency) {
	counts := make([]uint64, buckets)
	total := uint64(0)
	for i := range counts {
		counts[i] = s.counts[i].Load()
		total += counts[i]
	}
	most := s.max.Load()
	quantile := func(q float64) float64 {
		seen, want := uint64(0), max(uint64(q*float64(total)+0.5), 1)
		for i, n := range counts {
			if seen += n; seen >= want {
				return float64(min(highest(i), most)) / 1e3
			}
		}
		return 0
	}
	l.Count = int64(total)
	l.P50, l.P99, l.P999, l.Max = quantile(0.50), quantile(0.99), quantile(0.999), float64(most)/1e3
}
