package kernlog

import "strings"

// carried is a line without its carrier.
type carried struct {
	stamp   stamp
	text    string
	carrier bool   // something was taken off that only a first line has
	program string // whoever wrote it, where syslog says so; "" for the kernel
	fields  bool   // a " KEY=value" line that belongs to a kmsg record
}

var months = [...]string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}

var weekdays = [...]string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

// hardBlank is the no-break space that mail programs make of blanks.
const hardBlank = "\u00a0"

// clean drops what a terminal or a mail put around a line: escapes, other
// control characters, carriage returns, quote marks.
func clean(line string) string {
	line = strings.TrimRight(line, "\r\n")
	for i := 0; i < len(line); i++ {
		if c := line[i]; c < ' ' && c != '\t' || c == 0x7f || c == hardBlank[0] && strings.HasPrefix(line[i:], hardBlank) {
			line = withoutControls(line, i)
			break
		}
	}
	for strings.HasPrefix(line, ">") {
		line = trimPrefix(line[1:], " ")
	}
	return line
}

// withoutControls copies line without control characters and without the
// escape sequences that some of them begin (ECMA-48: CSI up to a byte from @
// to ~, and two-byte escapes). The first control character is at i.
func withoutControls(line string, i int) string {
	out := make([]byte, i, len(line))
	copy(out, line)
	for i < len(line) {
		c := line[i]
		i++
		switch {
		case c == 0x1b && i < len(line) && line[i] == '[':
			for i++; i < len(line) && line[i] >= ' ' && line[i] < '@'; i++ {
			}
			if i < len(line) && line[i] >= '@' && line[i] <= '~' {
				i++
			}
		case c == 0x1b:
			if i < len(line) && line[i] > ' ' && line[i] <= '~' {
				i++
			}
		case c == hardBlank[0] && i < len(line) && line[i] == hardBlank[1]:
			out = append(out, ' ')
			i++
		case c >= ' ' && c != 0x7f || c == '\t':
			out = append(out, c)
		}
	}
	return string(out)
}

// uncarry takes the carrier off a clean line, whatever nests in it.
func uncarry(line string) carried {
	c := carried{text: line}
	if line == "" {
		return c
	}
	if line[0] == ' ' && isField(line[1:]) {
		c.fields = true
		return c
	}
	c.priority()
	c.kmsg()
	c.syslog()
	c.brackets()
	if !c.carrier {
		c.trace()
	}
	if !c.carrier {
		c.prompt()
	}
	return c
}

// took notes that a carrier ended at rest.
func (c *carried) took(rest string) {
	c.text, c.carrier = rest, true
}

// isField reports text like SUBSYSTEM=pci.
func isField(text string) bool {
	for i := range len(text) {
		switch ch := text[i]; {
		case ch == '=':
			return i > 0
		case (ch < 'A' || ch > 'Z') && ch != '_':
			return false
		}
	}
	return false
}

// priority takes off "<3>" (dmesg -r) and "kern  :err   : " (dmesg -x).
func (c *carried) priority() {
	text := c.text
	if text[0] == '<' {
		if n := digitRun(text[1:]); n > 0 && n <= 3 && strings.HasPrefix(text[1+n:], ">") {
			c.took(text[n+2:])
		}
		return
	}
	if !strings.HasPrefix(text, "kern") {
		return
	}
	rest, ok := strings.CutPrefix(strings.TrimLeft(text[4:], " "), ":")
	if !ok {
		return
	}
	level, rest, ok := strings.Cut(rest, ":")
	if ok && len(level) <= 8 && !strings.Contains(trimSpace(level), " ") && strings.HasPrefix(rest, " ") {
		c.took(rest[1:])
	}
}

// kmsg takes off "3,1234,52477734,-;", a record of /dev/kmsg: priority,
// sequence number, microseconds since boot, flags.
func (c *carried) kmsg() {
	if c.text == "" || !isDigit(c.text[0]) {
		return
	}
	_, rest, ok := cutDecimal(c.text)
	if !ok || !strings.HasPrefix(rest, ",") {
		return
	}
	if _, rest, ok = cutDecimal(rest[1:]); !ok || !strings.HasPrefix(rest, ",") {
		return
	}
	micros, rest, ok := cutDecimal(rest[1:])
	if !ok || !strings.HasPrefix(rest, ",") || micros > int64(maxMono) {
		return
	}
	flags, text, ok := strings.Cut(rest, ";")
	if !ok || len(flags) > 64 {
		return
	}
	c.stamp.mono, c.stamp.hasMono = Micros(micros), true
	c.took(text)
}

