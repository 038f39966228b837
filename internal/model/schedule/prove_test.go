package schedule

import (
	"slices"
	"strings"
	"testing"
)

// exchange is an AllReduce of two ranks on one chunk.
func exchange(rank int) Program {
	return Program{
		{Kind: Send, Value: Input, Peer: 1 - rank},
		{Kind: Reduce, Value: Output, From: []Source{{Rank: 0, Value: Input}, {Rank: 1, Value: Input}}},
	}
}

// sumEverywhere is the goal of an AllReduce.
func sumEverywhere(ranks int) Goal {
	return Goal{
		Input:  func(int, int) bool { return true },
		Output: func(int, int) uint64 { return 1<<ranks - 1 },
	}
}

// gatherEverywhere is the goal of an AllGather.
func gatherEverywhere() Goal {
	return Goal{
		Input:  func(rank, chunk int) bool { return rank == chunk },
		Output: func(_, chunk int) uint64 { return 1 << chunk },
	}
}

func TestProveCost(t *testing.T) {
	// A chain: rank 0 sends to 1, which adds and sends to 2, which adds and
	// shows the sum to everyone.
	chain := []Program{
		{
			{Kind: Send, Value: Input, Peer: 1},
			{Kind: Recv, Peer: 2, Shared: true},
		},
		{
			{Kind: Reduce, Value: Partial, From: []Source{{Rank: 0, Value: Input}, {Rank: 1, Value: Input}}},
			{Kind: Send, Value: Partial, Peer: 2},
			{Kind: Recv, Peer: 2, Shared: true},
		},
		{
			{Kind: Reduce, Value: Output, From: []Source{{Rank: 1, Value: Partial}, {Rank: 2, Value: Input}}},
			{Kind: Send, Value: Output, Peer: Everyone},
		},
	}
	for slots := 1; slots <= 3; slots++ {
		cost, err := Claim{Programs: chain, Chunks: 1, Goal: sumEverywhere(3), Slots: slots, Rounds: 5}.Prove()
		if err != nil {
			t.Fatal(err)
		}
		want := []Traffic{{Written: 1, Read: 1}, {Written: 1, Partial: 1, Read: 2}, {Written: 1, Read: 1}}
		if cost.Steps != 3 || cost.OnePort != 3 || !slices.Equal(cost.Ranks, want) {
			t.Errorf("%d slots: cost %+v", slots, cost)
		}
	}
}

// TestProveOnePort has two ranks send to a third, which can read only one of
// them in a step.
func TestProveOnePort(t *testing.T) {
	cost, err := Claim{
		Programs: []Program{
			{{Kind: Reduce, Value: Output, From: []Source{{Rank: 0}, {Rank: 1}, {Rank: 2}}}},
			{{Kind: Send, Peer: 0}},
			{{Kind: Send, Peer: 0}},
		},
		Chunks: 1,
		Goal: Goal{
			Input: func(int, int) bool { return true },
			Output: func(rank, _ int) uint64 {
				if rank == 0 {
					return 7
				}
				return 0
			},
		},
		Slots: 1,
	}.Prove()
	if err != nil || cost.Steps != 1 || cost.OnePort != 2 {
		t.Errorf("cost %+v, %v", cost, err)
	}
}

