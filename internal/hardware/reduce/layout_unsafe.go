//go:build amd64 || arm64

package reduce

import "unsafe"

// The assembly knows how long a Source is and where it keeps its pointer and its
// width. Where that is wrong, these constants overflow and nothing compiles.
const (
	_ = -(unsafe.Sizeof(Source{}) ^ 32)
	_ = -unsafe.Offsetof(Source{}.Data)
	_ = -(unsafe.Offsetof(Source{}.Wide) ^ 24)
)
