package kernlog

import "strings"

// What follows reads one thing at the start of a text and gives the rest. Text
// of a log is hostile: none of it panics, and each reads its input once.

func trimPrefix(text, prefix string) string { return strings.TrimPrefix(text, prefix) }

func trimSpace(text string) string { return strings.Trim(text, " \t") }

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// hexRun is the number of hexadecimal digits at the start of text.
func hexRun(text string) int {
	n := 0
	for n < len(text) && isHex(text[n]) {
		n++
	}
	return n
}

func digitRun(text string) int {
	n := 0
	for n < len(text) && isDigit(text[n]) {
		n++
	}
	return n
}

// cutDecimal reads up to 18 decimal digits.
func cutDecimal(text string) (value int64, rest string, ok bool) {
	n := digitRun(text)
	if n == 0 || n > 18 {
		return 0, text, false
	}
	for i := range n {
		value = value*10 + int64(text[i]-'0')
	}
	return value, text[n:], true
}

// cutInt is cutDecimal for a count; 0 where there is none.
func cutInt(text string) (int, string) {
	value, rest, _ := cutDecimal(text)
	return int(value), rest
}

// cutHex reads up to 16 hexadecimal digits, with or without 0x.
func cutHex(text string) (value uint64, rest string, ok bool) {
	digits := trimPrefix(text, "0x")
	n := hexRun(digits)
	if n == 0 || n > 16 {
		return 0, text, false
	}
	for i := range n {
		value = value<<4 | uint64(hexValue(digits[i]))
	}
	return value, digits[n:], true
}

// cutHex32 is cutHex for a register of 32 bits.
func cutHex32(text string) (value uint32, rest string, ok bool) {
	wide, after, ok := cutHex(text)
	if !ok || wide > 1<<32-1 {
		return 0, text, false
	}
	return uint32(wide), after, true
}

func hexValue(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

// putHex writes the low digits of value into all of out.
func putHex(out []byte, value uint64) {
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = "0123456789abcdef"[value&0xf]
		value >>= 4
	}
}

// cutFloat reads digits with an optional fraction, of which nine digits count.
func cutFloat(text string) (value float64, rest string, ok bool) {
	whole, rest, ok := cutDecimal(text)
	if !ok {
		return 0, text, false
	}
	if len(rest) < 2 || rest[0] != '.' || !isDigit(rest[1]) {
		return float64(whole), rest, true
	}
	digits := rest[1 : 1+digitRun(rest[1:])]
	rest = rest[1+len(digits):]
	fraction, scale := 0.0, 1.0
	for i := range min(len(digits), 9) {
		fraction, scale = fraction*10+float64(digits[i]-'0'), scale*10
	}
	return (float64(whole)*scale + fraction) / scale, rest, true // one rounding: 0.1 is 0.1
}

// after is what follows the first mark in text.
func after(text, mark string) (string, bool) {
	_, rest, found := strings.Cut(text, mark)
	return rest, found
}

// hexAfter is the hexadecimal number that follows mark.
func hexAfter(text, mark string) (uint64, bool) {
	rest, found := after(text, mark)
	if !found {
		return 0, false
	}
	value, _, ok := cutHex(strings.TrimLeft(rest, " "))
	return value, ok
}

// intAfter is the decimal number that follows mark.
func intAfter(text, mark string) (int, bool) {
	rest, found := after(text, mark)
	if !found {
		return 0, false
	}
	value, _, ok := cutDecimal(strings.TrimLeft(rest, " "))
	return int(value), ok
}

// addressAfter is the address that follows mark.
func addressAfter(text, mark string) Address {
	rest, _ := after(text, mark)
	address, _ := cutAddress(strings.TrimLeft(rest, " "))
	return address
}

// word is the text up to the first blank, and what follows the blanks.
func word(text string) (first, rest string) {
	i := strings.IndexByte(text, ' ')
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.TrimLeft(text[i:], " ")
}

func lower(text string) string { return strings.ToLower(text) }
