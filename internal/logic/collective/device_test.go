package collective

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// devices are two GPUs with room for everything.
func devices(t testing.TB, ranks int, host bool, override string) *Devices {
	t.Helper()
	layout, err := LayOutDevice(0, ranks, host)
	if err != nil {
		t.Fatal(err)
	}
	o, err := ParseDeviceOverride(override)
	if err != nil {
		t.Fatal(err)
	}
	line := 128
	if host {
		line = 64
	}
	return &Devices{Ranks: ranks, Host: host, Line: line, Blocks: 128, Threads: 1024, Layout: layout, DeviceOverride: o}
}

func TestDeviceChoice(t *testing.T) {
	for _, test := range []struct {
		c        schedule.Collective
		ranks    int
		host     bool
		bytes    int
		override string
		want     string
	}{
		{schedule.AllReduce, 2, false, 8, "", "oneshot:line16:4x64"},
		{schedule.AllReduce, 2, false, 1 << 10, "", "oneshot:line16:4x128"},
		{schedule.AllReduce, 2, false, 4 << 10, "", "oneshot:line16:4x128"},
		{schedule.AllReduce, 2, false, 16 << 10, "", "oneshot:line16:16x128"},
		{schedule.AllReduce, 2, false, 64 << 10, "", "oneshot:line16:32x256"},
		{schedule.AllReduce, 2, false, 128 << 10, "", "oneshot:line128:64x256"},
		{schedule.AllReduce, 2, false, 256 << 10, "", "oneshot:line128:64x512"},
		{schedule.AllReduce, 2, false, 1 << 20, "", "direct:line128:128x512"},
		{schedule.AllReduce, 2, false, 32 << 20, "", "direct:line128:128x512"},
		{schedule.AllReduce, 2, false, 64 << 20, "", "direct:slot:128x640"},
		{schedule.AllReduce, 8, false, 64 << 10, "", "oneshot:line128:32x256"},
		{schedule.AllReduce, 8, false, 128 << 10, "", "direct:line128:16x128"},
		{schedule.AllReduce, 2, true, 8, "", "oneshot:line16:4x64"},
		{schedule.AllReduce, 2, true, 64 << 10, "", "oneshot:line64:32x256"},
		{schedule.AllReduce, 2, true, 1 << 20, "", "direct:line64:32x256"},
		{schedule.AllReduce, 2, true, 16 << 20, "", "direct:slot:48x640"},
		{schedule.AllReduce, 4, true, 64 << 20, "", "ring:slot:48x512"},
		{schedule.AllGather, 2, false, 32 << 20, "", "direct:slot:128x768"},
		{schedule.Barrier, 4, false, 0, "", "direct:line128:4x64"},
		{schedule.Barrier, 4, false, 0, "slot", "direct:line128:4x64"},
		{schedule.AllToAll, 4, false, Uneven, "line", "direct:slot:128x768"},

		{schedule.AllReduce, 2, false, 8, "direct", "direct:line128:4x64"},
		{schedule.AllReduce, 2, false, 8, "line64", "oneshot:line64:4x64"},
		{schedule.AllReduce, 2, false, 8, "slot", "direct:slot:1x640"},
		{schedule.AllReduce, 2, false, 8, "oneshot:slot", "direct:slot:1x640"}, // see Choose
		{schedule.AllReduce, 2, false, 64 << 20, "oneshot:line128:16x256", "oneshot:line128:16x256"},
		{schedule.AllReduce, 2, false, 8, "ring", "ring:slot:1x512"},
		{schedule.Broadcast, 2, false, 8, "ring", "direct:line128:4x64"},
		{schedule.AllGather, 2, false, 8, "oneshot", "direct:line128:4x64"},
		{schedule.AllReduce, 2, false, 64 << 20, "32x576", "direct:slot:32x512"},
		{schedule.AllReduce, 2, false, 64 << 20, "slot:128x100", "direct:slot:128x256"}, // whole warps
	} {
		if got := devices(t, test.ranks, test.host, test.override).Choose(test.c, dtype.I32, test.bytes).String(); got != test.want {
			t.Errorf("%v of %d bytes, %d ranks, host %v, %q: %s, want %s", test.c, test.bytes, test.ranks, test.host, test.override, got, test.want)
		}
	}
}

