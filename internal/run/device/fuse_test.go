package device

import (
	"testing"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// TestFuse reads every schedule: kernels carry out those that move everything
// straight, and no others.
func TestFuse(t *testing.T) {
	for _, c := range schedule.Collectives {
		for _, a := range collective.Algorithms(c) {
			for ranks := 2; ranks <= 5; ranks++ {
				for root := range ranks {
					s := newScheduled(a, ranks, root)
					call := communicator.Call{Collective: c, Type: dtype.F32, Count: 1000, Root: root}
					if c == schedule.SendRecv { // not a call
						continue
					}
					var sends, takes uint64
					refused := 0
					for rank := range ranks {
						f, err := fuse(s, &call, rank)
						if err != nil {
							refused++
							continue
						}
						for p := range f.peers {
							flow := &f.peers[p]
							sends += flow.send.bytes
							takes += flow.recv.bytes
							if f.publishes {
								sends += f.ownOut.bytes * uint64(min(1, flow.gather.bytes))
								takes += flow.gather.bytes
							}
							if f.reduces && p != rank {
								takes += f.ownIn.bytes
							}
						}
					}
					straight := a.Name == "direct" || a.Name == collective.Oneshot
					if straight && (refused > 0 || sends != takes || sends == 0) || !straight && ranks > 3 && refused == 0 {
						t.Errorf("%v by %s, %d ranks, root %d: refused on %d, %d bytes are sent, %d taken", c, a.Name, ranks, root, refused, sends, takes)
					}
				}
			}
		}
	}
}
