package collective

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// TestCandidatesInIslands has a way through islands be tried where there are some.
func TestCandidatesInIslands(t *testing.T) {
	d := devices(t, 4, false, "")
	d.Line = 16
	for _, islands := range []Islands{nil, {0, 0, 1, 1}} {
		d.Islands = islands
		var got []string
		for _, c := range d.Candidates(schedule.AllReduce, dtype.F32, 256<<10) {
			got = append(got, c.Choice.String())
		}
		if slices.Contains(got, "hierarchical:slot:32x512") != (islands != nil) || len(got) > 200 {
			t.Errorf("islands %v: the candidates are %q", islands, got)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, test := range []struct {
		c         schedule.Collective
		ranks     int
		host      bool
		bytes     int
		some, not []string
	}{
		{
			schedule.AllReduce, 2, false, 8,
			[]string{"oneshot:line16:4x128", "oneshot:line128:1x64", "direct:line64:2x512", "direct:line128:16x64"},
			[]string{"oneshot:line16:16x512", "oneshot:line16:128x64", "direct:slot:1x640"},
		},
		{
			schedule.AllReduce, 2, false, 1 << 20,
			[]string{"oneshot:line128:128x512", "direct:line16:128x256", "direct:slot:32x640", "direct:slot:128x256"},
			[]string{"oneshot:slot:32x640", "direct:line128:4x128", "direct:slot:8x640", "direct:slot:32x64", "ring:slot:32x512", "direct:engine2:8x512"},
		},
		{
			schedule.AllReduce, 2, false, 64 << 20,
			[]string{"direct:line128:128x512", "direct:slot:128x640", "direct:slot:96x512"},
			[]string{"oneshot:line128:128x512", "direct:line64:128x512", "direct:slot:16x640"},
		},
		{
			schedule.AllReduce, 2, true, 64 << 20,
			[]string{"direct:slot:48x640", "direct:slot:16x512", "direct:engine2:8x512"},
			[]string{"direct:slot:64x640", "direct:line128:128x512", "oneshot:engine:8x256"},
		},
		{
			schedule.AllReduce, 4, true, 64 << 20,
			[]string{"ring:slot:48x512", "direct:slot:48x640"},
			[]string{"direct:engine2:8x512", "ring:slot:48x640", "ring:line64:32x512"},
		},
		{
			schedule.AllGather, 4, false, 64 << 10,
			[]string{"direct:line128:32x256", "ring:slot:16x512"},
			[]string{"oneshot:line128:32x256", "direct:line128:1x128", "direct:slot:48x512"},
		},
		{schedule.AllToAll, 4, true, 16 << 20, []string{"direct:slot:48x768"}, []string{"ring:slot:48x512"}},
		{schedule.Broadcast, 2, true, 16 << 20, []string{"direct:engine2:1x512"}, []string{"direct:engine:8x512"}},
		{schedule.Barrier, 4, false, 0, []string{"direct:line128:4x128"}, []string{"direct:slot:1x768"}},
	} {
		d := devices(t, test.ranks, test.host, "")
		d.Engine = LayOutEngine(0, test.ranks, d.Layout, test.host)
		var got []string
		for _, c := range d.Candidates(test.c, dtype.I32, test.bytes) {
			got = append(got, c.Choice.String())
		}
		for _, want := range test.some {
			if !slices.Contains(got, want) {
				t.Errorf("%v of %d bytes, %d ranks, host %v: no %s among %q", test.c, test.bytes, test.ranks, test.host, want, got)
			}
		}
		for _, choice := range test.not {
			if slices.Contains(got, choice) {
				t.Errorf("%v of %d bytes, %d ranks, host %v: %s is among the candidates", test.c, test.bytes, test.ranks, test.host, choice)
			}
		}
		slices.Sort(got)
		if n := len(got); len(slices.Compact(got)) != n {
			t.Errorf("%v of %d bytes: a candidate is there twice: %q", test.c, test.bytes, got)
		}
	}
}

// Candidates are choices that RINGLANE_DEVICE_ALGO can ask for and that GPUs have
// room for; few enough to be measured; and what is chosen by size is one of them.
func TestCandidatesAreChoices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks, host := rapid.IntRange(2, 8).Draw(t, "ranks"), rapid.Bool().Draw(t, "host")
		layout, err := LayOutDevice(0, ranks, host)
		if err != nil {
			t.Fatal(err)
		}
		d := Devices{
			Ranks: ranks, Host: host, Layout: layout, Engine: LayOutEngine(0, ranks, layout, host), Threads: 1024,
			Line: rapid.SampledFrom([]int{16, 64, 128}).Draw(t, "line"), Blocks: rapid.IntRange(1, 200).Draw(t, "blocks"),
			DeviceOverride: rapid.SampledFrom([]DeviceOverride{{}, {Lines: true, Line: 128}, {Engines: true}}).Draw(t, "in force"),
		}
		c := rapid.SampledFrom([]schedule.Collective{schedule.AllReduce, schedule.AllGather, schedule.Broadcast, schedule.AllToAll}).Draw(t, "collective")
		bytes := rapid.IntRange(1, 1<<30).Draw(t, "bytes")
		typ := rapid.SampledFrom(dtype.Types).Draw(t, "type")
		all := d.Candidates(c, typ, bytes)
		if len(all) == 0 || len(all) > 160 {
			t.Fatalf("%d candidates", len(all))
		}
		d.DeviceOverride = DeviceOverride{}
		auto := d.Choose(c, typ, bytes)
		listed := !slices.Contains(candidateBlocks, auto.Blocks) || !slices.Contains(candidateThreads, auto.Threads)
		for _, candidate := range all {
			o, err := ParseDeviceOverride(candidate.Choice.String())
			if err != nil || o != candidate.Override {
				t.Fatalf("%v is asked for by %+v, not %+v, %v", candidate.Choice, candidate.Override, o, err)
			}
			if candidate.Choice.Blocks > d.Blocks || candidate.Choice.Line > d.Line {
				t.Fatalf("%v with %d blocks and lines of %d", candidate.Choice, d.Blocks, d.Line)
			}
			listed = listed || candidate.Choice == auto
		}
		if !listed {
			t.Fatalf("%v, which is chosen, is no candidate", auto)
		}
	})
}
