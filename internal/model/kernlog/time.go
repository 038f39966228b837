package kernlog

// Micros is a point in time or a span, in microseconds.
type Micros int64

// Second and its multiples.
const (
	Second Micros = 1e6
	Minute        = 60 * Second
	Hour          = 60 * Minute
	Day           = 24 * Hour
)

// Timestamp is what the carrier of a line says about when it was printed.
type Timestamp struct {
	// Mono is the time since boot, where HasMono. Kernels stop this clock
	// while the machine sleeps. Carriers that print differences only
	// ("dmesg -d") give the sum of them.
	Mono    Micros
	HasMono bool

	// Wall is the time since 1970-01-01 UTC, where HasWall. A carrier
	// without a time zone is read as if it were UTC, and one without a year
	// (syslog; YearKnown is then false) as if its log began in 2000: such
	// times compare with each other, but not with others.
	Wall      Micros
	HasWall   bool
	YearKnown bool

	// Boot counts the boots in the text from 0: it grows at each "Linux
	// version" line and where the time since boot steps back by more than a
	// second.
	Boot int
}

// Since is the time from u to t and whether the text tells it: never between
// two boots without wall time, nor from lines without any time. Where both
// clocks know the distance the larger one counts: syslog may stamp late lines
// all at once, and the time since boot misses sleep.
func (t Timestamp) Since(u Timestamp) (Micros, bool) {
	mono := t.HasMono && u.HasMono && t.Boot == u.Boot
	wall := t.HasWall && u.HasWall && t.YearKnown == u.YearKnown
	switch {
	case mono && wall:
		if m, w := t.Mono-u.Mono, t.Wall-u.Wall; max(m, -m) >= max(w, -w) {
			return m, true
		} else {
			return w, true
		}
	case mono:
		return t.Mono - u.Mono, true
	case wall:
		return t.Wall - u.Wall, true
	}
	return 0, false
}

// stamp is what one carrier holds, before the text around it gives it a boot
// and a year.
type stamp struct {
	mono, delta, wall          Micros
	hasMono, hasDelta, hasWall bool
	yearKnown                  bool
	month                      int    // of a wall time without a year
	sinceMonth                 Micros // the rest of it
}

const (
	backstep     = Second // CPUs print a little out of order
	firstYear    = 2000   // a leap year, so that Feb 29 exists
	anotherPart  = Hour   // wall time stepping back further starts another log
	newYearMonth = 6      // a month that falls by more is the next year
)

// clock turns stamps into timestamps, line after line.
type clock struct {
	boot, part  int
	lines       int // of this boot
	mono        Micros
	hasMono     bool
	wall        Micros
	hasWall     bool
	year, month int
}

// start forgets the line before: another section of a bug report begins.
func (c *clock) start() {
	c.part++
	if c.lines > 0 {
		c.boot++
	}
	boot, part := c.boot, c.part
	*c = clock{boot: boot, part: part}
}

// tick gives the next line its timestamp.
func (c *clock) tick(s stamp, bootLine bool) Timestamp {
	before := c.boot
	if s.hasDelta && !s.hasMono {
		s.mono, s.hasMono = s.delta, true
		if c.hasMono {
			s.mono += c.mono
		}
		if !s.hasWall && c.hasWall {
			s.wall, s.hasWall, s.month = c.wall+s.delta, true, -1
		}
	}
	if s.hasMono {
		if c.hasMono && s.mono < c.mono-backstep {
			c.boot++
		}
		c.mono, c.hasMono = s.mono, true
	}
	if bootLine && c.boot == before && c.lines > 0 {
		c.boot++
	}
	if c.boot != before {
		c.lines = 0
		c.hasMono = s.hasMono
	}
	c.lines++
	if s.hasWall {
		if s.month > 0 {
			if c.year == 0 {
				c.year = firstYear
			} else if c.month-s.month > newYearMonth {
				c.year++
			}
			c.month = s.month
			s.wall = daysBefore(c.year, s.month, 1)*Day + s.sinceMonth
		}
		if c.hasWall && s.wall < c.wall-anotherPart {
			c.part++
		}
		c.wall, c.hasWall = s.wall, true
	}
	return Timestamp{
		Mono: s.mono, HasMono: s.hasMono,
		Wall: s.wall, HasWall: s.hasWall, YearKnown: s.hasWall && s.yearKnown,
		Boot: c.boot,
	}
}

// daysBefore counts the days from 1970-01-01 to a date of the Gregorian
// calendar, after Howard Hinnant's days_from_civil: years begin in March, so
// that a leap day ends one.
func daysBefore(year, month, day int) Micros {
	if month <= 2 {
		year--
	}
	era := year / 400
	yearOfEra := year - era*400
	dayOfYear := (153*((month+9)%12)+2)/5 + day - 1
	dayOfEra := yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear
	return Micros(era*146097 + dayOfEra - 719468)
}
