package benchmark

import (
	"fmt"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// measure runs o on n ranks as goroutines and returns the rows of rank 0.
func measure(t *testing.T, n int, o Options) (rows []Row) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for rank := range n {
		ranks.Go(func() {
			c, err := communicator.Join(communicator.Config{Rank: rank, Size: n, Job: t.Name(), Rendezvous: dir, Timeout: 30 * time.Second})
			if err == nil {
				defer c.Close()
				err = Measure(c, o, func(r Row) error {
					rows = append(rows, r)
					return nil
				})
			}
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	ranks.Wait()
	return rows
}

// Results are right in every type, with every operator, in place and out.
func TestEveryCollectiveVerifies(t *testing.T) {
	for i, collective := range schedule.Collectives {
		o := Options{
			Collective: collective, Type: dtype.Types[i%len(dtype.Types)], Op: dtype.Ops[i%len(dtype.Ops)],
			Sizes: []int{1, 1000, 100000}, Iterations: 5, InPlace: i%2 == 0,
		}
		for _, row := range measure(t, 3, o) {
			if row.Wrong != 0 || row.P50 <= 0 || row.P50 > row.P99 || row.P99 > row.P999 || row.Iterations != 5 {
				t.Errorf("%v of %v %v: %+v", collective, o.Type, o.Op, row)
			}
		}
	}
}

func TestEveryTypeAndOperatorVerifies(t *testing.T) {
	for _, typ := range dtype.Types {
		for _, op := range dtype.Ops {
			for _, row := range measure(t, 2, Options{Type: typ, Op: op, Sizes: []int{64, 3000}, Iterations: 1}) {
				if row.Wrong != 0 {
					t.Errorf("%v %v: %d elements of %d bytes are wrong", typ, op, row.Wrong, row.Bytes)
				}
			}
		}
	}
}

// Buffers in a window give the same results, and are given back.
func TestWindowVerifies(t *testing.T) {
	for _, collective := range schedule.Collectives {
		for _, row := range measure(t, 2, Options{Collective: collective, Sizes: []int{64, 50000}, Iterations: 2, Window: true, InPlace: collective == schedule.AllReduce}) {
			if row.Wrong != 0 {
				t.Errorf("%v: %+v", collective, row)
			}
		}
	}
}

// A wrong result must not pass: every element that is off by one is counted.
func TestWrongElementsAreCounted(t *testing.T) {
	for _, typ := range dtype.Types {
		p := pattern{collective: schedule.AllReduce, op: dtype.Sum, ranks: 4}
		b := make([]byte, 100*typ.Size())
		fill(typ, b, p.reduced)
		if n := count(typ, b, p.reduced); n != 0 {
			t.Errorf("%v: %d wrong in right data", typ, n)
		}
		fill(typ, b[:7*typ.Size()], func(i int) float64 { return p.reduced(i) + 1 })
		if n := count(typ, b, p.reduced); n != 7 {
			t.Errorf("%v: %d wrong, want 7", typ, n)
		}
	}
}

// The test data is exact in every type for up to 64 ranks: what a rank adds up
// in float32, or in 8 bits, is what float64 says.
func TestPatternsAreExact(t *testing.T) {
	for ranks := 1; ranks <= communicator.MaxRanks; ranks++ {
		for i := range 200 {
			sum := pattern{op: dtype.Sum, ranks: ranks}.reduced(i)
			product := pattern{op: dtype.Prod, ranks: ranks}.reduced(i)
			average := pattern{op: dtype.Avg, ranks: ranks}.reduced(i) * 2
			if sum > 255 || product > 3 || average != math.Trunc(average) {
				t.Fatalf("%d ranks, element %d: sum %v, product %v, twice the average %v", ranks, i, sum, product, average)
			}
		}
	}
}

func TestBusFactor(t *testing.T) {
	for c, want := range map[schedule.Collective]float64{
		schedule.AllReduce: 1.5, schedule.AllGather: 0.75, schedule.ReduceScatter: 0.75, schedule.AllToAll: 0.75, schedule.Broadcast: 1, schedule.SendRecv: 1,
	} {
		if got := busFactor(c, 4); got != want {
			t.Errorf("%v: %v, want %v", c, got, want)
		}
	}
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine(time.Date(2026, 11, 29, 23, 0, 0, 0, time.FixedZone("", -3600)))
	if m.Cores < 1 || m.CPU == "" || m.Kernel == "" || m.Date != "2026-11-30" {
		t.Errorf("%s", fmt.Sprintf("%+v", m))
	}
}
