// Package telemetry keeps the latency of every collective.
package telemetry

import (
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"ringlane/internal/model/schedule"
)

// Latency sums up the calls of one collective.
type Latency struct {
	Collective string  `json:"collective"`
	Count      int64   `json:"count"`
	Bytes      int64   `json:"bytes"`   // of the larger buffer, over all calls
	Seconds    float64 `json:"seconds"` // from call to completion, over all calls
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	P999       float64 `json:"p999_us"`
	Max        float64 `json:"max_us"`
}

// Histograms reach from 1 ns to 2 hours and keep 3 significant digits, so that
// a percentile is within 0.1 % of the value that was recorded.
const (
	lowest  = 1
	highest = int64(2 * time.Hour)
	digits  = 3
)

type series struct {
	histogram *hdrhistogram.Histogram
	bytes     int64
	total     time.Duration
}

// Recorder collects latencies by collective. It is safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex
	series []*series // by collective, nil where none was recorded
}

// NewRecorder makes an empty Recorder.
func NewRecorder() *Recorder {
	last := slices.Max(schedule.Collectives)
	return &Recorder{series: make([]*series, last+1)}
}

// Record adds one call that moved bytes and took d.
func (r *Recorder) Record(c schedule.Collective, bytes int, d time.Duration) {
	r.mu.Lock()
	s := r.series[c]
	if s == nil {
		s = &series{histogram: hdrhistogram.New(lowest, highest, digits)}
		r.series[c] = s
	}
	s.bytes += int64(bytes)
	s.total += d
	// Within range after clamping, so it cannot fail.
	_ = s.histogram.RecordValue(min(max(int64(d), lowest), highest))
	r.mu.Unlock()
}

// Latencies sums up what was recorded, in the order of schedule.Collectives.
func (r *Recorder) Latencies() []Latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []Latency{}
	for _, c := range schedule.Collectives {
		s := r.series[c]
		if s == nil {
			continue
		}
		us := func(q float64) float64 { return float64(s.histogram.ValueAtQuantile(q)) / 1e3 }
		list = append(list, Latency{
			Collective: c.String(),
			Count:      s.histogram.TotalCount(),
			Bytes:      s.bytes,
			Seconds:    s.total.Seconds(),
			P50:        us(50),
			P99:        us(99),
			P999:       us(99.9),
			Max:        float64(s.histogram.Max()) / 1e3,
		})
	}
	return list
}
