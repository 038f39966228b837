package collective

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// On GPUs a call is one kernel, which fuses all steps of a schedule: oneshot or
// direct, in which everything goes to a peer straight, ring or hierarchical;
// engine.go has what copy engines do instead. Ranks decide alone how it runs, so that
// what they decide by must be the same on all.

// DeviceChoice is how a call is carried out on GPUs.
type DeviceChoice struct {
	Algorithm string
	Line      int // bytes of a line: data and flag in one store. 0: in bulk, by slots
	Blocks    int
	Threads   int  // of a block
	Piece     int  // bytes of a slot that are used, a power of two; 0 without slots
	Lanes     int  // of copy engines, which move slots; blocks and threads are of what reduces. 0: kernels do
	Sentinel  bool // rows that are data alone, in areas
}

// String writes a choice as RINGLANE_DEVICE_ALGO takes it: oneshot:line128:16x512.
func (c DeviceChoice) String() string {
	return fmt.Sprintf("%s:%s:%dx%d", c.Algorithm, c.Protocol(), c.Blocks, c.Threads)
}

// Protocol is how data and the word that it is there travel: line128, sentinel, slot,
// engine1 or engine2.
func (c DeviceChoice) Protocol() string {
	switch {
	case c.Lanes > 0:
		return fmt.Sprint("engine", c.Lanes)
	case c.Sentinel:
		return "sentinel"
	case c.Line != 0:
		return fmt.Sprint("line", c.Line)
	}
	return "slot"
}

// DeviceLayout is how the memory is divided that a rank has for one peer. A half
// is a multiple of a row of 512 bytes; slots, and how many there are, are powers
// of two.
type DeviceLayout struct {
	Half       int // bytes of lines that an exchange has room for
	Slots      int // in a ring
	SlotBytes  int
	BulkBlocks int // that have rings
	// Short is the half of lines of 16 bytes, which have halves of their own
	// where other lines are longer: a word that is a flag in one would be
	// anything in the other.
	Short int
	// Area is each of three that hold rows without flags; 0: there are none.
	Area int
}

const (
	deviceRow   = 512
	shortLine   = 16
	leastWindow = 128 << 10
	leastSlots  = 4 // of a ring
	// deviceCounters is what counters take beside lines and slots.
	deviceCounters = 4096

	maxDeviceBlocks = 128
	// hostBlocks are as many as the link to the processor can feed.
	hostBlocks    = 48
	lineThreads   = 512
	slotThreads   = 768
	reduceThreads = 640 // where slots are reduced, so that each has registers for more in flight
	ringThreads   = 512
)

// Bytes is what a layout takes.
func (l *DeviceLayout) Bytes() int {
	return 2*l.Half + 2*l.Short + 3*l.Area + deviceCounters + 2*l.BulkBlocks*l.Slots*l.SlotBytes
}

// LayOutDevice divides window bytes for each peer; 0 is as much as pays, and less
// for each of many. Rings in host memory are small, so that they stay in the
// processor's cache: memory itself is slower than the link. Nor has it areas: what
// is read there would have to be written over the link to be absent again.
func LayOutDevice(window, ranks int, host bool) (DeviceLayout, error) {
	l := DeviceLayout{Slots: 8, BulkBlocks: maxDeviceBlocks}
	half, slot, area, all := 5<<20, 32<<10, 16<<20, 128<<20
	halves := 16 // of a window, if it is small
	if host {
		l.Slots = leastSlots
		half, slot, area, all = 2560<<10, 16<<10, 0, 32<<20
		halves = 8
		l.BulkBlocks = hostBlocks
	}
	if window == 0 {
		window = all / max(1, ranks-1)
	}
	if window < leastWindow {
		return l, fmt.Errorf("a window of %d bytes a peer is too small (at least %d)", window, leastWindow)
	}
	l.Half = min(window/halves, half) / deviceRow * deviceRow
	l.Short = min(window/32, 256<<10) / deviceRow * deviceRow
	l.Area = min(window/8, area) / deviceRow * deviceRow
	// Fewer slots and fewer blocks before small slots, which a fence each would slow.
	for {
		l.SlotBytes = slot
		for l.Bytes() > window {
			l.SlotBytes /= 2
		}
		switch {
		case l.Slots > leastSlots && l.SlotBytes < 16<<10:
			l.Slots /= 2
		case l.SlotBytes < 8<<10 && l.BulkBlocks > 1:
			l.BulkBlocks /= 2
		default:
			return l, nil
		}
	}
}

