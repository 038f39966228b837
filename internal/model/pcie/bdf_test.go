package pcie

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestParseBDF(t *testing.T) {
	for in, want := range map[string]string{
		"0000:3b:00.0":       "0000:3b:00.0",
		"3b:00.0":            "0000:3b:00.0",
		"3B:1F.7":            "0000:3b:1f.7",
		"00000000:C1:00.0":   "0000:c1:00.0",
		"0001F2A4:00:00.0":   "1f2a4:00:00.0",
		"10000:e1:00.0":      "10000:e1:00.0",
		"fedcba98:01:02.3":   "fedcba98:01:02.3",
		"PCI:0000:03:00":     "0000:03:00.0",
		"PCI:00000000:85:00": "0000:85:00.0",
		"0000:03:00":         "0000:03:00.0",
		"b1:00":              "0000:b1:00.0",
		"44000":              "0000:44:00.0",
		"5000":               "0000:05:00.0",
		"1003b010":           "0100:3b:01.0",
		"300000010":          "3000:00:01.0",
		"ffff:ff:01.0":       "ffff:ff:01.0",
	} {
		b, err := ParseBDF(in)
		if err != nil || b.String() != want {
			t.Errorf("ParseBDF(%q) = %v, %v; want %s", in, b, err, want)
		}
	}
	for _, in := range []string{"", ":", "::", "3b:00.8", "3b:20.0", "003b:00.0", "0000:3b:0.0", "0000:3b:00.0x", "g0:00.0",
		"123456789:00:00.0", "0000:3b:00.0.0", "0000:0000:3b:00.0", "hello", "0x3b", "-1:00.0", "12345678901234", "40f"} {
		if b, err := ParseBDF(in); err == nil {
			t.Errorf("ParseBDF(%q) = %v; want an error", in, b)
		}
	}
}

func TestBDFRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := BDF{rapid.Uint32().Draw(t, "domain"), rapid.Uint8().Draw(t, "bus"),
			rapid.Uint8Range(0, 31).Draw(t, "device"), rapid.Uint8Range(0, 7).Draw(t, "function")}
		back, err := ParseBDF(b.String())
		if err != nil || back != b {
			t.Fatalf("%v came back as %v, %v", b, back, err)
		}
		text, err := json.Marshal(map[BDF]BDF{b: b})
		if err != nil {
			t.Fatal(err)
		}
		var m map[BDF]BDF
		if err := json.Unmarshal(text, &m); err != nil || m[b] != b {
			t.Fatalf("%s came back as %v, %v", text, m, err)
		}
	})
}

func TestBDFOrder(t *testing.T) {
	list := []BDF{MustParseBDF("10000:00:00.0"), MustParseBDF("0000:81:00.1"), MustParseBDF("0000:81:00.0"), MustParseBDF("0000:0a:1f.7")}
	slices.SortFunc(list, BDF.Compare)
	want := "[0000:0a:1f.7 0000:81:00.0 0000:81:00.1 10000:00:00.0]"
	if got := sprint(list); got != want {
		t.Errorf("sorted: %s, want %s", got, want)
	}
	if !list[1].SameDevice(list[2]) || list[0].SameDevice(list[1]) {
		t.Error("SameDevice looks at more or less than the function")
	}
}

func TestBDFFromID(t *testing.T) {
	if b := BDFFromID(1, 0x00e5); b.String() != "0001:00:1c.5" {
		t.Errorf("requester 00e5 is %v", b)
	}
}

func FuzzParseBDF(f *testing.F) {
	for _, s := range []string{"0000:3b:00.0", "PCI:0000:03:00", "44000", "ffff:ff:01.0", "3b:00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBDF(s)
		if err != nil {
			return
		}
		if again, err := ParseBDF(b.String()); err != nil || again != b {
			t.Errorf("%q gave %v, which reads as %v, %v", s, b, again, err)
		}
	})
}
