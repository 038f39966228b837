package telemetry

import (
	"math"
	"testing"
	"time"

	"ringlane/internal/model/schedule"
)

func TestLatencies(t *testing.T) {
	r := NewRecorder()
	for i := range 1000 {
		r.Record(schedule.AllReduce, 8, time.Duration(i+1)*time.Microsecond)
	}
	r.Record(schedule.Barrier, 1, 3*time.Hour) // beyond the range: kept as its end
	got := r.Latencies()
	if len(got) != 2 || got[0].Collective != "allreduce" || got[1].Collective != "barrier" {
		t.Fatalf("latencies of %v", got)
	}
	a := got[0]
	if a.Count != 1000 || a.Bytes != 8000 {
		t.Errorf("count %d, bytes %d", a.Count, a.Bytes)
	}
	for _, c := range []struct {
		name, unit string
		got, want  float64
	}{
		{"p50", "us", a.P50, 500}, {"p99", "us", a.P99, 990}, {"p99.9", "us", a.P999, 999}, {"max", "us", a.Max, 1000}, {"total", "s", a.Seconds, 0.5005},
	} {
		if math.Abs(c.got-c.want) > c.want*0.002 {
			t.Errorf("%s = %v %s, want %v", c.name, c.got, c.unit, c.want)
		}
	}
	if b := got[1]; b.Max < 2*3600e6*0.999 {
		t.Errorf("max of an outlier is %v us", b.Max)
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	r := NewRecorder()
	r.Record(schedule.AllReduce, 8, time.Microsecond)
	if n := testing.AllocsPerRun(100, func() { r.Record(schedule.AllReduce, 8, time.Microsecond) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}