const maxMono = 1e6 * Day

// brackets takes off what printk and dmesg put in brackets: the time since
// boot, the thread or CPU, a date, a difference.
func (c *carried) brackets() {
	for strings.HasPrefix(c.text, "[") {
		end := strings.IndexByte(c.text[:min(len(c.text), 48)], ']')
		if end < 0 || !c.bracket(strings.TrimLeft(c.text[1:end], " ")) {
			break
		}
		rest := c.text[end+1:]
		if !strings.HasPrefix(rest, "[") {
			rest = trimPrefix(rest, " ")
		}
		c.took(rest)
	}
	// journalctl -o short-monotonic has the host after the bracket.
	if c.carrier && c.stamp.hasMono {
		if _, rest, ok := cutHost(c.text); ok {
			c.text = rest
			c.brackets()
		}
	}
}

// bracket reads the inside of one bracket and reports whether it is one of
// the carrier's.
func (c *carried) bracket(inside string) bool {
	if inside == "" {
		return false
	}
	switch first := inside[0]; {
	case isDigit(first):
		seconds, rest, ok := cutSeconds(inside)
		if !ok {
			return c.date(inside)
		}
		if rest = trimSpace(rest); rest != "" && rest[0] != '<' { // dmesg -d
			return false
		}
		c.stamp.mono, c.stamp.hasMono = seconds, true
	case first == '+' || first == '<':
		seconds, rest, ok := cutSeconds(trimSpace(inside[1:]))
		if !ok || rest != "" && rest != ">" {
			return false
		}
		c.stamp.delta, c.stamp.hasDelta = seconds, true
	case (first == 'T' || first == 'C') && digitRun(inside[1:]) > 0:
		return digitRun(inside[1:])+1 == len(inside)
	default:
		return c.date(inside)
	}
	return true
}

// cutSeconds reads seconds with a fraction, as printk prints them.
func cutSeconds(text string) (Micros, string, bool) {
	whole, rest, ok := cutDecimal(text)
	if !ok || whole >= int64(maxMono/Second) || len(rest) < 2 || rest[0] != '.' {
		return 0, text, false
	}
	fraction, rest, ok := cutFraction(rest)
	return Micros(whole)*Second + fraction, rest, ok
}

// cutFraction reads the digits after a decimal point or comma.
func cutFraction(text string) (Micros, string, bool) {
	if len(text) < 2 || text[0] != '.' && text[0] != ',' || !isDigit(text[1]) {
		return 0, text, false
	}
	text = text[1:]
	var fraction Micros
	scale := Second / 10
	for text != "" && isDigit(text[0]) {
		fraction += Micros(text[0]-'0') * scale
		scale /= 10
		text = text[1:]
	}
	return fraction, text, true
}

// date reads all of text as a date: that of "dmesg -T" (Thu Feb 29 13:47:22
// 2024), of "dmesg -e" (Feb29 13:47) or of ISO 8601.
func (c *carried) date(text string) bool {
	if rest, ok := cutISO(text, &c.stamp); ok {
		return rest == ""
	}
	if len(text) > 4 && named(weekdays[:], text) >= 0 {
		text = strings.TrimLeft(text[3:], " ")
	}
	month := named(months[:], text) + 1
	if month == 0 {
		return false
	}
	day, rest, ok := cutDecimal(strings.TrimLeft(text[3:], " "))
	if !ok || day < 1 || day > 31 {
		return false
	}
	clock, rest, ok := cutClock(strings.TrimLeft(rest, " "))
	if !ok {
		return false
	}
	if rest == "" {
		c.stamp.dateless(month, day, clock)
		return true
	}
	year, rest, ok := cutDecimal(strings.TrimLeft(rest, " "))
	if !ok || year > 9999 || rest != "" {
		return false
	}
	c.stamp.wall, c.stamp.hasWall, c.stamp.yearKnown = daysBefore(int(year), month, int(day))*Day+clock, true, true
	return true
}

