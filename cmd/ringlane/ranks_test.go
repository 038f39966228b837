package main

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

// TestEachLine reads lines of any length to the end, whatever becomes of them.
func TestEachLine(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	refused, broken := errors.New("refused"), errors.New("broken")
	var got []string
	read := func(line []byte) error {
		got = append(got, string(line))
		if string(line) == "bad" {
			return refused
		}
		return nil
	}
	err := eachLine(strings.NewReader("bad\n\n"+long+"\nlast"), read)
	if want := []string{"bad", "", long, "last"}; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	if !errors.Is(err, refused) {
		t.Error(err)
	}
	if err := eachLine(iotest.ErrReader(broken), read); !errors.Is(err, broken) {
		t.Error(err)
	}
}
