package cost

import (
	"cmp"
	"math"
	"slices"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/schedule"
)

// Point is what each choice takes for one size of a collective: a time for each
// kind of memory that was tried.
type Point struct {
	Bytes int
	Times map[collective.Choice][]float64
}

// Sizes are the sizes for which the model is asked: 8 bytes to 1 GiB.
var Sizes = ladder(8, 1<<30, 2)

func ladder(first, last, factor int) (sizes []int) {
	for n := first; n <= last; n *= factor {
		sizes = append(sizes, n)
	}
	return sizes
}

// Candidates are the choices to compare for c at a size: each algorithm, by
// simple and, while a slot or two of it hold the message, by ll.
func Candidates(c schedule.Collective, bytes int) (all []collective.Choice) {
	for _, a := range collective.Algorithms(c) {
		all = append(all, collective.Choice{Algorithm: a.Name, Protocol: collective.Simple})
		if bytes <= 2*llSegment {
			all = append(all, collective.Choice{Algorithm: a.Name, Protocol: collective.LL})
		}
	}
	return all
}

// Segments are what choice may cut a message of that many bytes into instead of
// what fills a slot among ranks. What they are good for, a slot that stays in a
// core's cache, the model does not know: only measurements choose them.
func Segments(choice collective.Choice, ranks, bytes int) (all []collective.Choice) {
	if choice.Protocol != collective.Simple {
		return nil
	}
	for piece := 16 << 10; piece < Slot(ranks) && piece < bytes; piece *= 2 {
		choice.Segment = piece
		all = append(all, choice)
	}
	return all
}

// Price asks the model for every candidate at every size.
func (p Parameters) Price(c schedule.Collective, ranks int, sizes []int) []Point {
	points := make([]Point, len(sizes))
	prices := p.pricer()
	for i, bytes := range sizes {
		points[i] = Point{bytes, map[collective.Choice][]float64{}}
		for _, choice := range Candidates(c, bytes) {
			call := Call{Collective: c, Ranks: ranks, Bytes: bytes, Choice: choice}
			times := []float64{prices.time(call)}
			if call.Window = bytes >= LendFrom; call.Window {
				times = append(times, prices.time(call))
			}
			points[i].Times[choice] = times
		}
	}
	return points
}

// How many times slower than the best a choice may be to hold over several
// sizes: noise is not worth a rule.
const (
	Slack = 1.07
	// SharedSlack is for measurements of ranks that share cores, where the kernel's
	// scheduling moves times by more than any choice does.
	SharedSlack = 1.4
)

// penalties says how much slower than the best each choice is, in the kind of
// memory where it does worst. The kind of a buffer is known to its own rank
// alone, so a table can but choose what suits both.
func (p Point) penalties() map[collective.Choice]float64 {
	var best []float64
	for _, times := range p.Times {
		for kind, t := range times {
			if kind == len(best) {
				best = append(best, t)
			}
			best[kind] = min(best[kind], t)
		}
	}
	all := map[collective.Choice]float64{}
	for choice, times := range p.Times {
		worst := 1.0
		for kind, b := range best {
			if kind >= len(times) {
				worst = math.Inf(1) // it was given up
				break
			}
			worst = max(worst, times[kind]/b)
		}
		all[choice] = worst
	}
	return all
}

// Rules turns points, in ascending order, into as few rules as keep every choice
// within slack of the best one there is. They carry no collective and no bound
// of ranks; the last one fits all sizes.
func Rules(points []Point, slack float64) []collective.Rule {
	var rules []collective.Rule
	for i := 0; i < len(points); {
		choice, end := longest(points[i:], slack)
		end += i
		bound := collective.NoLimit
		if end < len(points) {
			next, _ := longest(points[end:], slack)
			bound = crossing(points[end-1], points[end], choice, next)
		}
		rules = append(rules, collective.Rule{MaxRanks: collective.NoLimit, MaxBytes: bound, Choice: choice})
		i = end
	}
	return rules
}

