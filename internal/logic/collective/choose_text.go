package collective

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ringlane/internal/model/bytesize"
	"ringlane/internal/model/schedule"
)

// Bounds of what ParseTable reads.
const (
	// MaxTable is the most characters of a table as text. A table travels to
	// every rank in one message.
	MaxTable = 16 << 10
	// MinSegment is the smallest Segment of a Choice.
	MinSegment = 1 << 10
	// anyCollective stands for all collectives that have the rule's algorithm.
	anyCollective = "any"
)

// ParseTable reads a table as String writes it:
//
//	table       = rule { ";" rule }
//	rule        = collectives [ ":n<=" RANKS ] [ ":<=" SIZE ] "=" choice
//	collectives = "any" | COLLECTIVE { "," COLLECTIVE }
//	choice      = ALGORITHM [ "/" PROTOCOL [ "/" SEGMENT ] ]
//
// as in "allreduce:n<=2:<=4K=oneshot/simple;allreduce=direct/simple/128K". A
// line's end separates rules too, white space around a rule is ignored, and so
// are empty rules. The protocol is simple if it is left out, and a segment what
// a slot holds.
func ParseTable(text string) (Table, error) {
	if len(text) > MaxTable {
		return nil, fmt.Errorf("a table of %d characters is too long (at most %d)", len(text), MaxTable)
	}
	var t Table
	number := 0
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\n", ";"), ";") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		number++
		r, err := parseRule(line)
		if err != nil {
			return nil, fmt.Errorf("rule %d, %.80q: %w", number, line, err)
		}
		t = append(t, r)
	}
	return t, nil
}

func parseRule(text string) (r Rule, err error) {
	r.MaxRanks, r.MaxBytes = NoLimit, NoLimit
	// "=" also ends "<=", and no name holds one, so the last one separates.
	at := strings.LastIndexByte(text, '=')
	if at < 1 || text[at-1] == '<' {
		return r, fmt.Errorf("it chooses nothing (write it like allreduce:n<=2:<=4K=oneshot/simple)")
	}
	parts := strings.Split(text[:at], ":")
	if parts[0] != anyCollective {
		for name := range strings.SplitSeq(parts[0], ",") {
			c, err := schedule.ParseCollective(name)
			if err != nil {
				return r, fmt.Errorf("%w, or %s", err, anyCollective)
			}
			r.Collectives = append(r.Collectives, c)
		}
	}
	for _, bound := range parts[1:] {
		n, ranks := strings.CutPrefix(bound, "n<=")
		size, bytes := strings.CutPrefix(bound, "<=")
		switch {
		case ranks && r.MaxRanks != NoLimit, bytes && r.MaxBytes != NoLimit:
			return r, fmt.Errorf("%q bounds the same again", bound)
		case ranks:
			if r.MaxRanks, err = strconv.Atoi(n); err != nil || r.MaxRanks < 1 || r.MaxRanks > schedule.MaxRanks {
				return r, fmt.Errorf("%q is no bound of ranks (write n<=1 to n<=%d)", bound, schedule.MaxRanks)
			}
		case bytes:
			if r.MaxBytes, err = bytesize.Parse(size); err != nil {
				return r, err
			}
		default:
			return r, fmt.Errorf("%q is not a bound (write n<=RANKS or <=SIZE)", bound)
		}
	}
	r.Choice, err = ParseChoice(text[at+1:])
	if err != nil {
		return r, err
	}
	return r, r.exists()
}

// ParseChoice reads a choice as String writes it: ALGORITHM, ALGORITHM/PROTOCOL
// or ALGORITHM/PROTOCOL/SEGMENT.
func ParseChoice(text string) (Choice, error) {
	parts := strings.Split(text, "/")
	c := Choice{Algorithm: parts[0], Protocol: Simple}
	if len(parts) > 3 {
		return c, fmt.Errorf("%q is more than ALGORITHM/PROTOCOL/SEGMENT", text)
	}
	if len(parts) > 1 {
		if c.Protocol = parts[1]; c.Protocol != LL && c.Protocol != Simple {
			return c, fmt.Errorf("there is no protocol %q (one of %s %s)", c.Protocol, LL, Simple)
		}
	}
	if len(parts) > 2 {
		var err error
		if c.Segment, err = bytesize.Parse(parts[2]); err != nil {
			return c, err
		}
		if c.Segment < MinSegment {
			return c, fmt.Errorf("a segment of %d bytes is too small (at least %d)", c.Segment, MinSegment)
		}
	}
	return c, nil
}

// exists reports a rule that names an algorithm which its collectives lack.
func (r *Rule) exists() (err error) {
	if r.Collectives == nil {
		known := slices.ContainsFunc(schedule.Collectives, r.covers)
		if !known {
			err = fmt.Errorf("no collective has an algorithm %q", r.Algorithm)
		}
		return err
	}
	for _, c := range r.Collectives {
		if _, err := Find(c, r.Algorithm); err != nil {
			return err
		}
	}
	return nil
}

// String is the choice as ParseChoice reads it.
func (c Choice) String() string {
	text := c.Algorithm + "/" + c.Protocol
	if c.Segment > 0 {
		text += "/" + bytesize.Format(c.Segment)
	}
	return text
}

func (r *Rule) names(separator string) string {
	if r.Collectives == nil {
		return anyCollective
	}
	names := make([]string, len(r.Collectives))
	for i, c := range r.Collectives {
		names[i] = c.String()
	}
	return strings.Join(names, separator)
}

// String is the rule as ParseTable reads it.
func (r Rule) String() string {
	text := r.names(",")
	if r.MaxRanks != NoLimit {
		text += ":n<=" + strconv.Itoa(r.MaxRanks)
	}
	if r.MaxBytes != NoLimit {
		text += ":<=" + bytesize.Format(r.MaxBytes)
	}
	return text + "=" + r.Choice.String()
}

// String is the table on one line, as ParseTable reads it.
func (t Table) String() string {
	rules := make([]string, len(t))
	for i, r := range t {
		rules[i] = r.String()
	}
	return strings.Join(rules, ";")
}

// Text is the table for people, a line a rule.
func (t Table) Text() string {
	limit := func(n int, text string) string {
		if n == NoLimit {
			return "any"
		}
		return text
	}
	var b strings.Builder
	width := len("collective")
	for _, r := range t {
		width = max(width, len(r.names(" ")))
	}
	line := func(names string, cells ...any) {
		fmt.Fprintf(&b, "%-*s", width, names)
		fmt.Fprintf(&b, "  %7s  %7s  %-9s  %-8s  %7s\n", cells...)
	}
	line("collective", "ranks<=", "bytes<=", "algorithm", "protocol", "segment")
	for _, r := range t {
		segment := "slot"
		if r.Segment > 0 {
			segment = bytesize.Format(r.Segment)
		}
		line(r.names(" "), limit(r.MaxRanks, strconv.Itoa(r.MaxRanks)), limit(r.MaxBytes, bytesize.Format(r.MaxBytes)), r.Algorithm, r.Protocol, segment)
	}
	return b.String()
}
