package shm

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Both ways of populating back every page, and change nothing.
func TestPopulate(t *testing.T) {
	for name, populate := range map[string]func(*Window) error{
		"in one call": (*Window).Populate,
		"by touching": func(w *Window) error { touch(w.Bytes); return nil },
	} {
		const size = 3<<20 + 4096
		w, err := Create("shm test", size, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		backed := func() int64 {
			var st unix.Stat_t
			if err := unix.Fstat(w.FD(), &st); err != nil {
				t.Fatal(err)
			}
			return st.Blocks * 512
		}
		if n := backed(); n != 0 {
			t.Fatalf("%s: a new window has %d bytes of memory", name, n)
		}
		w.Bytes[0], w.Bytes[8191], w.Bytes[size-1] = 1, 2, 3
		if err := populate(w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := backed(); n < size {
			t.Errorf("%s: %d of %d bytes have memory", name, n, size)
		}
		sum := 0
		for _, b := range w.Bytes {
			sum += int(b)
		}
		if sum != 6 || w.Bytes[8191] != 2 {
			t.Errorf("%s: the contents changed", name)
		}
	}
}
