package pcie

import (
	"cmp"
	"fmt"
	"strings"
)

// A BDF is the address of one PCI function: domain, bus, device, function.
// It is comparable and has one text form, dddd:bb:dd.f in lower-case
// hexadecimal; a domain above ffff (VMD, Hyper-V, Azure) takes as many digits
// as it needs, up to 8.
type BDF struct {
	Domain   uint32
	Bus      uint8
	Device   uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// ParseBDF reads every form in which tools print an address:
//
//	0000:3b:00.0  00000000:3B:00.0  10000:01:00.0   domain of 4 to 8 digits
//	3b:00.0                                         domain 0
//	0000:3b:00  3b:00                               function 0
//	PCI:0000:3b:00                                  as the NVIDIA driver prints it
//	3b000  1003b000                                 NCCL: the digits without separators
//
// NCCL's newer "host-busid" form has to be split by the caller.
func ParseBDF(s string) (BDF, error) {
	b, ok := parseBDF(s)
	if !ok {
		return BDF{}, fmt.Errorf("read PCI address %q: it has not the form dddd:bb:dd.f", s)
	}
	return b, nil
}

// MustParseBDF is ParseBDF for constants: it panics on text that is no address.
func MustParseBDF(s string) BDF {
	b, err := ParseBDF(s)
	if err != nil {
		panic(err)
	}
	return b
}

func parseBDF(s string) (BDF, bool) {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "PCI:"), "pci:")
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 {
		return parseJoined(s)
	}
	device, function := s[colon+1:], "0"
	if dot := strings.IndexByte(device, '.'); dot >= 0 {
		device, function = device[:dot], device[dot+1:]
	}
	domain, bus := "0", s[:colon]
	if c := strings.IndexByte(bus, ':'); c >= 0 {
		domain, bus = bus[:c], bus[c+1:]
		if len(domain) < 4 {
			return BDF{}, false
		}
	}
	dom, ok1 := hex(domain, 8)
	bu, ok2 := hex(bus, 2)
	dev, ok3 := hex(device, 2)
	fn, ok4 := hex(function, 1)
	if !ok1 || !ok2 || !ok3 || !ok4 || len(bus) != 2 || len(device) != 2 || dev > 31 || fn > 7 {
		return BDF{}, false
	}
	return BDF{dom, uint8(bu), uint8(dev), uint8(fn)}, true
}

// parseJoined reads NCCL's form, in which busIdToInt64 has dropped ':' and '.'.
func parseJoined(s string) (BDF, bool) {
	if len(s) < 1 || len(s) > 13 {
		return BDF{}, false
	}
	var v uint64
	for i := 0; i < len(s); i++ {
		d, ok := hexDigit(s[i])
		if !ok {
			return BDF{}, false
		}
		v = v<<4 | uint64(d)
	}
	b := BDF{uint32(v >> 20), uint8(v >> 12), uint8(v >> 4), uint8(v & 15)}
	return b, b.Device <= 31 && b.Function <= 7
}

func hex(s string, most int) (uint32, bool) {
	if len(s) == 0 || len(s) > most {
		return 0, false
	}
	var v uint32
	for i := 0; i < len(s); i++ {
		d, ok := hexDigit(s[i])
		if !ok {
			return 0, false
		}
		v = v<<4 | uint32(d)
	}
	return v, true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// BDFFromID makes an address of a requester ID (bus<<8 | device<<3 |
// function), as the kernel prints it in "id=00e5".
func BDFFromID(domain uint32, id uint16) BDF {
	return BDF{domain, uint8(id >> 8), uint8(id>>3) & 31, uint8(id) & 7}
}

// String returns the canonical form, dddd:bb:dd.f.
func (b BDF) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", b.Domain, b.Bus, b.Device, b.Function)
}

// Compare orders addresses by domain, bus, device and function.
func (b BDF) Compare(o BDF) int {
	return cmp.Or(cmp.Compare(b.Domain, o.Domain), cmp.Compare(b.Bus, o.Bus),
		cmp.Compare(b.Device, o.Device), cmp.Compare(b.Function, o.Function))
}

// SameDevice reports whether both are functions of one device.
func (b BDF) SameDevice(o BDF) bool {
	b.Function, o.Function = 0, 0
	return b == o
}

// MarshalText implements encoding.TextMarshaler: an address is a string in
// JSON and may be the key of a map there.
func (b BDF) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *BDF) UnmarshalText(text []byte) error {
	v, err := ParseBDF(string(text))
	if err == nil {
		*b = v
	}
	return err
}