// dateless sets a wall time that lacks its year.
func (s *stamp) dateless(month int, day int64, clock Micros) {
	s.hasWall, s.month, s.sinceMonth = true, month, Micros(day-1)*Day+clock
}

// named is the index of the three-letter name at the start of text, or -1.
func named(names []string, text string) int {
	if len(text) < 3 {
		return -1
	}
	for i, name := range names {
		if text[:3] == name {
			return i
		}
	}
	return -1
}

// cutClock reads hh:mm or hh:mm:ss with an optional fraction.
func cutClock(text string) (Micros, string, bool) {
	if len(text) < 5 || digitRun(text[:2]) != 2 || text[2] != ':' || digitRun(text[3:5]) != 2 {
		return 0, text, false
	}
	hours, _, _ := cutDecimal(text[:2])
	minutes, _, _ := cutDecimal(text[3:5])
	total, rest := Micros(hours)*Hour+Micros(minutes)*Minute, text[5:]
	if len(rest) >= 3 && rest[0] == ':' && digitRun(rest[1:3]) == 2 {
		seconds, _, _ := cutDecimal(rest[1:3])
		total, rest = total+Micros(seconds)*Second, rest[3:]
		if fraction, after, ok := cutFraction(rest); ok {
			total, rest = total+fraction, after
		}
	}
	return total, rest, true
}

// cutISO reads 2024-02-29T13:47:22+0100, with a blank for the T, with a
// fraction, with or without zone.
func cutISO(text string, s *stamp) (string, bool) {
	if len(text) < 16 || digitRun(text) != 4 || text[4] != '-' || text[7] != '-' ||
		digitRun(text[5:7]) != 2 || digitRun(text[8:10]) != 2 || text[10] != 'T' && text[10] != ' ' {
		return text, false
	}
	year, _, _ := cutDecimal(text[:4])
	month, _, _ := cutDecimal(text[5:7])
	day, _, _ := cutDecimal(text[8:10])
	clock, rest, ok := cutClock(text[11:])
	if !ok || month < 1 || month > 12 || day < 1 || day > 31 {
		return text, false
	}
	if rest != "" && (rest[0] == '+' || rest[0] == '-') && len(rest) >= 5 {
		if n := digitRun(rest[1:]); n == 4 || n == 2 {
			hours, _, _ := cutDecimal(rest[1:3])
			digits := rest[1+n-2 : 1+n]
			width := 1 + n
			if n == 2 && len(rest) >= 6 && rest[3] == ':' && digitRun(rest[4:6]) == 2 {
				digits, width = rest[4:6], 6
			}
			minutes, _, _ := cutDecimal(digits)
			zone := Micros(hours)*Hour + Micros(minutes)*Minute
			if rest[0] == '-' {
				zone = -zone
			}
			clock, rest = clock-zone, rest[width:]
		}
	} else {
		rest = trimPrefix(rest, "Z")
	}
	s.wall, s.hasWall, s.yearKnown = daysBefore(int(year), int(month), int(day))*Day+clock, true, true
	return rest, true
}

// syslog takes off the date, the host and the tag that syslog and journald
// put before a line, and "kernel:" alone.
func (c *carried) syslog() {
	text := c.text
	if text == "" {
		return
	}
	rest, dated := text, false
	switch first := text[0]; {
	case 'A' <= first && first <= 'Z' && len(text) > 15:
		if day := named(weekdays[:], text); day >= 0 && text[3] == ' ' && isDigit(text[4]) {
			// journalctl -o short-full: a weekday, and the zone by name.
			if rest, dated = cutISO(text[4:], &c.stamp); dated {
				_, rest = word(strings.TrimLeft(rest, " "))
			}
			break
		}
		if month := named(months[:], text) + 1; month > 0 && text[3] == ' ' {
			rest, dated = c.shortDate(month, text[4:])
		}
	case isDigit(first):
		if rest, dated = cutISO(text, &c.stamp); dated {
			break
		}
		// journald names months in the locale's language: "11月 16 ".
		n := digitRun(text)
		month, after, _ := cutDecimal(text)
		if suffix := "月 "; n <= 2 && month >= 1 && month <= 12 && strings.HasPrefix(after, suffix) {
			rest, dated = c.shortDate(int(month), after[len(suffix):])
		}
	case strings.HasPrefix(text, "kernel:"):
		c.tag("kernel", text[len("kernel:"):])
		return
	}
	if !dated {
		return
	}
	c.took(strings.TrimLeft(rest, " "))
	if tag, rest, ok := cutHost(c.text); ok {
		c.tag(tag, rest)
	} else if tag, rest, ok := cutTag(c.text); ok && tag == "kernel" {
		c.tag(tag, rest)
	}
}

