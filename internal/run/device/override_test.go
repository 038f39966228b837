package device

import (
	"bytes"
	"fmt"
	"testing"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
)

// TestOverride goes from lines of one length to lines of another, which find no
// word in their halves that could be a flag.
func TestOverride(t *testing.T) {
	const n, count = 2, 3000
	together(t, n, func(r *rank) error {
		r.devices.Line = 128 // whatever a probe under load says
		call := Call{Type: dtype.I64, Count: count, In: r.alloc(8 * count), Out: r.alloc(8 * count)}
		r.set(call.In, words(count, r.rank, 0))
		want := expected(&call, n, r.rank)
		clean := func(at uint64, half int) error {
			left := r.get(r.Comm.memory.peers[1-r.rank].inbox+cuda.Pointer(at), 2*half)
			if !bytes.Equal(left, make([]byte, len(left))) {
				return fmt.Errorf("the halves at %d are not clean", at)
			}
			return nil
		}
		for i, asked := range []string{"oneshot:line128:4x128", "direct:line64:2x64", "oneshot:line16:4x128", "auto", "direct:line128:1x64", "auto", "line64"} {
			o, err := collective.ParseDeviceOverride(asked)
			r.must(err)
			r.must(r.Synchronize(r.stream))
			r.must(r.Override(o))
			for at, half := range map[uint64]int{0: r.devices.Layout.Half, r.geometry.PartBytes(): r.devices.Layout.Short} {
				if err := clean(at, half); err != nil {
					return fmt.Errorf("%d, %s: %w", i, asked, err)
				}
			}
			r.must(r.Override(o)) // which both have looked before
			r.set(call.Out, make([]byte, len(want)))
			r.must(r.Enqueue(call, r.stream))
			r.must(r.Synchronize(r.stream))
			choice := r.last.choice.String()
			if !bytes.Equal(r.get(call.Out, len(want)), want) {
				return fmt.Errorf("%s: wrong sums by %s", asked, choice)
			}
			if o.Blocks > 0 && choice != asked {
				return fmt.Errorf("%s, not %s", choice, asked)
			}
		}
		return nil
	})
}
