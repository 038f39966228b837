package collective

import (
	"slices"
	"testing"

	"ringlane/internal/model/schedule"
)

// Of all programs only those of the direct AllReduce can have answers.
func TestAnswered(t *testing.T) {
	for _, kind := range schedule.Collectives {
		for _, a := range Algorithms(kind) {
			for n := 1; n <= 9; n++ {
				if got, want := Answered(a.Programs(n, n/2)), kind == schedule.AllReduce && a.Name == "direct" && n > 1; got != want {
					t.Errorf("%v %s of %d ranks: %v", kind, a.Name, n, got)
				}
			}
		}
	}
}

// A program in which one thing is different has none.
func TestNotAnswered(t *testing.T) {
	direct := func() []schedule.Program { return directAllReduce.Programs(3, 0) }
	if !Answered(direct()) {
		t.Fatal("the program as it is has no answers")
	}
	last := len(direct()[1]) - 1
	for name, change := range map[string]func(p []schedule.Program){
		"a result is not waited for":       func(p []schedule.Program) { p[1] = p[1][:last] },
		"it comes from another rank":       func(p []schedule.Program) { p[1][last].Peer = 1 },
		"it is for another chunk":          func(p []schedule.Program) { p[1][last].Chunk = 1 },
		"it comes privately":               func(p []schedule.Program) { p[1][last].Shared = false },
		"an input is missing":              func(p []schedule.Program) { p[1][2].From = p[1][2].From[1:] },
		"an input is everyone's":           func(p []schedule.Program) { p[1][2].From[0].Shared = true },
		"a term is no input":               func(p []schedule.Program) { p[1][2].From[0].Value = schedule.Output },
		"another chunk is sent":            func(p []schedule.Program) { p[1][3].Chunk = 0 },
		"the input is what is sent":        func(p []schedule.Program) { p[1][3].Value = schedule.Input },
		"something happens before sending": func(p []schedule.Program) { p[1] = slices.Insert(p[1], 3, p[1][0]) },
	} {
		p := direct()
		if change(p); Answered(p) {
			t.Errorf("%s, and yet there are answers", name)
		}
	}
}
