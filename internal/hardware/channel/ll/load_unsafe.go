package ll

import (
	"sync/atomic"
	"unsafe"
)

// load takes the data of word i if it carries flag. The load is atomic so that
// the compiler repeats it in a polling loop.
func load(slot []uint64, i int, flag uint32) (uint32, bool) {
	word := (*atomic.Uint64)(unsafe.Pointer(&slot[i])).Load()
	return uint32(word), uint32(word>>32) == flag
}
