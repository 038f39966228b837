package kernlog

import "strings"

// ResourceKind is what a resource of a device is for.
type ResourceKind string

// The kinds of resources.
const (
	BAR    ResourceKind = "BAR"
	VFBAR  ResourceKind = "VF BAR"
	ROM    ResourceKind = "ROM"
	Window ResourceKind = "bridge window"
)

// ResourceState is what became of a resource.
type ResourceState string

// The states. NoSpace and AssignFailed of a first pass may be repaired by a
// later Assigned of the same resource: the last word counts.
const (
	ResourceFound    ResourceState = "found"    // as firmware left it
	NoSpace          ResourceState = "no space" // "can't assign; no space"
	AssignFailed     ResourceState = "failed to assign"
	Assigned         ResourceState = "assigned"
	Released         ResourceState = "released"
	ClaimFailed      ResourceState = "can't claim"
	AddressConflict  ResourceState = "address conflict"
	ExpandFailed     ResourceState = "failed to expand"
	WindowTooSmall   ResourceState = "window too small"
	ResourceAddition ResourceState = "size added" // what a window should grow to
)

// Resource is the state of one address range of a device.
type Resource struct {
	Kind ResourceKind
	// Index is the BAR's number, -1 for bridge windows and the ROM. Kernels
	// up to 6.7 number all of them in one row: 0 to 5 are BARs, 6 the ROM, 7
	// to 12 VF BARs, 13 to 16 the windows (7 to 10 without SR-IOV support in
	// the kernel, so Kind can be wrong there).
	Index int
	State ResourceState

	IO       bool // I/O space, else memory
	Prefetch bool
	Wide     bool // 64-bit
	Size     uint64
	Start    uint64 // where HasStart
	HasStart bool
}

// ResourceAdvice is "Some PCI device resources are unassigned, try booting
// with pci=realloc".
type ResourceAdvice struct{}

func (Resource) event()       {}
func (ResourceAdvice) event() {}

// resource reads the lines about BARs, ROMs and bridge windows, whose state
// stands before the range (up to 6.7) or after it.
func (l *line) resource() Event {
	text := strings.TrimLeft(l.text, " ")
	e := Resource{Index: -1}
	var rest string
	switch {
	case strings.HasPrefix(text, "BAR "):
		e.Kind, rest = BAR, text[len("BAR "):]
	case strings.HasPrefix(text, "VF BAR "):
		e.Kind, rest = VFBAR, text[len("VF BAR "):]
	case strings.HasPrefix(text, "ROM ["):
		e.Kind, rest = ROM, text[len("ROM"):]
	case strings.HasPrefix(text, "bridge window ["):
		e.Kind, rest = Window, text[len("bridge window"):]
	case strings.HasPrefix(text, "no space for bridge window ["):
		e.Kind, e.State, rest = Window, NoSpace, text[len("no space for bridge window"):]
	case strings.HasPrefix(text, "resource "):
		e.Kind, rest = BAR, text[len("resource "):]
	case strings.HasPrefix(text, "Assigned bridge window ["):
		e.Kind, e.State, rest = Window, WindowTooSmall, text[len("Assigned bridge window"):]
		if !strings.Contains(rest, "cannot fit") && !l.partial {
			return nil
		}
	case strings.HasPrefix(text, "can't claim "):
		e.Kind, e.State, rest = BAR, ClaimFailed, text[len("can't claim "):]
		rest = trimPrefix(rest, "BAR ")
	case strings.HasPrefix(text, "reg 0x"):
		return l.register(text)
	default:
		return nil
	}
	if isDigitAt(rest, 0) {
		index, after := cutInt(rest)
		e.number(index)
		rest = after
	} else if e.Kind == BAR || e.Kind == VFBAR {
		return nil
	}
	return l.stated(e, strings.TrimLeft(rest, " :"))
}

