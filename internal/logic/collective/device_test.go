package collective

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringlane/internal/model/schedule"
)

// devices are two GPUs with room for everything.
func devices(t testing.TB, ranks int, host bool, override string) *Devices {
	t.Helper()
	layout, err := LayOutDevice(DefaultDeviceWindow, host)
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
		{schedule.AllReduce, 2, false, 8, "", "oneshot:line128:1x32"},
		{schedule.AllReduce, 2, false, 4 << 10, "", "oneshot:line128:1x512"},
		{schedule.AllReduce, 2, false, 64 << 10, "", "oneshot:line128:9x512"},
		{schedule.AllReduce, 2, false, 1 << 20, "", "direct:line128:64x512"},
		{schedule.AllReduce, 2, false, 16 << 20, "", "direct:slot:64x768"},
		{schedule.AllReduce, 8, false, 64 << 10, "", "direct:line128:2x512"},
		{schedule.AllReduce, 2, true, 8, "", "oneshot:line64:1x32"},
		{schedule.AllReduce, 2, true, 64 << 10, "", "direct:line64:5x512"},
		{schedule.AllReduce, 2, true, 1 << 20, "", "direct:slot:16x768"},
		{schedule.AllGather, 2, false, 1 << 20, "", "direct:slot:64x768"},
		{schedule.Barrier, 4, false, 0, "", "direct:line128:1x32"},
		{schedule.Barrier, 4, false, 0, "slot", "direct:line128:1x32"},
		{schedule.AllToAll, 4, false, Uneven, "line", "direct:slot:64x768"},

		{schedule.AllReduce, 2, false, 8, "direct", "direct:line128:1x32"},
		{schedule.AllReduce, 2, false, 8, "slot", "direct:slot:1x768"},
		{schedule.AllReduce, 2, false, 8, "oneshot:slot", "direct:slot:1x768"}, // see Choose
		{schedule.AllReduce, 2, false, 64 << 20, "oneshot:line128:16x256", "oneshot:line128:16x256"},
		{schedule.AllGather, 2, false, 8, "oneshot", "direct:line128:1x32"},
		{schedule.AllReduce, 2, false, 64 << 20, "32x576", "direct:slot:32x512"},
		{schedule.AllReduce, 2, false, 64 << 20, "slot:128x100", "direct:slot:64x256"}, // rings for 64, whole warps
	} {
		if got := devices(t, test.ranks, test.host, test.override).Choose(test.c, test.bytes).String(); got != test.want {
			t.Errorf("%v of %d bytes, %d ranks, host %v, %q: %s, want %s", test.c, test.bytes, test.ranks, test.host, test.override, got, test.want)
		}
	}
}

// TestDeviceChoiceRuns has every choice be one that kernels can carry out.
func TestDeviceChoiceRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.Bool().Draw(t, "host")
		window := rapid.IntRange(leastDeviceWindow, 256<<20).Draw(t, "window")
		layout, err := LayOutDevice(window, host)
		if err != nil {
			t.Fatal(err)
		}
		powers := func(n int) bool { return n > 0 && n&(n-1) == 0 }
		if used := 2*layout.Half + deviceCounters + 2*layout.BulkBlocks*layout.Slots*layout.SlotBytes; used > window ||
			layout.Half%deviceRow != 0 || layout.Half == 0 || !powers(layout.Slots) || !powers(layout.SlotBytes) || layout.SlotBytes < 4<<10 {
			t.Fatalf("%d bytes are laid out as %+v, which takes %d", window, layout, used)
		}
		o, err := ParseDeviceOverride(rapid.SampledFrom([]string{"", "oneshot", "direct:line", "slot", "128x1024", "slot:1x32", "oneshot:line:128x32", "line:77x500"}).Draw(t, "override"))
		if err != nil {
			t.Fatal(err)
		}
		d := Devices{
			Ranks: rapid.IntRange(2, 32).Draw(t, "ranks"), Host: host, Layout: layout, DeviceOverride: o,
			Line:   rapid.SampledFrom([]int{16, 64, 128}).Draw(t, "line"),
			Blocks: rapid.IntRange(1, 200).Draw(t, "blocks"), Threads: rapid.SampledFrom([]int{128, 192, 256, 512, 1024}).Draw(t, "threads"),
		}
		c := rapid.SampledFrom(schedule.Collectives).Draw(t, "collective")
		least := 0
		if c == schedule.AllToAll || c == schedule.SendRecv {
			least = Uneven
		}
		choice := d.Choose(c, rapid.IntRange(least, 1<<40).Draw(t, "bytes"))
		if _, err := Find(c, choice.Algorithm); err != nil {
			t.Fatal(err)
		}
		if choice.Blocks < 1 || choice.Blocks > maxDeviceBlocks || choice.Threads < 32 || choice.Threads%32 != 0 || choice.Threads > d.Threads {
			t.Fatalf("%v", choice)
		}
		if choice.Line != 0 {
			if choice.Threads > lineThreads || layout.Half/choice.Blocks < deviceRow {
				t.Fatalf("%v with halves of %d", choice, layout.Half)
			}
			return
		}
		shares := 2
		if c == schedule.AllReduce {
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
	if _, err := LayOutDevice(leastDeviceWindow-1, false); err == nil {
		t.Error("a window that is too small is no error")
	}
}
