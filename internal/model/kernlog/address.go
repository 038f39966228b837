package kernlog

// Address is the PCI address of a function as the line wrote it, in one
// canonical form: "dddd:bb:dd.f", lower case, the domain without leading
// zeros beyond four digits (so four to eight), the domain 0000 where the line
// had none. Drivers that name a card instead of a function (NVRM prints
// "PCI:0000:03:00") give "dddd:bb:dd": HasFunction tells the two apart. The
// zero value, "", is no address.
type Address string

// HasFunction reports whether a names a function; without one it stands for
// every function of its device.
func (a Address) HasFunction() bool {
	return len(a) > 2 && a[len(a)-2] == '.'
}

// Card is a without its function: "dddd:bb:dd".
func (a Address) Card() Address {
	if a.HasFunction() {
		return a[:len(a)-2]
	}
	return a
}

// Bus is the domain and the bus of a: "dddd:bb".
func (a Address) Bus() string {
	card := a.Card()
	if len(card) < 3 {
		return ""
	}
	return string(card[:len(card)-3])
}

// Domain is the domain of a: "dddd".
func (a Address) Domain() string {
	bus := a.Bus()
	if len(bus) < 3 {
		return ""
	}
	return bus[:len(bus)-3]
}

// Matches reports whether a and b can be the same function: equal, or of one
// card where one of them has no function.
func (a Address) Matches(b Address) bool {
	if a.HasFunction() && b.HasFunction() {
		return a == b
	}
	return a != "" && a.Card() == b.Card()
}

// RequesterAddress is the address that a requester ID names (bus<<8 |
// device<<3 | function, PCI Express Base Specification 2.2.6.2) in a domain
// such as "0000".
func RequesterAddress(domain string, id uint16) Address {
	var text [7]byte
	text[0] = ':'
	putHex(text[1:3], uint64(id>>8))
	text[3] = ':'
	putHex(text[4:6], uint64(id>>3&0x1f))
	text[6] = '.'
	return Address(domain + string(text[:]) + string('0'+rune(id&7)))
}

// ParseAddress reads an address that is all of text, with or without the
// prefix "PCI:", the domain, the function.
func ParseAddress(text string) (Address, bool) {
	address, rest := cutAddress(text)
	return address, address != "" && rest == ""
}

// cutAddress reads an address at the start of text; "" where there is none.
func cutAddress(text string) (Address, string) {
	body := trimPrefix(text, "PCI:")
	n := hexRun(body)
	if n == 0 || n > 8 || len(body) < n+3 || body[n] != ':' || hexRun(body[n+1:]) != 2 {
		return "", text
	}
	domain, bus, rest := body[:n], body[n+1:n+3], body[n+3:]
	device := ""
	if len(rest) >= 3 && rest[0] == ':' && hexRun(rest[1:]) == 2 {
		device, rest = rest[1:3], rest[3:]
	} else { // bb:dd.f
		domain, bus, device = "", domain, bus
	}
	function := ""
	if len(rest) >= 2 && rest[0] == '.' && '0' <= rest[1] && rest[1] <= '7' && hexRun(rest[1:]) == 1 {
		function, rest = rest[:2], rest[2:]
	}
	if len(bus) != 2 || device[0] > '1' || domain == "" && function == "" || domain != "" && n < 4 {
		return "", text
	}
	if domain == "" {
		return Address(lower("0000:" + bus + ":" + device + function)), rest
	}
	skip := 0
	for len(domain)-skip > 4 && domain[skip] == '0' {
		skip++
	}
	return Address(lower(body[skip : len(body)-len(rest)])), rest // no copy where all is lower case
}

// cutBus reads "dddd:bb", the name of a bus, at the start of text.
func cutBus(text string) (bus, rest string) {
	n := hexRun(text)
	if n < 4 || n > 8 || len(text) < n+3 || text[n] != ':' || hexRun(text[n+1:]) != 2 {
		return "", text
	}
	return lower(text[:n+3]), text[n+3:]
}