// TestSentinelChoice is about what goes without flags: reductions of floats between
// GPUs that reach each other, as long as areas have room.
func TestSentinelChoice(t *testing.T) {
	for _, test := range []struct {
		c        schedule.Collective
		typ      dtype.Type
		ranks    int
		host     bool
		bytes    int
		override string
		want     string
	}{
		{schedule.AllReduce, dtype.BF16, 2, false, 512 << 10, "", "oneshot:line128:128x512"},
		{schedule.AllReduce, dtype.BF16, 2, false, 2 << 20, "", "direct:line128:128x512"},
		{schedule.AllReduce, dtype.BF16, 2, false, 4 << 20, "", "direct:sentinel:128x512"},
		{schedule.AllReduce, dtype.F64, 2, false, 31 << 20, "", "direct:sentinel:128x512"},
		{schedule.AllReduce, dtype.F32, 2, false, 32 << 20, "", "direct:sentinel:128x512"},
		{schedule.AllReduce, dtype.F32, 2, false, 33 << 20, "", "direct:slot:128x640"},
		{schedule.AllReduce, dtype.F32, 8, false, 18 << 20, "", "direct:sentinel:128x512"},
		{schedule.AllReduce, dtype.F32, 8, false, 64 << 20, "", "direct:line128:128x512"},
		{schedule.AllReduce, dtype.I32, 2, false, 16 << 20, "", "direct:line128:128x512"},
		{schedule.AllReduce, dtype.F32, 2, true, 16 << 20, "", "direct:slot:48x640"},
		{schedule.ReduceScatter, dtype.F32, 2, false, 16 << 20, "", "direct:sentinel:128x512"},
		{schedule.Reduction, dtype.F32, 2, false, 16 << 20, "", "direct:sentinel:128x512"},
		{schedule.AllGather, dtype.F32, 2, false, 16 << 20, "sentinel", "direct:line128:128x512"},
		{schedule.AllReduce, dtype.F32, 2, false, 8, "sentinel", "direct:sentinel:1x512"},
		{schedule.AllReduce, dtype.F32, 2, false, 8, "sentinel:3x64", "direct:sentinel:3x64"},
		{schedule.AllReduce, dtype.F32, 2, false, 16 << 20, "line", "direct:line128:128x512"},
		{schedule.AllReduce, dtype.F32, 2, false, 16 << 20, "ring", "ring:slot:128x512"},
		{schedule.AllReduce, dtype.F32, 4, false, 16 << 20, "hierarchical", "hierarchical:slot:32x768"},
		{schedule.AllReduce, dtype.F32, 4, true, 8, "hierarchical:3x200", "hierarchical:slot:3x192"},
		{schedule.AllGather, dtype.F32, 4, false, 8, "hierarchical", "direct:line128:4x64"},
		{schedule.AllReduce, dtype.F32, 2, false, 16 << 20, "oneshot", "oneshot:line128:128x512"},
	} {
		d := devices(t, test.ranks, test.host, test.override)
		measured := Pace{348, 0.81}
		if test.host {
			measured = Pace{40, 1.3}
		}
		for _, d.Pace = range []Pace{{}, measured} {
			if got := d.Choose(test.c, test.typ, test.bytes).String(); got != test.want {
				t.Errorf("%v of %d bytes of %v, %d ranks, host %v, %q, %v: %s, want %s", test.c, test.bytes, test.typ, test.ranks, test.host, test.override, d.Pace, got, test.want)
			}
		}
	}
}

