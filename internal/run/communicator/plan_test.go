package communicator

import (
	"testing"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/schedule"
)

// Parts of a program may be some segments apart, so none may send or receive
// through a channel that another one uses: messages in it are in order.
func TestPartsShareNoChannel(t *testing.T) {
	type end struct {
		peer   int
		shared bool
	}
	apart := 0
	for _, kind := range schedule.Collectives {
		for _, a := range collective.Algorithms(kind) {
			for n := 1; n <= 9; n++ {
				for rank := range n {
					p := a.Program(n, rank, n/2)
					starts := cut(p)
					if starts[0] != 0 || starts[parts] != len(p) {
						t.Fatalf("%v %s, rank %d of %d: parts begin at %v of %d steps", kind, a.Name, rank, n, starts, len(p))
					}
					sent, received := map[end]part{}, map[end]part{}
					note := func(used map[end]part, e end, i part) {
						if before, ok := used[e]; ok && before != i {
							t.Errorf("%v %s, rank %d of %d: parts %d and %d use the same channel: %+v", kind, a.Name, rank, n, before, i, e)
						}
						used[e] = i
					}
					for i := range parts {
						for _, s := range p[starts[i]:starts[i+1]] {
							switch s.Kind {
							case schedule.Send:
								note(sent, end{s.Peer, s.Peer == schedule.Everyone}, i)
							case schedule.Recv:
								note(received, end{s.Peer, s.Shared}, i)
							}
							for _, from := range s.From {
								if from.Rank != rank {
									note(received, end{from.Rank, from.Shared}, i)
								}
							}
						}
					}
					if starts[1] > 0 && starts[2] < len(p) {
						apart++
					}
				}
			}
		}
	}
	if apart == 0 {
		t.Error("no program has parts")
	}
}
