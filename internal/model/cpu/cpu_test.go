package cpu

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Set{
		"0":           {0},
		"0-3,8\n":     {0, 1, 2, 3, 8},
		"8,0-1,1-2":   {0, 1, 2, 8},
		"65535":       {65535},
		"":            nil,
		"\n":          nil,
		"0-1,64-65,5": {0, 1, 5, 64, 65},
	} {
		if got, err := Parse(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{",", "0,", "a", "1-", "-1", "3-2", "0-99999999999", "65536", "0-3:2", "1 2"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q passes as %v", text, got)
		}
	}
}

func TestStringIsWhatParseReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := Set(rapid.SliceOfDistinct(rapid.IntRange(0, 300), rapid.ID[int]).Draw(t, "set"))
		slices.Sort(set)
		if got, err := Parse(set.String()); err != nil || !slices.Equal(got, set) {
			t.Fatalf("%v is written %q and read %v, %v", []int(set), set.String(), []int(got), err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("0-3,8")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Parse(text)
		if err == nil && !slices.IsSorted(set) {
			t.Errorf("%q: %v", text, set)
		}
	})
}
