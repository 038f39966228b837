package collective

import (
	"testing"

	"pgregory.net/rapid"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

func TestEngineChoice(t *testing.T) {
	for _, test := range []struct {
		c        schedule.Collective
		bytes    int
		override string
		want     string
	}{
		{schedule.AllReduce, 8<<20 - 1, "", ""},
		{schedule.AllReduce, 64<<20 - 1, "", ""},
		{schedule.AllReduce, 1 << 30, "", "direct:engine2:48x512"},
		{schedule.AllGather, 64 << 20, "", "direct:engine2:1x512"},
		{schedule.AllReduce, 1 << 30, "slot", ""},
		{schedule.AllReduce, 1 << 30, "engine", "direct:engine2:48x512"},
		{schedule.AllGather, 8 << 20, "engine", "direct:engine2:1x512"},
		{schedule.AllReduce, 64 << 20, "slot", ""},
		{schedule.AllReduce, 64 << 20, "line", ""},
		{schedule.AllReduce, 64 << 20, "direct", ""},
		{schedule.AllReduce, 64 << 20, "oneshot", ""},
		{schedule.AllReduce, 8, "engine", "direct:engine2:48x512"},

		{schedule.AllReduce, 8, "engine1", "direct:engine1:48x512"},

		{schedule.Reduction, 8, "engine:16x100", "direct:engine2:16x96"},
		{schedule.Barrier, 0, "engine", ""},
		{schedule.SendRecv, 1 << 30, "engine", ""},
		{schedule.AllToAll, Uneven, "engine", ""},
	} {
		d := devices(t, 2, true, test.override)
		d.Engine = LayOutEngine(0, 2, d.Layout, true)
		choice := d.Choose(test.c, dtype.F32, test.bytes)
		got := ""
		if choice.Lanes > 0 {
			got = choice.String()
		}
		if got != test.want {
			t.Errorf("%v of %d bytes, %q: %q, want %q", test.c, test.bytes, test.override, got, test.want)
		}
	}
	for _, text := range []string{"engine:slot", "line16:engine"} {
		if _, err := ParseDeviceOverride(text); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}

// TestEngineLayout has slots fit in what a window leaves.
func TestEngineLayout(t *testing.T) {
	l, err := LayOutDevice(0, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := LayOutEngine(0, 2, l, true), (EngineLayout{6, 4 << 20}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, none := range []EngineLayout{LayOutEngine(0, 2, l, false), LayOutEngine(0, 3, l, true)} {
		if none != (EngineLayout{}) {
			t.Errorf("%+v where there is to be none", none)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(leastWindow, 64<<20).Draw(t, "window")
		l, err := LayOutDevice(window, 2, true)
		if err != nil {
			t.Fatal(err)
		}
		e := LayOutEngine(window, 2, l, true)
		used := l.Bytes()
		if e.Slots > 0 {
			used += enginePages + e.Slots*e.SlotBytes
		}
		if used > window || e.SlotBytes&(e.SlotBytes-1) != 0 || e.Slots > 0 && e.SlotBytes < engineLeast {
			t.Fatalf("%d bytes are laid out as %+v and %+v, which take %d", window, l, e, used)
		}
	})
}

// TestPieces cuts messages: every byte is in one piece, none is too long, and
// both ends are short.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := uint64(1) << rapid.IntRange(12, 22).Draw(t, "most")
		total := rapid.Uint64Range(1, 40*most).Draw(t, "total")
		var at, last uint64
		n := 0
		for ; at < total; n++ {
			size := NextPiece(at, total, most)
			if size == 0 || size > most || size > total-at || at == 0 && size > most/4 || at+size < total && size%(most/4) != 0 {
				t.Fatalf("at %d of %d, pieces of %d: %d", at, total, most, size)
			}
			at, last = at+size, size
		}
		if at != total || last > most/4 || uint64(n) > total/most+8 {
			t.Fatalf("%d pieces end at %d of %d with one of %d", n, at, total, last)
		}
	})
}
