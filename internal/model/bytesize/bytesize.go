// Package bytesize reads and writes numbers of bytes as people do: 4096, 64K,
// 16M.
package bytesize

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse reads a size such as 4096, 64K, 16M or 1G (powers of 1024; an appended
// B or iB is allowed).
func Parse(text string) (int, error) {
	s := strings.ToUpper(strings.TrimSpace(text))
	s = strings.TrimSuffix(strings.TrimSuffix(s, "B"), "I")
	shift := 0
	if s != "" {
		if i := strings.IndexByte("KMGT", s[len(s)-1]); i >= 0 {
			shift = 10 * (i + 1)
			s = s[:len(s)-1]
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("%q is not a size (write it like 4096, 64K, 16M or 1G)", text)
	}
	return int(n << shift), nil
}

// Format writes a size as Parse reads it.
func Format(n int) string {
	unit := ""
	for _, u := range []string{"K", "M", "G", "T"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, u
	}
	return strconv.Itoa(n) + unit
}
