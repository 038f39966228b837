package collective

import "ringlane/internal/model/schedule"

// Answered reports whether in these programs, one of each rank, every rank reduces a chunk
// of which all others send it their inputs, and shows everyone the result; and sends
// nothing else. Then a result can go back as the answer to the message that brought an
// input, and needs no message of its own.
func Answered(programs []schedule.Program) bool {
	for _, p := range programs {
		if !answered(p, len(programs)) {
			return false
		}
	}
	return true
}

func answered(p schedule.Program, ranks int) bool {
	type chunk struct{ number, peer int }
	asked, got := map[chunk]bool{}, map[chunk]bool{}
	var reduced *schedule.Step // by the step before
	for i := range p {
		s := &p[i]
		switch {
		case s.Kind == schedule.Send && s.Peer == schedule.Everyone:
			if reduced == nil || s.Value != schedule.Output || s.Chunk != reduced.Chunk || len(reduced.From) != ranks {
				return false
			}
		case s.Kind == schedule.Send && s.Value == schedule.Input:
			asked[chunk{s.Chunk, s.Peer}] = true
		case s.Kind == schedule.Recv && s.Shared && asked[chunk{s.Chunk, s.Peer}]:
			got[chunk{s.Chunk, s.Peer}] = true
		case s.Kind == schedule.Reduce && s.Value == schedule.Output:
			for _, from := range s.From {
				if from.Shared || from.Value != schedule.Input {
					return false
				}
			}
			reduced = s
			continue
		default:
			return false
		}
		reduced = nil
	}
	return len(got) > 0 && len(got) == len(asked)
}
