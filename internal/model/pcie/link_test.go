package pcie

import (
	"fmt"
	"math"
	"testing"
)

func sprint(v any) string { return fmt.Sprint(v) }

func TestGBs(t *testing.T) {
	for _, c := range []struct {
		link Link
		want float64
	}{
		{Link{Gen1, 1}, 0.25}, {Link{Gen1, 16}, 4.0}, {Link{Gen2, 4}, 2.0}, {Link{Gen3, 16}, 15.75}, {Link{Gen4, 16}, 31.51},
		{Link{Gen5, 16}, 63.02}, {Link{Gen5, 8}, 31.51}, {Link{Gen6, 16}, 121.0}, {Link{Gen6, 4}, 30.25},
		{Link{0, 16}, 0}, {Link{Gen3, 0}, 0}, {Link{Gen3, WidthAllOnes}, 0}, {Link{9, 16}, 0},
	} {
		if got := c.link.GBs(); math.Abs(got-c.want) > 0.005 {
			t.Errorf("%v: %.3f GB/s, want %.2f", c.link, got, c.want)
		}
	}
}

func TestDataGBs(t *testing.T) {
	for _, c := range []struct {
		link    Link
		payload int
		want    float64
	}{
		{Link{Gen3, 16}, 256, 13.0}, {Link{Gen4, 16}, 256, 26.0}, {Link{Gen5, 16}, 256, 52.0}, {Link{Gen5, 16}, 0, 0},
	} {
		if got := c.link.DataGBs(c.payload); math.Abs(got-c.want) > 0.15 {
			t.Errorf("%v with %d bytes: %.2f GB/s, want about %.1f", c.link, c.payload, got, c.want)
		}
	}
	for s := Gen1; s <= Gen6; s++ {
		last := 0.0
		for p := 128; p <= 4096; p *= 2 {
			e := s.TLPEfficiency(p)
			if e <= last || e >= 1 {
				t.Errorf("%v, %d bytes: efficiency %.3f after %.3f", s, p, e, last)
			}
			last = e
		}
	}
}

func TestParseSpeed(t *testing.T) {
	for in, want := range map[string]Speed{
		"2.5GT/s": Gen1, "2.5 GT/s PCIe": Gen1, "5GT/s": Gen2, "5.0 GT/s PCIe": Gen2, "8GT/s (downgraded)": Gen3, "8 GT/s": Gen3,
		"16.0 GT/s PCIe": Gen4, "16 GT/s": Gen4, " 32.0 GT/s PCIe\n": Gen5, "64.0 GT/s PCIe": Gen6, "64GT/s": Gen6,
		"Unknown": 0, "unknown": 0, "<unknown>": 0, "Unknown speed": 0,
	} {
		if s, err := ParseSpeed(in); err != nil || s != want {
			t.Errorf("ParseSpeed(%q) = %v, %v; want %v", in, s, err, want)
		}
	}
	for _, in := range []string{"", "fast", "8", "8 Gb/s", "3GT/s", "GT/s", "....GT/s"} {
		if s, err := ParseSpeed(in); err == nil {
			t.Errorf("ParseSpeed(%q) = %v, want an error", in, s)
		}
	}
	for s := Speed(0); s <= Gen6; s++ {
		if back, err := ParseSpeed(s.String()); err != nil || back != s {
			t.Errorf("%v came back as %v, %v", s, back, err)
		}
	}
}

func TestLinkCompare(t *testing.T) {
	wide, narrow := Link{Gen4, 16}, Link{Gen5, 8}
	if m := wide.Min(narrow); m != (Link{Gen4, 8}) {
		t.Errorf("min: %v", m)
	}
	if m := (Link{0, 16}).Min(Link{Gen3, 0}); m != (Link{Gen3, 16}) {
		t.Errorf("min with gaps: %v", m)
	}
	if !wide.Slower(narrow) || narrow.Slower(wide) || !narrow.Narrower(wide) || wide.Narrower(narrow) {
		t.Error("Slower or Narrower is wrong")
	}
	if (Link{}).Slower(wide) || (Link{}).Narrower(wide) || wide.Narrower(Link{}) {
		t.Error("a link that is not known compares as slower or narrower")
	}
}

func TestErrorNames(t *testing.T) {
	for i := range 32 {
		ce := CorrectableErrors(1) << i
		if name := ce.Names()[0]; name[:3] != "bit" {
			if back, ok := CorrectableByName(name); !ok || back != ce {
				t.Errorf("%s came back as %v, %v", name, back, ok)
			}
		}
		ue := UncorrectableErrors(1) << i
		if name := ue.Names()[0]; name[:3] != "bit" {
			if back, ok := UncorrectableByName(name); !ok || back != ue {
				t.Errorf("%s came back as %v, %v", name, back, ok)
			}
		}
	}
	for name, want := range map[string]CorrectableErrors{"Receiver Error": ReceiverError, "AdvNonFatalErr": AdvisoryNonFatal, "Replay Timer Timeout": ReplayTimeout} {
		if got, ok := CorrectableByName(name); !ok || got != want {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
	if got := sprint((ReceiverError | ReplayTimeout | 1<<3).Names()); got != "[RxErr bit 3 Timeout]" {
		t.Errorf("names: %s", got)
	}
	if ReplayTimeout.Layer() != DataLinkLayer || ReceiverError.Layer() != PhysicalLayer || MalformedTLP.Layer() != TransactionLayer {
		t.Error("a bit is in the wrong layer")
	}
	if (AdvisoryNonFatal | BadDLLP).Link() != BadDLLP {
		t.Error("Link keeps errors that the link does not make")
	}
}

func TestSplitVendor(t *testing.T) {
	for in, want := range map[string]string{
		"NVIDIA Corporation GA100 [A100 PCIe 40GB]":      "10de|GA100 [A100 PCIe 40GB]",
		"Broadcom / LSI PEX890xx PCIe Gen 5 Switch":      "1000|PEX890xx PCIe Gen 5 Switch",
		"Broadcom Inc. and subsidiaries BCM57508":        "14e4|BCM57508",
		"Advanced Micro Devices, Inc. [AMD/ATI] Vega 20": "1002|Vega 20",
		"Advanced Micro Devices, Inc. [AMD] Device 149f": "1022|Device 149f",
		"Nobody Ltd. Thing":                              "0000|Nobody Ltd. Thing",
	} {
		v, _, _, model := SplitVendor(in)
		if got := fmt.Sprintf("%04x|%s", v, model); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
