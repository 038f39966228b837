// Package telemetry keeps the latency of every collective.
package telemetry

import (
	"slices"
	"sync/atomic"
	"time"

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

// Recorder collects latencies by collective. One goroutine at a time records;
// any may ask at any time, also while a collective hangs.
type Recorder struct {
	series []atomic.Pointer[series] // by collective, nil where none was recorded
}

// NewRecorder makes an empty Recorder.
func NewRecorder() *Recorder {
	last := slices.Max(schedule.Collectives)
	return &Recorder{series: make([]atomic.Pointer[series], last+1)}
}

// Record adds one call that moved bytes and took d.
func (r *Recorder) Record(c schedule.Collective, bytes int, d time.Duration) {
	s := r.series[c].Load()
	if s == nil {
		s = new(series)
		r.series[c].Store(s)
	}
	s.add(uint64(bytes), uint64(max(d, 0)))
}

// Latencies sums up what was recorded, in the order of schedule.Collectives.
func (r *Recorder) Latencies() []Latency {
	list := []Latency{}
	for _, c := range schedule.Collectives {
		s := r.series[c].Load()
		if s == nil {
			continue
		}
		l := Latency{Collective: c.String(), Bytes: int64(s.bytes.Load()), Seconds: float64(s.total.Load()) / 1e9}
		s.summarise(&l)
		list = append(list, l)
	}
	return list
}