// longest is the choice that stays good for the most points from the first one
// on, and their number: among equals the plainest, since they differ by noise.
func longest(points []Point, slack float64) (best collective.Choice, length int) {
	var good []collective.Choice
	for i, p := range points {
		penalties := p.penalties()
		least := math.Inf(1)
		for _, x := range penalties {
			least = min(least, x)
		}
		var still []collective.Choice
		for c, x := range penalties {
			if x <= least*slack && (i == 0 || slices.Contains(good, c)) {
				still = append(still, c)
			}
		}
		if len(still) == 0 {
			break
		}
		good, length = still, i+1
	}
	return slices.MinFunc(good, plainer), length
}

// plainer orders choices: a slot's length before pieces of it, simple before ll,
// and then as collective.Algorithms lists them for most collectives.
func plainer(a, b collective.Choice) int {
	return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(b.Protocol, a.Protocol), cmp.Compare(a.Algorithm, b.Algorithm))
}

// crossing is the largest power of two between two points for which before is
// still no slower than after, on straight lines through the logarithms of size
// and time.
func crossing(low, high Point, before, after collective.Choice) int {
	bound := low.Bytes
	a, b := low.ratio(before, after), high.ratio(before, after)
	for n := 2 * bound; n < high.Bytes; n *= 2 {
		at := math.Log(float64(n)/float64(low.Bytes)) / math.Log(float64(high.Bytes)/float64(low.Bytes))
		if a+(b-a)*at > 0 {
			break
		}
		bound = n
	}
	return bound
}

// ratio is the logarithm of how much slower a is than b; where only one of them
// was tried, that is the faster one.
func (p Point) ratio(a, b collective.Choice) float64 {
	penalties := p.penalties()
	x, tried := penalties[a]
	y, other := penalties[b]
	switch {
	case !tried && !other:
		return 0
	case !tried:
		return 1
	case !other:
		return -1
	}
	return math.Log(min(x, 1e3)) - math.Log(min(y, 1e3))
}

// grid is the numbers of ranks for which the model is asked; one between two of
// them does as the larger one.
var grid = []int{2, 4, 8, 16, 32, schedule.MaxRanks}

// Table is the model's choice for every collective, number of ranks and size,
// with measured in its place where there is any: those are whole lists of rules
// for one collective each.
func (p Parameters) Table(measured map[int]collective.Table) collective.Table {
	fallback := collective.Choice{Algorithm: "direct", Protocol: collective.Simple}
	var table collective.Table
	for _, c := range schedule.Collectives {
		if c == schedule.SendRecv {
			continue // no schedule carries it out
		}
		rules := p.rules(c, measured)
		if len(rules) == 1 && rules[0].Choice == fallback {
			continue
		}
		for _, r := range rules {
			r.Collectives = []schedule.Collective{c}
			table = append(table, r)
		}
	}
	return append(table, collective.Rule{MaxRanks: collective.NoLimit, MaxBytes: collective.NoLimit, Choice: fallback})
}

// rules lists the rules of one collective for all numbers of ranks.
func (p Parameters) rules(c schedule.Collective, measured map[int]collective.Table) []collective.Rule {
	counts := slices.Clone(grid)
	for n := range measured {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	counts = slices.Compact(counts)
	var all, last []collective.Rule
	for _, n := range counts {
		rules := of(measured[n], c)
		if rules == nil {
			sizes := Sizes
			if c == schedule.Barrier {
				sizes = []int{1}
			}
			rules = Rules(p.Price(c, n, sizes), Slack)
		}
		if slices.EqualFunc(rules, last, same) {
			all = all[:len(all)-len(last)]
		}
		last = rules
		for _, r := range rules {
			r.MaxRanks = n
			if n == schedule.MaxRanks {
				r.MaxRanks = collective.NoLimit
			}
			all = append(all, r)
		}
	}
	return all
}

func same(a, b collective.Rule) bool { return a.MaxBytes == b.MaxBytes && a.Choice == b.Choice }

// of is what t says of c alone.
func of(t collective.Table, c schedule.Collective) (rules []collective.Rule) {
	for _, r := range t {
		if slices.Contains(r.Collectives, c) {
			r.Collectives = nil
			rules = append(rules, r)
		}
	}
	return rules
}
