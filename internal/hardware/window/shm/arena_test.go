package shm

import (
	"math/rand/v2"
	"testing"
)

// Blocks never overlap, are zeroed, and in the end all space is one piece again.
func TestArena(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const size = 64 * page
	a, err := NewArena(size)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Window().Close()
	var blocks [][]byte
	owner := make([]int, size/page)
	free := func(i int) {
		b := blocks[i]
		at, ok := a.Offset(b)
		if !ok {
			t.Fatal("a block lies outside the arena")
		}
		for p := at / page; p*page < at+len(b); p++ {
			owner[p] = 0
		}
		if err := a.Free(b); err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks[:i], blocks[i+1:]...)
	}
	for step := range 2000 {
		if len(blocks) > 0 && rng.IntN(2) == 0 {
			free(rng.IntN(len(blocks)))
			continue
		}
		b, err := a.Alloc(1 + rng.IntN(9*page))
		if err != nil {
			if len(blocks) == 0 {
				t.Fatal(err)
			}
			free(0)
			continue
		}
		at, _ := a.Offset(b)
		for p := at / page; p*page < at+len(b); p++ {
			if owner[p] != 0 {
				t.Fatalf("page %d was handed out in steps %d and %d", p, owner[p], step+1)
			}
			owner[p] = step + 1
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("step %d: byte %d of a new block is %d", step, i, b[i])
			}
		}
		b[0], b[len(b)-1] = 1, 1
		blocks = append(blocks, b)
	}
	for len(blocks) > 0 {
		free(0)
	}
	if len(a.free) != 1 || a.free[0] != (gap{0, size}) {
		t.Errorf("what is free in the end: %v", a.free)
	}
	for _, bad := range []int{0, -1, size + 1} {
		if _, err := a.Alloc(bad); err == nil {
			t.Errorf("%d bytes of %d were handed out", bad, size)
		}
	}
}