// number tells what index means; numbers beyond 5 are those of the row.
func (e *Resource) number(index int) {
	switch {
	case e.Kind == VFBAR || index <= 5:
		e.Index = index
	case index == 6:
		e.Kind = ROM
	case index <= 12:
		e.Kind, e.Index = VFBAR, index-7
	default:
		e.Kind = Window
	}
}

// stated reads state and range of a resource in either order.
func (l *line) stated(e Resource, rest string) Event {
	before, ranged, found := strings.Cut(rest, "[")
	if !found {
		if e.State = stateOf(before); e.State == "" || !l.partial {
			return nil
		}
		return e
	}
	if state := stateOf(before); state != ResourceFound && state != "" {
		e.State = state
	}
	inside, tail, closed := strings.Cut(ranged, "]")
	if !closed && !l.partial {
		return nil
	}
	if !e.span(inside) && !l.partial {
		return nil
	}
	if e.State == "" {
		if e.State = stateOf(tail); e.State == "" {
			return nil
		}
	} else if state := stateOf(tail); state == Assigned || state == ClaimFailed || state == AddressConflict {
		e.State = state
	}
	return e
}

// stateOf reads the words around a range.
func stateOf(text string) ResourceState {
	text = strings.Trim(text, " :;")
	switch {
	case text == "", strings.HasPrefix(text, "contains BAR"): // all VFs together
		return ResourceFound
	case strings.Contains(text, "no space"):
		return NoSpace
	case strings.Contains(text, "failed to assign"):
		return AssignFailed
	case strings.HasPrefix(text, "failed to expand"), strings.HasPrefix(text, "failed to add"):
		return ExpandFailed
	case strings.Contains(text, "conflict"):
		return AddressConflict
	case strings.Contains(text, "can't claim"), strings.Contains(text, "no compatible bridge window"):
		return ClaimFailed
	case strings.HasPrefix(text, "assigned"):
		return Assigned
	case strings.HasPrefix(text, "releas"):
		return Released
	case strings.HasPrefix(text, "to [bus"), strings.HasPrefix(text, "add"):
		return ResourceAddition
	}
	return ""
}

// register reads "reg 0x10: [mem 0x.. 64bit pref]", which kernels up to 6.7
// print for "BAR 0 [mem ..]": 0x10 to 0x24 are BARs, 0x30 the ROM, and beyond
// the first 64 bytes lie those of the SR-IOV capability.
func (l *line) register(text string) Event {
	offset, rest, ok := cutHex(trimPrefix(text, "reg "))
	if !ok {
		return nil
	}
	e := Resource{Index: -1}
	switch {
	case 0x10 <= offset && offset <= 0x24:
		e.Kind, e.Index = BAR, int(offset-0x10)/4
	case offset == 0x30 || offset == 0x38:
		e.Kind = ROM
	default:
		e.Kind = VFBAR
	}
	return l.stated(e, strings.TrimLeft(rest, " :"))
}

// span reads the inside of a range: "mem size 0x00200000 64bit pref", "io
// 0x1000-0x1fff", "mem 0x.. window".
func (e *Resource) span(inside string) bool {
	kind, rest := word(inside)
	switch kind {
	case "io":
		e.IO = true
	case "mem":
	default:
		return false
	}
	e.Wide = strings.Contains(rest, "64bit")
	e.Prefetch = strings.Contains(rest, "pref")
	if size, sized := strings.CutPrefix(rest, "size "); sized {
		var ok bool
		e.Size, _, ok = cutHex(size)
		return ok
	}
	start, rest, ok := cutHex(rest)
	if !ok {
		return false
	}
	e.Start, e.HasStart = start, true
	if strings.HasPrefix(rest, "-") {
		if end, _, ok := cutHex(rest[1:]); ok && end >= start {
			e.Size = end - start + 1
		}
	} else {
		e.Size, e.HasStart, e.Start = start, false, 0 // "[mem 0x00100000]" is a size
	}
	return true
}

func isDigitAt(text string, i int) bool { return i < len(text) && isDigit(text[i]) }
