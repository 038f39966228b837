package pcie

import (
	"fmt"
	"strconv"
	"strings"
)

// A Speed is the signalling rate of a lane, numbered by generation as in the
// link registers: 1 is 2.5 GT/s, 6 is 64 GT/s. 0 is a speed that is not known.
type Speed uint8

// The speeds of the PCI Express Base Specification 6.0.
const (
	Gen1 Speed = 1 + iota
	Gen2
	Gen3
	Gen4
	Gen5
	Gen6
)

var rates = [...]float64{0, 2.5, 5, 8, 16, 32, 64}

// GTs returns the rate in GT/s, or 0 if the speed is not known.
func (s Speed) GTs() float64 {
	if int(s) < len(rates) {
		return rates[s]
	}
	return 0
}

// Known reports whether s is one of the defined speeds.
func (s Speed) Known() bool { return s >= Gen1 && s <= Gen6 }

// String returns the form lspci uses: "2.5GT/s", "32GT/s"; "unknown" for 0.
func (s Speed) String() string {
	if !s.Known() {
		return "unknown"
	}
	return strconv.FormatFloat(s.GTs(), 'f', -1, 64) + "GT/s"
}

// ParseSpeed reads "2.5GT/s", "8.0 GT/s PCIe", "16 GT/s", "32.0 GT/s" and the
// like. Text such as "Unknown" or "<unknown>" gives 0 and no error.
func ParseSpeed(text string) (Speed, error) {
	t := strings.TrimSpace(text)
	n := 0
	for n < len(t) && (t[n] >= '0' && t[n] <= '9' || t[n] == '.') {
		n++
	}
	if n == 0 {
		if strings.Contains(strings.ToLower(t), "unknown") {
			return 0, nil
		}
		return 0, fmt.Errorf("read link speed %q: it does not begin with a number", text)
	}
	unit := strings.ToLower(strings.TrimSpace(t[n:]))
	if !strings.HasPrefix(unit, "gt/s") && !strings.HasPrefix(unit, "gts") {
		return 0, fmt.Errorf("read link speed %q: it is not in GT/s", text)
	}
	rate, err := strconv.ParseFloat(t[:n], 64)
	if err != nil {
		return 0, fmt.Errorf("read link speed %q: %w", text, err)
	}
	for s := Gen1; s <= Gen6; s++ {
		if rates[s] == rate {
			return s, nil
		}
	}
	return 0, fmt.Errorf("read link speed %q: no generation of PCI Express has it", text)
}

// MarshalText implements encoding.TextMarshaler.
func (s Speed) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Speed) UnmarshalText(text []byte) error {
	v, err := ParseSpeed(string(text))
	if err == nil {
		*s = v
	}
	return err
}

// WidthAllOnes is the width field of a link register that reads all ones: the
// device did not answer.
const WidthAllOnes = 63

// A Link is a speed and a number of lanes; 0 in either is "not known".
type Link struct {
	Speed Speed `json:"speed"`
	Width uint8 `json:"width"`
}

// Known reports whether both the speed and the width are real ones.
func (l Link) Known() bool { return l.Speed.Known() && l.Width >= 1 && l.Width <= 32 }

// AllOnes reports whether the values are those of a register that reads all
// ones.
func (l Link) AllOnes() bool { return l.Width == WidthAllOnes }

// String returns "32GT/s x16".
func (l Link) String() string {
	return l.Speed.String() + " x" + strconv.Itoa(int(l.Width))
}

// Slower reports whether l signals slower than o; false if either is not known.
func (l Link) Slower(o Link) bool { return l.Speed.Known() && o.Speed.Known() && l.Speed < o.Speed }

// Narrower reports whether l has fewer lanes than o; false if either is not
// known.
func (l Link) Narrower(o Link) bool { return l.Width > 0 && o.Width > 0 && l.Width < o.Width }

// Min returns the link that two ends can agree on. What one end does not tell
// is taken from the other.
func (l Link) Min(o Link) Link {
	if l.Speed == 0 || o.Speed != 0 && o.Speed < l.Speed {
		l.Speed = o.Speed
	}
	if l.Width == 0 || o.Width != 0 && o.Width < l.Width {
		l.Width = o.Width
	}
	return l
}

// encoding is the share of the signalling rate that is left after the line
// code: 8b/10b for Gen1 and Gen2, 128b/130b for Gen3 to Gen5. From Gen6 on a
// flit of 256 bytes spends 8 on CRC and 6 on forward error correction (PCI
// Express Base Specification 6.0, 4.2.3.4).
func (s Speed) encoding() float64 {
	switch {
	case s <= Gen2:
		return 8.0 / 10
	case s <= Gen5:
		return 128.0 / 130
	}
	return 242.0 / 256
}

// GBs returns the bandwidth one way in gigabytes (10^9 bytes) a second after
// line encoding: 15.75 for Gen3 x16, 63.02 for Gen5 x16. It is 0 for a link
// that is not known.
func (l Link) GBs() float64 {
	if !l.Known() {
		return 0
	}
	return l.Speed.GTs() * l.Speed.encoding() * float64(l.Width) / 8
}

// Bytes that travel with each TLP's payload. Before flits: framing and
// sequence number 4, header with a 64-bit address 16, LCRC 4. In a flit the
// framing and the LCRC are gone, but 6 of each 242 bytes carry DLLPs.
const (
	tlpOverhead     = 24
	flitTLPOverhead = 16
)

// linkLayerShare is what acknowledgements, flow-control updates and skip
// ordered sets leave to TLPs in practice.
const linkLayerShare = 0.90

// TLPEfficiency returns the share of GBs that is left for data when every TLP
// carries payload bytes (the MaxPayload in use).
func (s Speed) TLPEfficiency(payload int) float64 {
	if payload <= 0 {
		return 0
	}
	p := float64(payload)
	if s >= Gen6 {
		return p / (p + flitTLPOverhead) * 236.0 / 242
	}
	return p / (p + tlpOverhead) * linkLayerShare
}

// DataGBs returns the data rate one way that writes with the given MaxPayload
// can reach: about 13.0 for Gen3 x16 with 256 bytes.
func (l Link) DataGBs(payload int) float64 { return l.GBs() * l.Speed.TLPEfficiency(payload) }
