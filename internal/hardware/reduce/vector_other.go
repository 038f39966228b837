//go:build !amd64 && !arm64

package reduce

// vectors is empty: this architecture has the Go twins alone.
var vectors []implementation
