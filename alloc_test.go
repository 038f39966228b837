package ringlane_test

import (
	"runtime"
	"testing"

	"ringlane"
)

// A call that has been made before allocates nothing.
func TestCallsAllocateNothing(t *testing.T) {
	ranks(2, "test allocations", func(c *ringlane.Comm) {
		data := make([]float32, 1000)
		var before, after runtime.MemStats
		for round := range 2 {
			runtime.ReadMemStats(&before)
			for range 200 {
				if err := ringlane.AllReduce(c, data, data, ringlane.Sum); err != nil {
					t.Error(err)
					return
				}
			}
			runtime.ReadMemStats(&after)
			// Both ranks run in this process, and the runtime allocates a little for itself.
			if n := after.Mallocs - before.Mallocs; round == 1 && n > 40 {
				t.Errorf("%d allocations in 200 calls", n)
			}
		}
	})
}

func TestAllocRefusesWhatCannotBe(t *testing.T) {
	for _, n := range []int{-1, 1 << 62, 1 << 57} {
		if s, err := ringlane.Alloc[float32](n); err == nil {
			t.Errorf("%d elements: got %d", n, len(s))
		}
	}
}
