package device

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// TestGraphBeside makes calls on another stream while the stream of the call
// before is captured.
func TestGraphBeside(t *testing.T) {
	together(t, 2, func(r *rank) error {
		side, err := r.Context().NewStream(cuda.Normal)
		r.must(err)
		defer r.within(side.Destroy)
		p := r.alloc(64)
		r.set(p, make([]byte, 64))
		call := Call{Count: 16, In: p, Out: p}
		r.must(r.Enqueue(call, r.stream))
		r.within(r.stream.BeginCapture)
		r.must(r.Enqueue(call, r.stream))
		r.must(r.Enqueue(call, side))
		r.within(func() error {
			graph, err := r.stream.EndCapture()
			r.must(err)
			return graph.Destroy()
		})
		r.must(r.Enqueue(call, r.stream))
		return r.Synchronize(r.stream)
	})
}

// TestGraph captures calls on two streams and messages into a graph, once, and
// replays it more than a thousand times, with other calls in between.
func TestGraph(t *testing.T) {
	const n, replays, count = 2, 1500, 96
	t.Setenv("RINGLANE_DEVICE_ALGO", "1x64")
	together(t, n, func(r *rank) error {
		one := bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, count)
		in, sum, all, got := r.alloc(8*count), r.alloc(8*count), r.alloc(8*count*n), r.alloc(8*count)
		side, err := r.Context().NewStream(cuda.Normal)
		r.must(err)
		defer r.within(side.Destroy)
		event, err := r.Context().NewEvent(false)
		r.must(err)
		defer r.within(event.Destroy)
		peer := 1 - r.rank
		reduce := Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: count, In: in, Out: sum}
		gather := Call{Collective: schedule.AllGather, Type: dtype.I64, Count: count, In: sum, Out: all}
		swap := []Message{
			{Send: true, Peer: peer, Type: dtype.I64, Count: count, Buffer: all + cuda.Pointer(8*count*peer)},
			{Peer: peer, Type: dtype.I64, Count: count, Buffer: got},
		}
		r.must(r.Enqueue(reduce, r.stream)) // eager before
		r.must(r.Synchronize(r.stream))

		exec := r.recorded(func() {
			r.must(r.stream.Record(event))
			r.must(side.WaitEvent(event))
			// What follows needs an order that only the communicator makes.
			r.must(r.Enqueue(reduce, r.stream))
			r.must(r.Enqueue(gather, side))
			r.must(r.Exchange(swap, side))
			r.must(side.Record(event))
			r.must(r.stream.WaitEvent(event))
		})
		defer r.within(func() error { return exec.Destroy() })

		for i := range replays {
			if i%100 == 0 {
				r.set(in, bytes.Repeat(binary.LittleEndian.AppendUint64(nil, uint64(i+1)), count))
				r.set(got, one)
			}
			r.within(func() error { return exec.Launch(r.stream) })
			switch i % 7 { // others in between: by lines, by slots, of another size
			case 3:
				r.must(r.Enqueue(Call{Collective: schedule.Barrier}, r.stream))
			case 5:
				r.must(r.Enqueue(Call{Collective: schedule.AllToAll, Type: dtype.I64, SendCounts: []int{3, 3}, RecvCounts: []int{3, 3}, In: in, Out: all}, r.stream))
			case 6:
				r.must(r.Enqueue(Call{Collective: schedule.Broadcast, Type: dtype.U8, Count: 500, In: sum, Out: got}, r.stream))
			}
			if i%100 == 99 {
				r.within(func() error { return exec.Launch(r.stream) })
				r.must(r.Synchronize(r.stream))
				want := bytes.Repeat(binary.LittleEndian.AppendUint64(nil, uint64(n*(i-98))), count)
				if !bytes.Equal(r.get(got, len(want)), want) || !bytes.Equal(r.get(sum, len(want)), want) {
					return fmt.Errorf("replay %d leaves %v, want %v", i, r.get(got, 8), want[:8])
				}
			}
		}
		return nil
	})
}
