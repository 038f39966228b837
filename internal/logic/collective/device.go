package collective

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"ringlane/internal/model/schedule"
)

// On GPUs a call is one kernel, which fuses all steps of a schedule in which
// everything goes to a peer straight: oneshot or direct. Ranks decide alone how
// it runs, so that what they decide by must be the same on all.

// DeviceChoice is how a call is carried out on GPUs.
type DeviceChoice struct {
	Algorithm string
	Line      int // bytes of a line: data and flag in one store. 0: in bulk, by slots
	Blocks    int
	Threads   int // of a block
	Piece     int // bytes of a slot that are used, a power of two; 0 with lines
}

// String writes a choice as RINGLANE_DEVICE_ALGO takes it: oneshot:line128:16x512.
func (c DeviceChoice) String() string {
	protocol := "slot"
	if c.Line != 0 {
		protocol = fmt.Sprint("line", c.Line)
	}
	return fmt.Sprintf("%s:%s:%dx%d", c.Algorithm, protocol, c.Blocks, c.Threads)
}

// DeviceLayout is how the memory is divided that a rank has for one peer. A half
// is a multiple of a row of 512 bytes; slots, and how many there are, are powers
// of two.
type DeviceLayout struct {
	Half       int // bytes of lines that an exchange has room for
	Slots      int // in a ring
	SlotBytes  int
	BulkBlocks int // that have rings
}

const (
	deviceRow = 512
	// deviceCounters is what counters take beside lines and slots.
	deviceCounters = 4096

	// DefaultDeviceWindow is the memory that a rank has for one peer.
	DefaultDeviceWindow = 36 << 20
	leastDeviceWindow   = 64 << 10

	maxDeviceBlocks = 128
	lineThreads     = 512
	slotThreads     = 768
)

// LayOutDevice divides window bytes. Rings in host memory are small, so that
// they stay in the processor's cache: memory itself is slower than the link.
func LayOutDevice(window int, host bool) (DeviceLayout, error) {
	if window < leastDeviceWindow {
		return DeviceLayout{}, fmt.Errorf("a window of %d bytes a peer is too small (at least %d)", window, leastDeviceWindow)
	}
	most := 64 << 10 // bytes of a slot
	l := DeviceLayout{Slots: 4, BulkBlocks: 64}
	if host {
		most, l.BulkBlocks = 32<<10, 16
	}
	l.Half = min(window/16, 1<<20) / deviceRow * deviceRow
	left := window - 2*l.Half - deviceCounters
	// Fewer blocks before smaller slots than 8 KiB, which a fence each would slow.
	for {
		l.SlotBytes = most
		for 2*l.Slots*l.BulkBlocks*l.SlotBytes > left {
			l.SlotBytes /= 2
		}
		if l.SlotBytes >= 8<<10 || l.BulkBlocks == 1 {
			return l, nil
		}
		l.BulkBlocks /= 2
	}
}

// DeviceOverride is what a user asks for instead of the choice by size. Zero
// values leave the choice alone.
type DeviceOverride struct {
	Algorithm       string
	Line            int  // of lines, on every path
	Lines, Slots    bool // all calls by lines, or all by slots
	Blocks, Threads int
}

// ParseDeviceOverride reads parts that colons separate, in any order: an
// algorithm, a protocol (line, line16, line64, line128, slot), and blocks x
// threads. "auto" and nothing leave the choice alone.
func ParseDeviceOverride(text string) (DeviceOverride, error) {
	var o DeviceOverride
	for part := range strings.SplitSeq(text, ":") {
		blocks, threads, launch := strings.Cut(part, "x")
		var err error
		switch {
		case part == "" || part == auto:
		case part == Oneshot || part == directAllReduce.Name:
			o.Algorithm = part
		case part == "line":
			o.Lines = true
		case part == "line16" || part == "line64" || part == "line128":
			o.Lines = true
			o.Line, err = strconv.Atoi(strings.TrimPrefix(part, "line"))
		case part == "slot":
			o.Slots = true
		case launch:
			if o.Blocks, err = strconv.Atoi(blocks); err == nil {
				o.Threads, err = strconv.Atoi(threads)
			}
			if err != nil || o.Blocks < 1 || o.Blocks > maxDeviceBlocks || o.Threads < 32 || o.Threads > 1024 {
				return o, fmt.Errorf("%q does not say how many blocks (1 to %d) of how many threads (32 to 1024) a kernel has (write it like 16x512)", part, maxDeviceBlocks)
			}
		default:
			return o, fmt.Errorf("%q is no part of a choice (write it like oneshot:line128:16x512, or leave parts out)", part)
		}
		if err != nil {
			return o, err
		}
	}
	if o.Lines && o.Slots {
		return o, fmt.Errorf("%q names two protocols", text)
	}
	return o, nil
}

