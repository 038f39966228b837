package sys

import (
	"bytes"
	"testing"
)

// CopyPast copies every length to every place of a line, and nothing beside it.
func TestCopyPast(t *testing.T) {
	const room = 400
	src := make([]byte, room+64)
	for i := range src {
		src[i] = byte(i*7 + 1)
	}
	for to := range 65 {
		for from := range 3 {
			for n := 0; n <= 200; n++ {
				dst, want := make([]byte, room), make([]byte, room)
				copy(want[to:], src[from:from+n])
				CopyPast(dst[to:to+n], src[from:from+n])
				Fence()
				if !bytes.Equal(dst, want) {
					t.Fatalf("%d bytes from %d to %d are wrong, or something beside them is", n, from, to)
				}
			}
		}
	}
}