// TestProveRejects breaks one rule at a time.
func TestProveRejects(t *testing.T) {
	own := func(rank int) Source { return Source{Rank: rank, Value: Input} }
	sum := func(from ...Source) Step { return Step{Kind: Reduce, Value: Output, From: from} }
	send := func(peer int) Step { return Step{Kind: Send, Value: Input, Peer: peer} }
	recv := func(peer, chunk int) Step { return Step{Kind: Recv, Peer: peer, Chunk: chunk} }
	gather := func(rank int) Program {
		return Program{
			{Kind: Send, Chunk: rank, Peer: 1 - rank},
			{Kind: Copy, Chunk: rank},
			recv(1-rank, 1-rank),
		}
	}
	for _, test := range []struct {
		name     string
		programs []Program
		goal     Goal
		chunks   int      // 0: 1
		slots    int      // 0: 1
		want     []string // nil: no error
	}{
		{
			name:     "deadlock of a circle",
			programs: []Program{{sum(own(0), own(1)), send(1)}, {sum(own(0), own(1)), send(0)}},
			goal:     sumEverywhere(2),
			want: []string{
				"deadlock: rank 0, round 0, step 0 (reduce chunk 0 into output) waits for rank 1 to send",
				"rank 1, round 0, step 0 (reduce chunk 0 into output) waits for rank 0 to send",
			},
		},
		{
			name: "deadlock on slots",
			programs: []Program{
				{send(1), send(1), sum(own(0), own(1)), recv(1, 0)},
				{send(0), send(0), sum(own(0), own(1)), recv(0, 0)},
			},
			goal: sumEverywhere(2),
			want: []string{"step 1 (send input of chunk 0 to rank 1) waits for rank 1 to free a slot of their channel"},
		},
		{
			name:     "deadlock on the shared channel",
			programs: []Program{{{Kind: Copy}, {Kind: Send, Value: Output, Peer: Everyone}}, {}},
			goal: Goal{
				Input:  func(rank, _ int) bool { return rank == 0 },
				Output: func(rank, _ int) uint64 { return uint64(1 - rank) },
			},
			want: []string{"deadlock: rank 0, round 1, step 1 (send output of chunk 0 to everyone) waits for rank 1 to free a slot of the shared channel; rank 1 has finished"},
		},
		{
			name:     "two segments of a channel of one slot in one pass",
			programs: []Program{{sum(own(0), own(1), own(1))}, {send(0), send(0)}},
			goal:     sumEverywhere(2),
			want:     []string{"deadlock", "rank 0, round 0, step 0 (reduce chunk 0 into output) waits for rank 1 to send"},
		},
		{
			name:     "wrong chunk",
			programs: []Program{{{Kind: Send, Chunk: 0, Peer: 1}, {Kind: Copy, Chunk: 0}, recv(1, 0)}, gather(1)},
			goal:     gatherEverywhere(),
			chunks:   2,
			want:     []string{"rank 0, round 0, step 2 (recv chunk 0 from rank 1): got input of chunk 1 of round 0 where input of chunk 0 of round 0 is expected"},
		},
		{
			name:     "wrong round",
			programs: []Program{{send(1)}, {recv(0, 0), recv(0, 0)}},
			goal: Goal{
				Input: func(rank, _ int) bool { return rank == 0 },
				Output: func(rank, _ int) uint64 {
					return uint64(rank)
				},
			},
			slots: 2,
			want:  []string{"rank 1, round 0, step 1 (recv chunk 0 from rank 0): got input of chunk 0 of round 1 where input of chunk 0 of round 0 is expected"},
		},
		{
			name:     "wrong value",
			programs: []Program{exchange(0), {send(0), sum(Source{Rank: 0, Value: Partial}, own(1))}},
			goal:     sumEverywhere(2),
			want:     []string{"rank 1, round 0, step 1", "got input of chunk 0", "where partial of chunk 0"},
		},
		{
			name: "partial received as output",
			programs: []Program{
				{{Kind: Reduce, Value: Partial, From: []Source{own(0)}}, {Kind: Send, Value: Partial, Peer: 1}, {Kind: Copy}},
				{recv(0, 0)},
			},
			goal: sumEverywhere(1),
			want: []string{"rank 1, round 0, step 0", "only a reduce can finish"},
		},
		{
			name:     "term twice",
			programs: []Program{{send(1), sum(own(0), own(1), own(0))}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 1 (reduce chunk 0 into output): term of rank 0 counted twice"},
		},
		{
			name:     "term missing",
			programs: []Program{{sum(own(0))}, {{Kind: Copy}}},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, end, output of chunk 0: term of rank 1 missing"},
		},
		{
			name:     "term too many",
			programs: []Program{exchange(0), exchange(1)},
			goal:     sumEverywhere(1),
			want:     []string{"round 0, end, output of chunk 0: term of rank 1 does not belong there"},
		},
		{
			name:     "finished value as term",
			programs: []Program{{{Kind: Copy}, sum(Source{Rank: 0, Value: Output})}, {{Kind: Copy}}},
			goal:     sumEverywhere(1),
			want:     []string{"rank 0, round 0, step 1", "output of rank 0 as a term"},
		},
		{
			name:     "other bits",
			programs: []Program{exchange(0), {send(0), sum(own(1), own(0))}},
			goal:     sumEverywhere(2),
			want:     []string{"round 0, end, output of chunk 0", "another order"},
		},
		{
			name:     "output missing",
			programs: []Program{{send(1)}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, end, output of chunk 0: missing"},
		},
		{
			name:     "output twice with the same content is none",
			programs: []Program{append(slices.Clone(gather(0)), recv(1, 0)), append(slices.Clone(gather(1)), Step{Kind: Send, Chunk: 0, Value: Output, Peer: 0})},
			goal: Goal{
				Input: func(rank, chunk int) bool { return true },
				Output: func(rank, chunk int) uint64 {
					return 1 << chunk
				},
			},
			chunks: 2,
		},
		{
			name: "output twice with other content",
			programs: []Program{
				{{Kind: Copy}, recv(1, 0)},
				{send(0)},
			},
			goal: Goal{
				Input:  func(int, int) bool { return true },
				Output: func(rank, _ int) uint64 { return uint64(1 - rank) },
			},
			want: []string{"rank 0, round 0, step 1 (recv chunk 0 from rank 1): output of chunk 0 written twice, first with the terms of rank 0, then with those of rank 1"},
		},
		{
			name:     "output not asked for",
			programs: []Program{exchange(0), exchange(1)},
			goal: Goal{
				Input:  func(int, int) bool { return true },
				Output: func(rank, _ int) uint64 { return 3 * uint64(1-rank) },
			},
			want: []string{"rank 1, round 0, step 1", "output of chunk 0 is not asked for on this rank"},
		},
		{
			name:     "input after output",
			programs: []Program{{{Kind: Copy, Chunk: 0}, {Kind: Send, Chunk: 0, Peer: 1}, recv(1, 1)}, gather(1)},
			goal:     gatherEverywhere(),
			chunks:   2,
			want:     []string{"rank 0, round 0, step 1 (send input of chunk 0 to rank 1): input of chunk 0 used after its output was written"},
		},
		{
			name:     "input of another rank",
			programs: []Program{{{Kind: Copy, Chunk: 1}}, gather(1)},
			goal:     gatherEverywhere(),
			chunks:   2,
			want:     []string{"rank 0, round 0, step 0 (copy chunk 1): input of chunk 1 is not on this rank"},
		},
		{
			name:     "partial not held",
			programs: []Program{{{Kind: Send, Value: Partial, Peer: 1}}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 0 (send partial of chunk 0 to rank 1): partial of chunk 0 is not held"},
		},
		{
			name:     "partial of the round before",
			programs: []Program{{{Kind: Send, Value: Partial, Peer: 1}, {Kind: Reduce, Value: Partial, From: []Source{own(0)}}}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 0"},
		},
		{
			name:     "output not written",
			programs: []Program{{{Kind: Send, Value: Output, Peer: 1}}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 0", "output of chunk 0 is not written yet"},
		},
		{
			name:     "message left",
			programs: []Program{{{Kind: Copy}, {Kind: Send, Value: Output, Peer: 1}}, {}},
			goal: Goal{
				Input:  func(rank, _ int) bool { return rank == 0 },
				Output: func(rank, _ int) uint64 { return uint64(1 - rank) },
			},
			slots: 3,
			want:  []string{"rank 1 never reads output of chunk 0 of round 0 from rank 0"},
		},
		{
			name:     "shared message left",
			programs: []Program{{{Kind: Copy}, {Kind: Send, Value: Output, Peer: Everyone}}, {}},
			goal: Goal{
				Input:  func(rank, _ int) bool { return rank == 0 },
				Output: func(rank, _ int) uint64 { return uint64(1 - rank) },
			},
			slots: 3,
			want:  []string{"rank 1 never reads output of chunk 0 of round 0 from the shared channel of rank 0"},
		},
		{
			name:     "no such peer",
			programs: []Program{{send(2)}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 0", "no rank 2 (there are 2)"},
		},
		{
			name:     "recv from everyone",
			programs: []Program{{recv(Everyone, 0)}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 0", "no rank -1"},
		},
		{
			name:     "send to itself",
			programs: []Program{{send(0)}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 0", "rank 0 is the rank itself"},
		},
		{
			name:     "own shared channel",
			programs: []Program{{{Kind: Send, Peer: Everyone}, sum(Source{Rank: 0, Shared: true})}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 1", "rank 0 is the rank itself"},
		},
		{
			name:     "no such chunk",
			programs: []Program{{{Kind: Copy, Chunk: 2}}, exchange(1)},
			goal:     sumEverywhere(2),
			chunks:   2,
			want:     []string{"rank 0, round 0, step 0 (copy chunk 2): no such chunk (there are 2)"},
		},
		{
			name:     "no terms",
			programs: []Program{{sum()}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 0", "0 terms into output"},
		},
		{
			name:     "reduce into input",
			programs: []Program{{{Kind: Reduce, Value: Input, From: []Source{own(0)}}}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 0", "1 terms into input"},
		},
		{
			name:     "no such value",
			programs: []Program{{{Kind: Send, Value: 9, Peer: 1}}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 0", "no such value"},
		},
		{
			name:     "no such kind",
			programs: []Program{{{Kind: 9}}, exchange(1)},
			goal:     sumEverywhere(2),
			want:     []string{"rank 0, round 0, step 0", "no such kind"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cost, err := Claim{
				Programs: test.programs,
				Chunks:   max(test.chunks, 1),
				Goal:     test.goal,
				Slots:    max(test.slots, 1),
			}.Prove()
			if (err == nil) != (test.want == nil) {
				t.Fatalf("cost %+v, error %v", cost, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q not in error:\n%v", want, err)
				}
			}
		})
	}
}

func TestProveBounds(t *testing.T) {
	for _, claim := range []Claim{
		{Chunks: 1, Slots: 1},
		{Programs: make([]Program, MaxRanks+1), Slots: 1},
		{Programs: make([]Program, 2), Slots: 0},
	} {
		if _, err := claim.Prove(); err == nil {
			t.Errorf("%d ranks, %d slots: proved", len(claim.Programs), claim.Slots)
		}
	}
}
