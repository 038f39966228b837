package probe

import (
	"strconv"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// lspci reads the text of lspci in every verbosity, one line at a time. A line
// that begins with an address opens a device; the lines below it belong to
// that device until the next. Indentation is not relied on: mail loses it.
type lspci struct {
	b *builder

	d        *machine.Device
	at       int // line of the device
	regs     pcie.Registers
	bars     []machine.Resource
	capacity pcie.CapabilityID // the capability whose lines follow
	key      string            // the last key: lines without one continue it
	header   string            // the line that opened the device
	last     string            // the line before this one, below the header
	blank    bool              // an empty line came after the device's last
	dump     hexdump
}

// line takes a line that is part of lspci's output and reports whether it was
// one.
func (l *lspci) line(no int, s string) bool {
	if at, rest, parent, ok := lspciHeader(s); ok {
		l.begin(no, at, rest, parent)
		l.header = s
		return true
	}
	if value, ok := strings.CutPrefix(s, "Slot:"); ok {
		if at, err := pcie.ParseBDF(strings.TrimSpace(value)); err == nil { // lspci -vmm
			l.flush()
			l.open(no, at)
			return true
		}
	}
	if l.d == nil {
		return false
	}
	if l.dump.line(s) {
		return true
	}
	t := strings.TrimSpace(s)
	if t == "" {
		l.blank = true
		return true
	}
	indented := s[0] == ' ' || s[0] == '\t'
	if l.blank && !indented {
		return false // something else follows
	}
	ok := l.detail(no, t, indented)
	l.last, l.blank = t, false
	return ok
}

// lspciHeader recognises "0000:3b:00.0 3D controller [0302]: ...", also with
// the path of lspci -PP before the address, and the quoted form of -mm.
func lspciHeader(s string) (at pcie.BDF, rest string, parent *pcie.BDF, ok bool) {
	if len(s) < 9 {
		return
	}
	if !isHex(s[:1]) {
		return
	}
	sp := strings.IndexByte(s, ' ')
	if sp < 7 || s[sp-2] != '.' {
		return
	}
	token := s[:sp]
	if slash := strings.LastIndexByte(token, '/'); slash > 0 {
		above := token[:slash]
		if i := strings.LastIndexByte(above, '/'); i >= 0 {
			above = above[i+1:]
		}
		if p, err := pcie.ParseBDF(above); err == nil {
			parent = &p
		}
		token = token[slash+1:]
	}
	if strings.IndexByte(token, ':') < 0 {
		return
	}
	at, err := pcie.ParseBDF(token)
	if err != nil {
		return
	}
	rest = strings.TrimSpace(s[sp:])
	if strings.HasPrefix(rest, `"`) {
		return at, rest, parent, true
	}
	colon := strings.Index(rest, ": ")
	if colon < 1 || colon > 80 || strings.Contains(rest[:colon], "=") {
		return
	}
	return at, rest, parent, true
}

func (l *lspci) open(no int, at pcie.BDF) {
	l.b.saw(machine.KindLspci)
	l.d, l.at = l.b.device(at, machine.KindLspci), no
	l.regs, l.bars, l.capacity, l.key, l.last, l.blank = pcie.Registers{}, nil, 0, "", "", false
	l.dump.reset()
}

func (l *lspci) begin(no int, at pcie.BDF, rest string, parent *pcie.BDF) {
	l.flush()
	l.open(no, at)
	if parent != nil {
		l.b.setParent(l.d, no, parent, fromText)
	}
	if strings.HasPrefix(rest, `"`) {
		l.quoted(no, rest)
		return
	}
	class, name, _ := strings.Cut(rest, ": ")
	l.class(no, class)

	name, prog := cutNote(name, " (prog-if ")
	name, rev := cutNote(name, " (rev ")
	if v, err := strconv.ParseUint(rev, 16, 8); err == nil {
		r := uint8(v)
		l.d.Revision = &r
	}
	if v, err := strconv.ParseUint(firstWord(prog), 16, 8); err == nil && l.d.Class.Known {
		l.b.setClass(l.d, no, l.d.Class.Code&^0xff|uint32(v), fromText)
	}
	if rev == "ff" && (prog == "" || firstWord(prog) == "ff") {
		l.d.Lost = true
	}
	vendor, model := l.names(no, strings.TrimSpace(name))
	if vendor.Known {
		l.b.setVendor(l.d, no, vendor.Code, fromText)
	}
	if vendor.Name != "" {
		l.d.Vendor.Name = vendor.Name
	}
	if model.Known {
		l.b.setModel(l.d, no, model.Code, fromText)
	}
	if model.Name != "" {
		l.d.Model.Name = model.Name
	}
}

// class reads "3D controller [0302]", "3D controller", "0302", "Class 0302".
func (l *lspci) class(no int, s string) {
	name, code := cutCode(s)
	if code == "" && len(s) == 4 && isHex(s) {
		name, code = "", s
	}
	if c, ok := strings.CutPrefix(name, "Class "); ok && len(c) == 4 {
		name, code = "", c
	}
	if v, err := strconv.ParseUint(code, 16, 16); err == nil {
		l.b.setClass(l.d, no, uint32(v)<<8, fromText)
	} else if c, ok := pcie.ClassByName(name); ok {
		l.b.setClass(l.d, no, c, fromText)
	}
	if name != "" {
		l.d.Class.Name = name
	}
}

// names reads "NVIDIA Corporation GA100 [A100] [10de:20f1]", "8086:2f08" and
// "Intel Corporation Device 09a2".
func (l *lspci) names(no int, s string) (vendor, model machine.ID) {
	name, pair := cutPair(s)
	if pair != "" {
		v, _ := strconv.ParseUint(pair[:4], 16, 16)
		d, _ := strconv.ParseUint(pair[5:], 16, 16)
		vendor.Code, vendor.Known = uint16(v), true
		model.Code, model.Known = uint16(d), true
	}
	code, known, vname, mname := pcie.SplitVendor(name)
	if known && !vendor.Known {
		vendor.Code, vendor.Known = code, true
	}
	vendor.Name, model.Name = vname, mname
	if model.Name == "Device" {
		model.Name = ""
	}
	i := strings.LastIndex(model.Name, "Device ")
	if i >= 0 && (i == 0 || model.Name[i-1] == ' ') {
		if hex := model.Name[i+7:]; len(hex) == 4 && isHex(hex) {
			d, _ := strconv.ParseUint(hex, 16, 16)
			model.Code, model.Known = uint16(d), true
			if vendor.Name == "" {
				vendor.Name = strings.TrimSpace(model.Name[:i])
			}
			model.Name = ""
		}
	}
	return vendor, model
}

// quoted reads the fields of lspci -mm.
func (l *lspci) quoted(no int, s string) {
	var fields []string
	for s != "" {
		s = strings.TrimLeft(s, " ")
		if strings.HasPrefix(s, `"`) {
			field, rest, _ := strings.Cut(s[1:], `"`)
			fields, s = append(fields, field), rest
			continue
		}
		option, rest, _ := strings.Cut(s, " ")
		if v, ok := strings.CutPrefix(option, "-r"); ok {
			l.record(no, "Rev", v)
		}
		if v, ok := strings.CutPrefix(option, "-p"); ok {
			l.record(no, "ProgIf", v)
		}
		s = rest
	}
	for i, key := range []string{"Class", "Vendor", "Device", "SVendor", "SDevice"} {
		if i < len(fields) && fields[i] != "" {
			l.record(no, key, fields[i])
		}
	}
	l.flush()
}

// record takes a field of lspci -vmm; it reports whether it knows the key.
func (l *lspci) record(no int, key, value string) bool {
	id := func(v *machine.ID) bool {
		name, code := cutCode(value)
		if len(value) == 4 && isHex(value) {
			name, code = "", value
		}
		if name != "" {
			v.Name = name
		}
		if c, err := strconv.ParseUint(code, 16, 16); err == nil {
			v.Code, v.Known = uint16(c), true
		}
		return true
	}
	switch key {
	case "Class":
		l.class(no, value)
	case "Vendor":
		id(&l.d.Vendor)
		if code, ok := pcie.VendorByName(l.d.Vendor.Name); ok && !l.d.Vendor.Known {
			l.b.setVendor(l.d, no, code, fromText)
		}
	case "Device":
		return id(&l.d.Model)
	case "SVendor":
		return id(&l.d.SubsystemVendor)
	case "SDevice":
		return id(&l.d.SubsystemModel)
	case "Rev":
		if v, err := strconv.ParseUint(value, 16, 8); err == nil {
			r := uint8(v)
			l.d.Revision = &r
		}
	case "ProgIf":
		if v, err := strconv.ParseUint(value, 16, 8); err == nil && l.d.Class.Known {
			l.b.setClass(l.d, no, l.d.Class.Code&^0xff|uint32(v), fromText)
		}
	case "PhySlot":
		l.d.Slot = value
	case "Driver":
		l.d.Driver = value
	case "NUMANode":
		return l.top(no, "NUMA node", value)
	case "IOMMUGroup":
		return l.top(no, "IOMMU group", value)
	case "Module", "DTNode":
	default:
		return false
	}
	return true
}

// flush hands the device over to the machine.
func (l *lspci) flush() {
	if l.d == nil {
		return
	}
	d := l.d
	l.d = nil
	if config := l.dump.bytes(); len(config) > 0 {
		decoded := pcie.Decode(config)
		l.b.addRegisters(d, l.at, &l.regs, fromText)
		l.b.addRegisters(d, l.at, &decoded, fromRegisters)
		l.b.setIdentity(d, l.at, decoded.ID)
		numberBARs(l.bars, decoded.BARs)
		if decoded.AllOnes {
			d.Lost = true
		}
	} else {
		l.b.addRegisters(d, l.at, &l.regs, fromText)
	}
	if len(l.bars) > 0 && (len(d.Resources) == 0 || l.bars[0].Index >= 0) {
		d.Resources = l.bars
	}
}

// numberBARs gives regions of lspci -v, which have no number, the one that the
// register with their address has.
func numberBARs(regions []machine.Resource, bars []pcie.BAR) {
	for i := range regions {
		r := &regions[i]
		if r.Kind != machine.BAR || r.Index >= 0 {
			continue
		}
		for _, bar := range bars {
			if bar.Address == r.Address && bar.IO == r.IO && bar.Index < 6 {
				r.Index = bar.Index
				break
			}
		}
	}
}

// cutNote takes a note like " (rev a1)" off the end of s.
func cutNote(s, open string) (rest, note string) {
	i := strings.LastIndex(s, open)
	if i < 0 {
		return s, ""
	}
	note = s[i+len(open):]
	if j := strings.IndexByte(note, ')'); j >= 0 {
		note = note[:j]
	}
	return s[:i], note
}

// cutCode takes "[0302]" off the end of s.
func cutCode(s string) (name, code string) {
	if n := len(s); n >= 6 && s[n-1] == ']' && s[n-6] == '[' && isHex(s[n-5:n-1]) {
		return strings.TrimSpace(s[:n-6]), s[n-5 : n-1]
	}
	return s, ""
}

// cutPair takes "[10de:20f1]" off the end of s, or s itself is "10de:20f1".
func cutPair(s string) (name, pair string) {
	isPair := func(p string) bool { return len(p) == 9 && p[4] == ':' && isHex(p[:4]) && isHex(p[5:]) }
	if isPair(s) {
		return "", s
	}
	if n := len(s); n >= 11 && s[n-1] == ']' && s[n-11] == '[' && isPair(s[n-10:n-1]) {
		return strings.TrimSpace(s[:n-11]), s[n-10 : n-1]
	}
	return s, ""
}

func isHex(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return s != ""
}

func firstWord(s string) string {
	w, _, _ := strings.Cut(s, " ")
	return w
}

// hexdump collects the bytes of lspci -x, -xxx and -xxxx.
type hexdump struct {
	data []byte
	gap  bool // a line was missing: what follows cannot be placed
}

func (h *hexdump) reset() { h.data, h.gap = nil, false }

func (h *hexdump) bytes() []byte { return h.data }

// line takes "10: 00 00 00 f8 ..." and reports whether it was such a line.
func (h *hexdump) line(s string) bool {
	colon := strings.IndexByte(s, ':')
	if colon < 2 || colon > 3 || len(s) < colon+4 || s[colon+1] != ' ' {
		return false
	}
	offset, err := strconv.ParseUint(s[:colon], 16, 16)
	if err != nil || offset%16 != 0 {
		return false
	}
	var row [16]byte
	n := 0
	for t := strings.TrimSpace(s[colon+1:]); t != "" && n < len(row); n++ {
		if len(t) > 2 && t[2] != ' ' || len(t) < 2 {
			return n > 0
		}
		v, err := strconv.ParseUint(t[:2], 16, 8)
		if err != nil {
			return n > 0
		}
		row[n] = byte(v)
		t = strings.TrimLeft(t[2:], " ")
	}
	if offset == 0 {
		h.reset()
	}
	if h.gap || int(offset) != len(h.data) {
		h.gap = true
		return true
	}
	if len(h.data)+n <= pcie.ExtendedConfigSize {
		h.data = append(h.data, row[:n]...)
	}
	return true
}
