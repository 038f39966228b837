package device

import (
	"bytes"
	"fmt"
	"testing"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/model/dtype"
)

// streams makes n of them, until the test ends for the rank.
func (r *rank) streams(n int) (list []cuda.Stream, destroy func()) {
	for range n {
		s, err := r.Context().NewStream(cuda.Normal)
		r.must(err)
		list = append(list, s)
	}
	return list, func() {
		for _, s := range list {
			r.within(s.Destroy)
		}
	}
}

// TestOrder has a stream go on after one that waits for the other rank, which goes on
// when this rank has seen that only the one stream waits.
func TestOrder(t *testing.T) {
	seen := make(chan struct{})
	together(t, 2, func(r *rank) error {
		in, sum, early, late := r.alloc(64), r.alloc(64), r.alloc(64), r.alloc(64)
		for _, p := range []cuda.Pointer{in, sum, early, late} {
			r.set(p, bytes.Repeat([]byte{1, 0, 0, 0}, 16))
		}
		streams, destroy := r.streams(3)
		defer destroy()
		then, free, last := streams[0], streams[1], streams[2]
		call := Call{Type: dtype.I32, Count: 16, In: in, Out: sum}
		if r.rank == 1 {
			<-seen
			r.must(r.Enqueue(call, r.stream))
			return r.Synchronize(r.stream)
		}
		open := true
		release := func() {
			if open {
				open = false
				close(seen)
			}
		}
		defer release()
		r.must(r.Enqueue(call, r.stream))
		r.must(r.Order(r.stream, then))
		r.must(r.Order(free, last)) // the event stands for something else now
		r.must(r.Order(free, free))
		r.within(func() error { return then.Copy(late, sum, 64) })
		r.within(func() error { return last.Copy(early, sum, 64) })
		r.must(r.Synchronize(last))
		r.must(r.Synchronize(free))
		r.within(func() error {
			if done, err := then.Query(); done || err != nil {
				return fmt.Errorf("the second stream has not waited: %v", err)
			}
			return nil
		})
		release()
		r.must(r.Synchronize(then))
		if got := [2]byte{r.get(early, 1)[0], r.get(late, 1)[0]}; got != [2]byte{1, 2} {
			return fmt.Errorf("beside the sum and after it: %v, want 1 and 2", got)
		}
		return nil
	})
}

// TestOrderCaptured has a second stream join a capture, and the first one take up its
// work, between orders of streams that are not captured.
func TestOrderCaptured(t *testing.T) {
	together(t, 2, func(r *rank) error {
		from, through, to := r.alloc(64), r.alloc(64), r.alloc(64)
		want := bytes.Repeat([]byte{7}, 64)
		r.set(from, want)
		for _, p := range []cuda.Pointer{through, to} {
			r.set(p, make([]byte, 64))
		}
		streams, destroy := r.streams(2)
		defer destroy()
		side, other := streams[0], streams[1]
		r.must(r.Order(other, r.stream))
		exec := r.recorded(func() {
			r.must(r.Order(r.stream, side))
			r.must(side.Copy(through, from, 64))
			r.must(r.Order(side, r.stream))
			r.must(r.stream.Copy(to, through, 64))
		})
		defer r.within(func() error { return exec.Destroy() })
		r.must(r.Order(r.stream, other)) // not in the graph
		r.must(r.Synchronize(other))
		r.must(r.Synchronize(side))
		if got := r.get(through, 64); got[0] != 0 {
			return fmt.Errorf("a capture has written %v", got)
		}
		r.within(func() error { return exec.Launch(r.stream) })
		r.must(r.Synchronize(r.stream))
		if got := r.get(to, 64); !bytes.Equal(got, want) {
			return fmt.Errorf("the graph leaves %v, want %v", got, want)
		}
		return nil
	})
}

// TestOrderRefused has an order of streams fail where the communicator has failed.
func TestOrderRefused(t *testing.T) {
	together(t, 2, func(r *rank) error {
		r.abandoned = true
		r.Abort("a test")
		if r.Order(r.stream, r.stream) == nil {
			return fmt.Errorf("streams are ordered by a communicator that has failed")
		}
		return nil
	})
}