// TestDeviceChoiceRuns has every choice be one that kernels can carry out.
func TestDeviceChoiceRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.Bool().Draw(t, "host")
		ranks := rapid.IntRange(2, 32).Draw(t, "ranks")
		window := rapid.IntRange(leastWindow, 256<<20).Draw(t, "window")
		if rapid.Bool().Draw(t, "default") {
			window = 0
		}
		layout, err := LayOutDevice(window, ranks, host)
		if err != nil {
			t.Fatal(err)
		}
		powers := func(n int) bool { return n > 0 && n&(n-1) == 0 }
		if window == 0 {
			window = 128 << 20 / (ranks - 1)
		}
		if layout.Bytes() > window || layout.Half%deviceRow != 0 || layout.Half == 0 || layout.Short%deviceRow != 0 || layout.Short == 0 ||
			!powers(layout.Slots) || !powers(layout.SlotBytes) || layout.SlotBytes < 4<<10 {
			t.Fatalf("%d bytes are laid out as %+v, which takes %d", window, layout, layout.Bytes())
		}
		o, err := ParseDeviceOverride(rapid.SampledFrom([]string{"", "oneshot", "ring", "ring:line", "direct:line", "slot", "128x1024", "slot:1x32", "oneshot:line:128x32", "line:77x500", "sentinel", "sentinel:7x999", "hierarchical", "hierarchical:3x200"}).Draw(t, "override"))
		if err != nil {
			t.Fatal(err)
		}
		d := Devices{
			Ranks: ranks, Host: host, Layout: layout, DeviceOverride: o,
			Line:   rapid.SampledFrom([]int{16, 64, 128}).Draw(t, "line"),
			Blocks: rapid.IntRange(1, 200).Draw(t, "blocks"), Threads: rapid.SampledFrom([]int{128, 192, 256, 512, 1024}).Draw(t, "threads"),
		}
		if rapid.Bool().Draw(t, "measured") {
			rate, latency := rapid.Float64Range(0, 2000), rapid.Float64Range(0, 1e6)
			d.Pace, d.Inside = Pace{rate.Draw(t, "rate"), latency.Draw(t, "latency")}, Pace{rate.Draw(t, "inside"), latency.Draw(t, "latency inside")}
		}
		if ranks > 3 && rapid.Bool().Draw(t, "islands") {
			d.Islands = islandsBy(rapid.SampledFrom(patterns).Draw(t, "pattern").island, ranks)
		}
		c := rapid.SampledFrom(schedule.Collectives).Draw(t, "collective")
		least := 0
		if c == schedule.AllToAll || c == schedule.SendRecv {
			least = Uneven
		}
		typ := rapid.SampledFrom(dtype.Types).Draw(t, "type")
		bytes := rapid.IntRange(least, 1<<40).Draw(t, "bytes")
		choice := d.Choose(c, typ, bytes)
		if _, err := d.Schedule(c, choice.Algorithm); err != nil {
			t.Fatal(err)
		}
		if choice.Blocks < 1 || choice.Blocks > maxDeviceBlocks || choice.Threads < 32 || choice.Threads%32 != 0 || choice.Threads > d.Threads {
			t.Fatalf("%v", choice)
		}
		if choice.Sentinel {
			message := bytes
			if c == schedule.AllReduce {
				message = (bytes + ranks - 1) / ranks
			}
			area := (message + deviceRow - 1) / deviceRow * deviceRow
			reduces := slices.Contains([]schedule.Collective{schedule.AllReduce, schedule.ReduceScatter, schedule.Reduction}, c)
			if !reduces || !typ.Float() || host || area > layout.Area || choice.Threads > lineThreads {
				t.Fatalf("%v for %v of %v, areas of %d", choice, c, typ, layout.Area)
			}
			return
		}
		if choice.Line != 0 {
			if choice.Threads > lineThreads || d.HalfOf(choice.Line)/choice.Blocks < deviceRow {
				t.Fatalf("%v with halves of %d", choice, d.HalfOf(choice.Line))
			}
			return
		}
		shares := 2
		switch {
		case choice.Algorithm == Ring, choice.Algorithm == Hierarchical:
			if choice.Algorithm == Ring {
				shares = 1
			}
			if 2*choice.Piece > layout.SlotBytes {
				t.Fatalf("%v, pieces of %d, of %+v", choice, choice.Piece, layout)
			}
		case c == schedule.AllReduce:
			shares = 4
		}
		if choice.Algorithm == Oneshot || choice.Threads%(32*shares) != 0 || choice.Threads < leastShare*shares || choice.Threads > slotThreads ||
			choice.Blocks > layout.BulkBlocks || !powers(choice.Piece) || choice.Piece > layout.SlotBytes {
			t.Fatalf("%v, pieces of %d, of %+v", choice, choice.Piece, layout)
		}
	})
}

func TestParseDeviceOverride(t *testing.T) {
	for text, want := range map[string]string{
		"twoshot":     `"twoshot" is no part`,
		"line32":      `"line32" is no part`,
		"0x32":        "how many blocks",
		"16x":         "how many blocks",
		"129x32":      "how many blocks",
		"line16:slot": "two protocols",
	} {
		if _, err := ParseDeviceOverride(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	got, err := ParseDeviceOverride("auto:line64:oneshot:3x96")
	if want := (DeviceOverride{Algorithm: Oneshot, Line: 64, Lines: true, Blocks: 3, Threads: 96}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if _, err := LayOutDevice(leastWindow-1, 2, false); err == nil {
		t.Error("a window that is too small is no error")
	}
}