// DeviceOverride is what a user asks for instead of the choice by size. Zero
// values leave the choice alone.
type DeviceOverride struct {
	Algorithm       string
	Line            int  // of lines, on every path
	Lines, Slots    bool // all calls by lines, or all by slots
	Sentinels       bool // all calls by rows without flags that these can carry
	Engines         bool // all calls by copy engines that these can carry
	Lanes           int  // of copy engines
	Blocks, Threads int
}

// ParseDeviceOverride reads parts that colons separate, in any order: an
// algorithm, a protocol (line, line16, line64, line128, sentinel, slot, engine, engine1,
// engine2), and blocks x threads. "auto" and nothing leave the choice alone.
func ParseDeviceOverride(text string) (DeviceOverride, error) {
	var o DeviceOverride
	for part := range strings.SplitSeq(text, ":") {
		blocks, threads, launch := strings.Cut(part, "x")
		var err error
		switch {
		case part == "" || part == auto:
		case part == Oneshot || part == directAllReduce.Name || part == Ring || part == Hierarchical:
			o.Algorithm = part
		case part == "line":
			o.Lines = true
		case part == "line16" || part == "line64" || part == "line128":
			o.Lines = true
			o.Line, err = strconv.Atoi(strings.TrimPrefix(part, "line"))
		case part == "slot":
			o.Slots = true
		case part == "sentinel":
			o.Sentinels = true
		case part == "engine":
			o.Engines = true
		case part == "engine1" || part == "engine2":
			o.Engines = true
			o.Lanes, err = strconv.Atoi(strings.TrimPrefix(part, "engine"))
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
	protocols := 0
	for _, asked := range []bool{o.Lines, o.Sentinels, o.Slots, o.Engines} {
		if asked {
			protocols++
		}
	}
	if protocols > 1 {
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
	Shared  bool // some ranks share a GPU
	Line    int  // bytes that arrive together on every path: 16, 64 or 128
	Blocks  int  // that every GPU can run at once for one rank
	Threads int  // of a block, at most
	Layout  DeviceLayout
	Engine  EngineLayout
	// EngineFrom is from how many bytes on copy engines carry calls beside other work;
	// 0: nothing is settled.
	EngineFrom int
	Order      []int   // of the ring: ranks, nil is by number
	Islands    Islands // nil where there is one
	Pace       Pace    // of the slowest path
	Inside     Pace    // of the slowest path that leaves no island
	DeviceOverride
}

// deviceLimits say up to how many bytes something pays, and with what kernels.
type deviceLimits struct {
	short           int // lines of 16 bytes, which need no other lane to arrive
	oneshot         int // all that a rank is sent
	line, line16    int // a message between two ranks by lines, and by lines of 16 bytes
	sentinel        int // from how many bytes on terms and results of floats go without flags
	blocks, threads int
}

// limits are what was measured on two H200: over NVLink, and through host memory
// over PCIe.
func (d *Devices) limits() deviceLimits {
	if d.Host {
		l := deviceLimits{short: 8 << 10, oneshot: 64 << 10, line: 2 << 20, line16: 512 << 10, blocks: 32, threads: 256}
		return l.scaled(d.Pace.shift(hostPace))
	}
	l := deviceLimits{short: 64 << 10, oneshot: 512 << 10, line: 16 << 20, line16: 128 << 10, sentinel: 2 << 20, blocks: maxDeviceBlocks, threads: lineThreads}
	if d.Shared {
		l.blocks = 64
	}
	return l.scaled(d.Pace.shift(peerPace))
}

// Uneven as the size of a call means that ranks know only their own part of it.
const Uneven = -1

// Choose says how to carry out c on elements of a type. bytes is what Table.Choose
// has, or Uneven.
func (d *Devices) Choose(c schedule.Collective, typ dtype.Type, bytes int) DeviceChoice {
	if choice, ok := d.byEngine(c, bytes); ok {
		return choice
	}
	limits := d.limits()
	choice := DeviceChoice{Algorithm: directAllReduce.Name, Line: d.line()}
	message := bytes // the longest between two ranks
	shares, most := 2, slotThreads
	if reduces(c) {
		most = reduceThreads
	}
	if c == schedule.AllReduce {
		message = (bytes + d.Ranks - 1) / d.Ranks
		shares = 4
		sent := int(min(float64(bytes)*d.crossing(), NoLimit/2))
		oneshot := sent <= limits.oneshot
		if d.Algorithm != "" {
			oneshot = d.Algorithm == Oneshot
		}
		// In bulk a piece is reduced when it has come from all, not when it
		// has gone to all: in place that would be too early.
		if oneshot && !d.Slots && !(d.Sentinels && d.bySentinel(c, typ, message, limits)) {
			choice.Algorithm = Oneshot
			if sent <= limits.short && d.DeviceOverride.Line == 0 {
				choice.Line = shortLine
			}
			return d.lines(choice, limits, bytes)
		}
		if d.hierarchical(c, bytes) {
			return d.throughIslands(bytes)
		}
	}
	if d.bySentinel(c, typ, message, limits) {
		return d.sentinels(choice, limits, message)
	}
	line := message <= limits.line && (choice.Line != shortLine || message <= limits.line16)
	if d.Lines || d.Slots {
		line = d.Lines
	}
	switch {
	case bytes == Uneven:
		return d.bulk(choice, shares, most, Uneven)
	case d.ring(c, line):
		choice.Algorithm = Ring
		choice = d.bulk(choice, 1, ringThreads, message)
		choice.Piece = min(choice.Piece, d.Layout.SlotBytes/2) // sums under way may be twice as wide
		return choice
	case line, c == schedule.Barrier, d.Threads < shares*leastShare:
		// In bulk who has nothing to say is not waited for.
		return d.lines(choice, limits, message)
	}
	return d.bulk(choice, shares, most, message)
}

// bySentinel says whether a call with messages of so many bytes, which is not
// oneshot, goes by rows without flags: reductions of floats, which have a word to
// spare, where areas have room for all of it.
func (d *Devices) bySentinel(c schedule.Collective, typ dtype.Type, message int, limits deviceLimits) bool {
	rows := max((message+deviceRow-1)/deviceRow, 1) // also of a chunk, cut at a cache line
	if !reduces(c) || !typ.Float() || rows*deviceRow > d.Layout.Area {
		return false
	}
	if d.Sentinels || d.Lines || d.Slots {
		return d.Sentinels && d.Algorithm != Ring
	}
	from := limits.sentinel
	if d.line() == shortLine { // half of which are flags
		from = min(from, limits.line16)
	}
	// Islands have sums go round the ring, which one rank alone has no use for.
	direct := d.Algorithm != "" || !d.acrossIslands() || c == schedule.Reduction
	return message >= from && d.Algorithm != Ring && direct
}

func reduces(c schedule.Collective) bool {
	return c == schedule.AllReduce || c == schedule.ReduceScatter || c == schedule.Reduction
}

// sentinels gives a warp two rows at a time, as long as there are blocks.
func (d *Devices) sentinels(choice DeviceChoice, limits deviceLimits, message int) DeviceChoice {
	choice.Line, choice.Sentinel = 0, true
	choice.Threads = min(lineThreads, d.Threads)
	warps := (message + 2*deviceRow - 1) / (2 * deviceRow)
	choice.Blocks = min((warps+choice.Threads/32-1)/(choice.Threads/32), limits.blocks, d.Blocks)
	choice.Blocks = max(choice.Blocks, 1)
	if d.DeviceOverride.Blocks > 0 {
		choice.Blocks = d.DeviceOverride.Blocks
		choice.Threads = min(d.DeviceOverride.Threads, lineThreads, d.Threads) / 32 * 32
	}
	return choice
}

// ring says whether a call goes round the ring: where host memory carries it, or
// paths from island to island, direct writes as much, but to all at once.
func (d *Devices) ring(c schedule.Collective, line bool) bool {
	if _, err := Find(c, Ring); err != nil || c == schedule.Barrier || d.Ranks == 1 {
		return false
	}
	if d.Algorithm != "" {
		return d.Algorithm == Ring && !d.Lines
	}
	return (d.Host || d.acrossIslands()) && d.Ranks > 2 && !line
}

// Apart reports whether lines of so many bytes have halves of their own.
func (d *Devices) Apart(line int) bool { return line == shortLine && d.line() != shortLine }

// line is the bytes of a line, where nothing speaks for short ones.
func (d *Devices) line() int {
	if d.DeviceOverride.Line != 0 {
		return d.DeviceOverride.Line
	}
	return d.Line
}

// HalfOf is the half that lines of so many bytes have.
func (d *Devices) HalfOf(line int) int {
	if d.Apart(line) {
		return d.Layout.Short
	}
	return d.Layout.Half
}

// rows is how many rows of lines a message takes.
func (c DeviceChoice) rows(message int) int {
	payload := deviceRow / c.Line * (c.Line - 8)
	return max(1, (message+payload-1)/payload)
}

// lines gives a warp a row, as long as there are blocks. The more there is, the
// more threads share a block, and what it costs to begin.
func (d *Devices) lines(choice DeviceChoice, limits deviceLimits, message int) DeviceChoice {
	rows := choice.rows(message)
	threads := lineThreads
	switch {
	case message <= 512:
		threads = 64
	case message <= 32<<10:
		threads = 128
	case message <= 128<<10:
		threads = 256
	}
	choice.Threads = min(threads, limits.threads, d.Threads)
	warps := choice.Threads / 32
	// Four blocks keep the counts of all blocks sooner than one does.
	blocks := max(1<<bits.Len(uint((rows+warps-1)/warps-1)), 4)
	choice.Blocks = min(blocks, limits.blocks, d.Blocks)
	if d.DeviceOverride.Blocks > 0 {
		choice.Blocks = d.DeviceOverride.Blocks
		choice.Threads = min(d.DeviceOverride.Threads, lineThreads, d.Threads) / 32 * 32
	}
	choice.Blocks = power(min(choice.Blocks, d.HalfOf(choice.Line)/deviceRow))
	return choice
}

// leastShare is the threads of a role in bulk, or of its half: one warp waits,
// the others move data.
const leastShare = 64

// leastPiece is worth a fence.
const leastPiece = 4 << 10

// bulk gives every block that has a ring a piece, and cuts pieces down to what
// a fence each is worth. Blocks are shared out to roles.
func (d *Devices) bulk(choice DeviceChoice, shares, most, message int) DeviceChoice {
	choice.Line = 0
	threads := min(d.Threads, most)
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
	each := max((message+choice.Blocks-1)/choice.Blocks, leastPiece)
	choice.Piece = min(1<<bits.Len(uint(each-1)), d.Layout.SlotBytes)
	if d.DeviceOverride.Blocks == 0 {
		choice.Blocks = max(1, min(choice.Blocks, (message+choice.Piece-1)/choice.Piece))
	}
	return choice
}

// power is n, or the power of two below it.
func power(n int) int { return 1 << (bits.Len(uint(n)) - 1) }