const auto = "auto"

// Devices is what choices depend on besides the call: it is the same on all
// ranks of a communicator from its beginning to its end.
type Devices struct {
	Ranks   int
	Host    bool // some ranks reach each other through host memory alone
	Line    int  // bytes that arrive together on every path: 16, 64 or 128
	Blocks  int  // that every GPU can run at once for one rank
	Threads int  // of a block, at most
	Layout  DeviceLayout
	DeviceOverride
}

// Up to how many bytes a message is sent by lines, and each input to all ranks.
type deviceLimits struct{ oneshot, line, copied int }

// Measured on two H200: over NVLink, and through host memory over PCIe.
var peerLimits, hostLimits = deviceLimits{256 << 10, 1 << 20, 512 << 10}, deviceLimits{16 << 10, 64 << 10, 64 << 10}

// Uneven as the size of a call means that ranks know only their own part of it.
const Uneven = -1

// Choose says how to carry out c. bytes is what Table.Choose has, or Uneven.
func (d *Devices) Choose(c schedule.Collective, bytes int) DeviceChoice {
	limits := peerLimits
	if d.Host {
		limits = hostLimits
	}
	choice := DeviceChoice{Algorithm: directAllReduce.Name}
	message, line := bytes, bytes <= limits.copied // message is the longest between two ranks
	if c == schedule.AllReduce {
		oneshot := bytes*(d.Ranks-1) <= limits.oneshot
		if d.Algorithm != "" {
			oneshot = d.Algorithm == Oneshot
		}
		// In bulk a piece is reduced when it has come from all, not when it
		// has gone to all: in place that would be too early.
		if oneshot && !d.Slots {
			choice.Algorithm = Oneshot
			return d.lines(choice, bytes)
		}
		message = (bytes + d.Ranks - 1) / d.Ranks
		line = message <= limits.line
	}
	if d.Lines || d.Slots {
		line = d.Lines
	}
	shares := 2
	if c == schedule.AllReduce {
		shares = 4
	}
	switch {
	case bytes == Uneven:
		return d.bulk(choice, shares, Uneven)
	case line, c == schedule.Barrier, d.Threads < shares*leastShare:
		// In bulk who has nothing to say is not waited for.
		return d.lines(choice, message)
	}
	return d.bulk(choice, shares, message)
}

// lines gives a warp a row, as long as there are blocks.
func (d *Devices) lines(choice DeviceChoice, message int) DeviceChoice {
	choice.Line = d.Line
	payload := deviceRow / d.Line * (d.Line - 8)
	rows := (message + payload - 1) / payload
	most := min(d.Threads, lineThreads) / 32 // warps of a block
	warps := 1
	for warps < rows && 2*warps <= most {
		warps *= 2
	}
	choice.Threads = 32 * warps
	choice.Blocks = max(1, min((rows+warps-1)/warps, 64, d.Blocks))
	if d.DeviceOverride.Blocks > 0 {
		choice.Blocks = d.DeviceOverride.Blocks
		choice.Threads = min(d.DeviceOverride.Threads, 32*most) / 32 * 32
	}
	choice.Blocks = min(choice.Blocks, d.Layout.Half/deviceRow)
	return choice
}

// leastShare is the threads of a role in bulk, or of its half: one warp waits,
// the others move data.
const leastShare = 64

// bulk gives every block that has a ring a piece, and cuts pieces down to what
// a fence each is worth. Blocks are shared out to roles.
func (d *Devices) bulk(choice DeviceChoice, shares, message int) DeviceChoice {
	threads := min(d.Threads, slotThreads)
	choice.Blocks = max(1, min(d.Layout.BulkBlocks, d.Blocks))
	if d.DeviceOverride.Blocks > 0 {
		choice.Blocks = min(d.DeviceOverride.Blocks, d.Layout.BulkBlocks)
		threads = min(threads, d.DeviceOverride.Threads)
	}
	choice.Threads = max(threads/(32*shares)*32, leastShare) * shares
	if message == Uneven {
		choice.Piece = min(32<<10, d.Layout.SlotBytes)
		return choice
	}
	each := max((message+choice.Blocks-1)/choice.Blocks, 4<<10)
	choice.Piece = min(1<<bits.Len(uint(each-1)), d.Layout.SlotBytes)
	if d.DeviceOverride.Blocks == 0 {
		choice.Blocks = max(1, min(choice.Blocks, (message+choice.Piece-1)/choice.Piece))
	}
	return choice
}
