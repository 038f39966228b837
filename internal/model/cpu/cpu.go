// Package cpu describes logical CPUs: sets of them, and which of them share a
// core, a cache, a memory node and a package.
package cpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CPU is one logical CPU and where it sits. Core and Cache are named by the
// lowest number among the CPUs that share them, since the kernel's own numbers
// for them repeat from package to package.
type CPU struct {
	ID      int
	Core    int // CPUs of one core are its SMT threads
	Cache   int // last-level cache
	Node    int // NUMA node, 0 where the kernel knows none
	Package int // socket
	// Capacity is the kernel's measure of a core's speed, 1024 for the fastest
	// of the machine and where no difference is known.
	Capacity int
}

// Set is a set of logical CPUs by the kernel's numbers, in ascending order.
type Set []int

// largest bounds the numbers that Parse takes: it is well above what Linux can
// be built for, and keeps a range in damaged text from filling memory.
const largest = 1<<16 - 1

// Parse reads a list as the kernel writes it: "0-3,8". An empty list is an
// empty set.
func Parse(list string) (Set, error) {
	var set Set
	list = strings.TrimSpace(list)
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := number(low)
		last := first
		if err == nil && isRange {
			last, err = number(high)
		}
		if err != nil || last < first {
			return nil, fmt.Errorf("parse list of CPUs %.60q: %.20q is neither a number nor a range", list, part)
		}
		for id := first; id <= last; id++ {
			set = append(set, id)
		}
	}
	slices.Sort(set)
	return slices.Compact(set), nil
}

func number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err == nil && (n < 0 || n > largest) {
		err = strconv.ErrRange
	}
	return n, err
}

// Contains reports whether CPU id is in the set.
func (s Set) Contains(id int) bool {
	_, found := slices.BinarySearch(s, id)
	return found
}

// String writes the set as the kernel does: "0-3,8".
func (s Set) String() string {
	var b strings.Builder
	for i := 0; i < len(s); {
		last := i
		for last+1 < len(s) && s[last+1] == s[last]+1 {
			last++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(s[i]))
		if last > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(s[last]))
		}
		i = last + 1
	}
	return b.String()
}
