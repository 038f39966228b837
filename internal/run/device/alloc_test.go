package device

import (
	"testing"

	"ringlane/internal/model/schedule"
)

// TestAllocates makes calls of plans that exist, with two to switch between:
// nothing is allocated.
func TestAllocates(t *testing.T) {
	t.Setenv("RINGLANE_DEVICE_ALGO", "1x32")
	counted := make(chan struct{})
	together(t, 2, func(r *rank) error {
		p := r.alloc(4096)
		if r.rank == 0 {
			defer close(counted)
		}
		calls := []Call{
			{Count: 8, In: p, Out: p},
			{Collective: schedule.Broadcast, Count: 8, In: p, Out: p},
		}
		enqueue := func() {
			for i := range calls {
				r.must(r.Enqueue(calls[i], r.stream))
			}
		}
		enqueue()
		r.must(r.Synchronize(r.stream))
		const runs = 200
		if r.rank != 0 { // AllocsPerRun counts for the whole process
			for range runs + 1 {
				enqueue()
			}
			<-counted // to wait for a peer, and to close, allocates
			return nil
		}
		if n := testing.AllocsPerRun(runs, enqueue); n > 0 && !race {
			t.Errorf("two calls allocate %v times", n)
		}
		return nil
	})
}
