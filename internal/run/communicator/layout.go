package communicator

import (
	"sync/atomic"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/channel/ll"
	"ringlane/internal/hardware/channel/simple"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/bytesize"
)

// MaxRanks is the largest communicator; the prover covers schedules up to it.
const MaxRanks = 64

const (
	page       = 4096
	line       = 64        // cache line
	llPayload  = 8 << 10   // bytes of a message that an ll slot holds
	maxSegment = 128 << 10 // beyond this a simple slot gains nothing
	twoSegment = 256 << 10 // the same between two ranks, which have few slots
	minSegment = 4 << 10

	// rootSegment is for what only a root writes: it goes on while others read.
	rootSegment = 64 << 10
	// spread of four slots is more than the first level of a core's cache holds.
	spread = 64 << 10
)

// flow is a class of channels between ranks. Each rank writes one channel of
// each shared flow and, for the others, one to each peer.
type flow int

const (
	sharedLL flow = iota
	sharedSimple
	privateLL
	privateSimple
	lane // point-to-point messages, which run beside collectives
	flows
)

func (f flow) shared() bool { return f == sharedLL || f == sharedSimple }
func (f flow) ll() bool     { return f == sharedLL || f == privateLL }

// layout says what lies where in every rank's window; it is the same on all.
//
// A window begins with the control block. Then come the acknowledgement lines
// of this rank's outgoing channels, one for each flow and reader, then the slots
// of its own shared channels, then those of the private channels that its peers
// write to it.
type layout struct {
	ranks   int
	segment int // payload of a simple slot
	data    [flows]int
	bytes   int
}

func newLayout(ranks, staging int) (layout, error) {
	l := layout{ranks: ranks}
	fixed := l.place(0) + int(flows)*page // each flow begins on a page
	// Simple slots: one shared channel, one private and one lane from each peer.
	slots := channel.Slots * (1 + 2*(ranks-1))
	most := maxSegment
	if ranks == 2 {
		most = twoSegment
	}
	l.segment = min((staging-fixed)/slots/line*line-line, most)
	if l.segment < minSegment {
		return l, failf(Memory, "join: %s of staging memory a rank is too little for %d ranks: at least %s is needed (raise RINGLANE_STAGING)",
			bytesize.Format(staging), ranks, bytesize.Format((fixed+slots*(minSegment+2*line)+1023)/1024*1024))
	}
	l.bytes = l.place(l.segment)
	return l, nil
}

// place computes offsets for a segment size and returns the end.
func (l *layout) place(segment int) int {
	at := controlBytes + int(flows)*l.ranks*line
	for f := range flows {
		at = (at + page - 1) / page * page
		l.data[f] = at
		channels := l.ranks - 1
		if f.shared() {
			channels = 1
		}
		if segment > 0 || f.ll() {
			at += channels * f.bytes(segment)
		}
	}
	return at
}

func (f flow) bytes(segment int) int {
	if f.ll() {
		return ll.Bytes(llPayload)
	}
	return simple.Bytes(segment)
}

func (l *layout) payload(f flow) int {
	if f.ll() {
		return llPayload
	}
	return l.segment
}

// slots is the memory of the channel from writer to reader, which is one of
// the peers and ignored for a shared flow.
func (l *layout) slots(f flow, windows [][]byte, writer, reader int) []byte {
	size := f.bytes(l.segment)
	if f.shared() {
		return windows[writer][l.data[f]:][:size]
	}
	index := writer
	if writer > reader {
		index-- // a rank writes nothing to itself
	}
	return windows[reader][l.data[f]+index*size:][:size]
}

// ack is reader's acknowledgement word for writer's channel.
func (l *layout) ack(f flow, windows [][]byte, writer, reader int) *atomic.Uint64 {
	return sys.Word64(windows[writer], controlBytes+(int(f)*l.ranks+reader)*line)
}

// spread is over how much of each slot the messages of a flow take turns. On Intel's
// processors to write and to read what the other core still has in its first level of cache
// takes longer; on AMD's lines come back soonest that have been claimed last.
func (l *layout) spread(f flow) int {
	if sys.ClaimsTell() || l.ranks > 2 && f != lane {
		return 0
	}
	return spread
}

// ends are this rank's ends of every channel, indexed by flow and peer. For a
// shared flow the rank's own entry of to is the one writer.
type ends struct {
	to   [flows][]channel.Writer
	from [flows][]channel.Reader
	// Those of privateSimple, by peer.
	ask    []channel.Asker
	answer []channel.Answerer
}

func (l *layout) connect(rank int, windows [][]byte, waker *channel.Waker) *ends {
	e := &ends{ask: make([]channel.Asker, l.ranks), answer: make([]channel.Answerer, l.ranks)}
	for f := range flows {
		e.to[f] = make([]channel.Writer, l.ranks)
		e.from[f] = make([]channel.Reader, l.ranks)
		write := func(slots []byte, acks []*atomic.Uint64, readers uint64) channel.Writer {
			if f.ll() {
				return ll.NewWriter(slots, l.payload(f), acks, waker, readers)
			}
			return simple.NewWriter(slots, l.payload(f), l.spread(f), acks, waker, readers)
		}
		read := func(slots []byte, ack *atomic.Uint64, writer uint64) channel.Reader {
			if f.ll() {
				return ll.NewReader(slots, l.payload(f), ack, waker, writer)
			}
			return simple.NewReader(slots, l.payload(f), ack, waker, writer, !f.shared() || l.ranks == 2)
		}
		var acks []*atomic.Uint64
		var readers uint64
		for p := range l.ranks {
			if p == rank {
				continue
			}
			e.from[f][p] = read(l.slots(f, windows, p, rank), l.ack(f, windows, p, rank), 1<<p)
			ack := l.ack(f, windows, rank, p)
			if f.shared() {
				acks, readers = append(acks, ack), readers|1<<p
			} else {
				e.to[f][p] = write(l.slots(f, windows, rank, p), []*atomic.Uint64{ack}, 1<<p)
			}
		}
		if f.shared() {
			e.to[f][rank] = write(l.slots(f, windows, rank, rank), acks, readers)
		}
	}
	for p := range l.ranks {
		if p != rank {
			e.ask[p] = e.to[privateSimple][p].(channel.Asker)
			e.answer[p] = e.from[privateSimple][p].(channel.Answerer)
		}
	}
	return e
}