// shortDate reads what follows the month of a syslog date.
func (c *carried) shortDate(month int, text string) (string, bool) {
	day, rest, ok := cutDecimal(strings.TrimLeft(text, " "))
	if !ok || day < 1 || day > 31 {
		return text, false
	}
	clock, rest, ok := cutClock(strings.TrimLeft(rest, " "))
	if !ok {
		return text, false
	}
	c.stamp.dateless(month, day, clock)
	return rest, true
}

// cutHost reads "host tag: ".
func cutHost(text string) (tag, rest string, ok bool) {
	head := text[:min(len(text), 128)]
	i := strings.IndexByte(head, ' ')
	if i <= 0 || strings.HasSuffix(head[:i], ":") {
		return "", text, false
	}
	tag, rest, ok = cutTag(text[i+1:])
	name, process, _ := strings.Cut(tag, "[")
	if !ok || tag != "kernel" && (name == "" || digitRun(process) == 0) {
		return "", text, false
	}
	return name, rest, true
}

// cutTag reads "tag: " or "tag[123]: ".
func cutTag(text string) (tag, rest string, ok bool) {
	head := text[:min(len(text), 64)]
	i := strings.Index(head, ": ")
	if i < 0 {
		if i = len(head) - 1; i < 0 || head[i] != ':' {
			return "", text, false
		}
	}
	if strings.IndexByte(head[:i], ' ') >= 0 {
		return "", text, false
	}
	return head[:i], text[i+1:], i > 0
}

// tag notes who wrote the line and takes off the blank after the colon.
func (c *carried) tag(program, rest string) {
	// "kernel:warning: " is what some collectors make of the level.
	if level, after, ok := strings.Cut(rest, ": "); ok && program == "kernel" && level != "" && !strings.ContainsAny(level, " [:") && len(level) <= 8 && rest[0] != ' ' {
		rest = after
	}
	if program != "kernel" {
		c.program = program
	}
	c.took(trimPrefix(rest, " "))
}

// trace takes off "   irq/26-aerdrv-161   [003] d.h1.   100.000001: ", what
// the kernel's trace file puts before an event: task and its number, CPU,
// flags, seconds since boot. Older kernels have no flags.
func (c *carried) trace() {
	head := c.text[:min(len(c.text), 64)]
	open := strings.Index(head, " [")
	if open <= 0 {
		return
	}
	task := strings.TrimRight(head[:open], " ")
	rest := head[open+2:]
	cpu := digitRun(rest)
	number := len(task) - strings.LastIndexByte(task, '-') - 1
	if number == len(task) || number == 0 || digitRun(task[len(task)-number:]) != number || cpu < 3 || !strings.HasPrefix(rest[cpu:], "] ") {
		return
	}
	text := strings.TrimLeft(c.text[open+2+cpu+2:], " ")
	if text != "" && !isDigit(text[0]) {
		_, text = word(text)
	}
	if seconds, text, ok := cutSeconds(text); ok && strings.HasPrefix(text, ": ") {
		c.stamp.mono, c.stamp.hasMono = seconds, true
		c.took(text[2:])
	}
}

// prompt takes off what a console or a paste left before a bracketed time.
func (c *carried) prompt() {
	for i := range min(len(c.text), 64) {
		if c.text[i] != '[' {
			continue
		}
		inner := carried{text: c.text[i:]}
		inner.brackets()
		if inner.stamp.hasMono {
			c.stamp = inner.stamp
			c.took(inner.text)
		}
		if inner.carrier {
			return
		}
	}
}
