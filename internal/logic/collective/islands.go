package collective

import (
	"fmt"
	"strconv"
	"strings"
)

// Islands says which island each rank is in: those that reach each other without
// leaving it. Islands are numbered from 0 in the order of their first ranks, which
// lead them. nil is one island.
type Islands []int

// Of lists the ranks of each island.
func (i Islands) Of(ranks int) (of [][]int) {
	for rank := range ranks {
		island := 0
		if i != nil {
			island = i[rank]
		}
		for len(of) <= island {
			of = append(of, nil)
		}
		of[island] = append(of[island], rank)
	}
	return of
}

// String writes islands as ParseIslands takes them.
func (i Islands) String() string {
	var text []string
	for _, members := range i.Of(len(i)) {
		var runs []string
		for first := 0; first < len(members); {
			last := first
			for last+1 < len(members) && members[last+1] == members[last]+1 {
				last++
			}
			run := fmt.Sprint(members[first])
			if last > first {
				run += fmt.Sprint("-", members[last])
			}
			runs = append(runs, run)
			first = last + 1
		}
		text = append(text, strings.Join(runs, ","))
	}
	return strings.Join(text, "/")
}

// ParseIslands reads which of so many ranks are in an island with each other:
// 0-3/4-7, or 0,2/1,3. All of them in one island is nil.
func ParseIslands(text string, ranks int) (Islands, error) {
	wrong := func(why string, args ...any) (Islands, error) {
		return nil, fmt.Errorf("%q does not put %d ranks into islands: %s (write it like 0-3/4-7)", text, ranks, fmt.Sprintf(why, args...))
	}
	named := make([]int, ranks) // by rank, from 1 in the order of the text
	count := 0
	for island := range strings.SplitSeq(text, "/") {
		count++
		for run := range strings.SplitSeq(island, ",") {
			from, to, through := strings.Cut(run, "-")
			if !through {
				to = from
			}
			first, err := strconv.Atoi(from)
			last, err2 := strconv.Atoi(to)
			switch {
			case err != nil || err2 != nil || first > last:
				return wrong("%q is neither a rank nor a row of ranks", run)
			case first < 0 || last >= ranks:
				return wrong("rank %d is outside 0 to %d", last, ranks-1)
			}
			for rank := first; rank <= last; rank++ {
				if named[rank] != 0 {
					return wrong("rank %d is there twice", rank)
				}
				named[rank] = count
			}
		}
	}
	islands, number := make(Islands, ranks), map[int]int{}
	for rank, name := range named {
		if name == 0 {
			return wrong("rank %d is missing", rank)
		}
		if _, ok := number[name]; !ok {
			number[name] = len(number)
		}
		islands[rank] = number[name]
	}
	if count == 1 {
		return nil, nil
	}
	return islands, nil
}
