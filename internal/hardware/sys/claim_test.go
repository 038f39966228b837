package sys

import (
	"bytes"
	"testing"
)

// Claim and Fetch change nothing, at any place and of any length.
func TestClaimChangesNothing(t *testing.T) {
	mem := make([]byte, 1024)
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	want := bytes.Clone(mem)
	for at := range 130 {
		for _, n := range []int{0, 1, 63, 64, 65, 500} {
			Claim(mem[at : at+n])
			Fetch(mem[at : at+n])
		}
	}
	if !bytes.Equal(mem, want) {
		t.Error("memory was changed")
	}
}
