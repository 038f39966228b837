package probe

import (
	"strconv"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// lspciTree reads lspci -t (and -tv, -tnn). A bus is known by the column in
// which its devices branch off, so the text must have kept its blanks.
type lspciTree struct {
	b     *builder
	buses []treeBus // open buses, by column
	lost  bool      // a line did not fit; said once
}

// treeBus is a bus whose devices stand in one column.
type treeBus struct {
	column int
	domain uint32
	bus    uint8
	root   uint8
	parent *pcie.BDF
}

// treeStart is how far a line may be indented before its first branch.
const treeStart = 400

// isTree recognises a line of the tree by its drawing.
func isTree(s string) bool {
	i := 0
	for i < len(s) && i < treeStart && (s[i] == ' ' || s[i] == '|') {
		i++
	}
	t := s[i:]
	if len(t) < 4 || t[0] != '-' && t[0] != '+' && t[0] != '\\' {
		return false
	}
	t = strings.TrimLeft(t[1:], "-+")
	if strings.HasPrefix(t, "[") {
		return isTreeBus(t)
	}
	return i > 0 && isTreeDevice(t)
}

// isTreeBus reports "[0000:00]-..." or "[01-13]-...".
func isTreeBus(t string) bool {
	_, _, _, rest, ok := treeRange(t)
	return ok && strings.HasPrefix(rest, "-")
}

// isTreeDevice reports "1f.0 ..." or "1f.0-[02]...".
func isTreeDevice(t string) bool {
	return len(t) >= 4 && isHex(t[:2]) && t[2] == '.' && t[3] >= '0' && t[3] <= '7' &&
		(len(t) == 4 || t[4] == ' ' || t[4] == '-')
}

// treeRange reads "[0000:00]", "[00]", "[01-13]", "[0000:01-13]".
func treeRange(t string) (domain uint32, secondary, subordinate uint8, rest string, ok bool) {
	inside, rest, found := strings.Cut(strings.TrimPrefix(t, "["), "]")
	if !found || len(inside) > 20 {
		return
	}
	if d, bus, has := strings.Cut(inside, ":"); has {
		v, err := strconv.ParseUint(d, 16, 32)
		if err != nil {
			return
		}
		domain, inside = uint32(v), bus
	}
	from, to, isRange := strings.Cut(inside, "-")
	a, err := strconv.ParseUint(from, 16, 8)
	if err != nil || len(from) != 2 {
		return
	}
	z := a
	if isRange {
		if z, err = strconv.ParseUint(to, 16, 8); err != nil {
			return
		}
	}
	return domain, uint8(a), uint8(z), rest, true
}

func (l *lspciTree) line(no int, s string) bool {
	if !isTree(s) {
		return false
	}
	l.b.saw(machine.KindLspciTree)
	if strings.IndexByte(s, '\t') >= 0 {
		s = expandTabs(s)
	}
	at := 0
	for at < len(s) && (s[at] == ' ' || s[at] == '|') {
		at++
	}
	var bus *treeBus
	if column := strings.IndexAny(s[at:], "+\\"); column >= 0 && s[at] != '-' {
		bus = l.at(at)
		at++
	} else {
		l.buses = nil // a tree begins
	}
	l.follow(no, s, at, bus)
	return true
}

// at returns the bus whose devices stand in a column, and closes those to the
// right of it.
func (l *lspciTree) at(column int) *treeBus {
	for n := len(l.buses); n > 0; n-- {
		if l.buses[n-1].column <= column {
			l.buses = l.buses[:n]
			if l.buses[n-1].column == column {
				return &l.buses[n-1]
			}
			return nil
		}
	}
	l.buses = nil
	return nil
}

// rootColumn stands for the branching of the root buses themselves.
const rootColumn = ^uint32(0)

// follow reads a line from a branch on: bus, device, bus below it, device…
func (l *lspciTree) follow(no int, s string, at int, bus *treeBus) {
	for at < len(s) {
		column := -1
		for at < len(s) && (s[at] == '-' || s[at] == '+' || s[at] == '\\') {
			if s[at] == '+' || s[at] == '\\' {
				column = at
			}
			at++
		}
		if at >= len(s) {
			return
		}
		if column >= 0 {
			if bus == nil { // "-+-[0000:80]": where the root buses branch off
				l.buses = append(l.buses, treeBus{column: column, domain: rootColumn})
			} else {
				b := *bus
				b.column = column
				l.buses = append(l.buses, b)
			}
		}
		if s[at] == '[' {
			domain, secondary, _, rest, ok := treeRange(s[at:])
			if !ok {
				return
			}
			bus = &treeBus{domain: domain, bus: secondary, root: secondary}
			at = len(s) - len(rest)
			continue
		}
		if !isTreeDevice(s[at:]) {
			return
		}
		if bus == nil || bus.domain == rootColumn {
			if !l.lost {
				l.b.problem(no, machine.Malformed, "the tree of lspci -t has lost its columns here (send it as a file: mail squeezes blanks)")
			}
			l.lost = true
			return
		}
		bus, at = l.device(no, s, at, bus)
		if bus == nil {
			return
		}
	}
}

// device reads "01.1-[41]--+-..." or "00.0  NVIDIA Corporation AD102GL". It
// returns the bus below the device, nil if there is none.
func (l *lspciTree) device(no int, s string, at int, bus *treeBus) (*treeBus, int) {
	dev, _ := strconv.ParseUint(s[at:at+2], 16, 8)
	if dev > 31 {
		return nil, at
	}
	where := pcie.BDF{Domain: bus.domain, Bus: bus.bus, Device: uint8(dev), Function: s[at+3] - '0'}
	d := l.b.device(where, machine.KindLspciTree)
	root := bus.root
	d.RootBus = &root
	l.b.setParent(d, no, bus.parent, fromText)
	at += 4
	if at < len(s) && s[at] == '-' {
		if _, secondary, subordinate, rest, ok := treeRange(strings.TrimLeft(s[at:], "-")); ok {
			if d.Registers.Bridge == nil {
				d.Registers.Bridge = &pcie.Bridge{Primary: bus.bus, Secondary: secondary, Subordinate: subordinate}
			}
			return &treeBus{domain: bus.domain, bus: secondary, root: root, parent: &where}, len(s) - len(rest)
		}
	}
	if name := strings.TrimSpace(s[at:]); name != "" && !d.Vendor.Known && d.Model.Name == "" {
		lines := lspci{b: l.b, d: d}
		vendor, model := lines.names(no, name)
		if vendor.Known {
			l.b.setVendor(d, no, vendor.Code, fromText)
		}
		if vendor.Name != "" {
			d.Vendor.Name = vendor.Name
		}
		if model.Known {
			l.b.setModel(d, no, model.Code, fromText)
		}
		d.Model.Name = model.Name
	}
	return nil, at
}

func expandTabs(s string) string {
	var out strings.Builder
	column := 0
	for i := 0; i < len(s); i++ {
		if s[i] != '\t' {
			out.WriteByte(s[i])
			column++
			continue
		}
		for {
			out.WriteByte(' ')
			column++
			if column%8 == 0 {
				break
			}
		}
	}
	return out.String()
}
