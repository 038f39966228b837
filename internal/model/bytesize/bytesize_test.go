package bytesize

import (
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "8": 8, "4K": 4096, "1m": 1 << 20, "16MiB": 16 << 20, "2GB": 2 << 30, " 64k ": 64 << 10} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "K", "-1", "1.5M", "x", "99999999999T"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: %d, want an error", text, got)
		}
	}
}

func TestFormat(t *testing.T) {
	for n, want := range map[int]string{0: "0", 1000: "1000", 4096: "4K", 3 << 20: "3M"} {
		if got := Format(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1<<62).Draw(t, "n")
		if got, err := Parse(Format(n)); err != nil || got != n {
			t.Fatalf("%d is written %s and read %d, %v", n, Format(n), got, err)
		}
	})
}
