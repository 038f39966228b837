package communicator

import (
	"time"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/schedule"
)

// Cache lines on their way from core to core. Within one L3 a writer puts them into
// its cache and the reader claims them there. From another L3 each line takes twice
// to three times as long, both ways, and a writer that goes past the caches saves
// the way to fetch them; within one L3 that would double the time of a call. So a
// rank finds out how far its peers are by the time that its claims take. It keeps
// looking, since the host of a virtual machine moves its processors: the first piece
// of each message always goes through the caches.
const (
	// claimed is how many bytes are claimed at a time: little enough to stay in
	// the first level of cache until they are read.
	claimed = 8 << 10
	// past is the bit of a tag that says that all but the first piece was written
	// past the caches: it is not worth claiming.
	past = 2
)

// distance is what is known of the way to a peer.
type distance struct{ row uint8 } // claims in a row that took long

const (
	// farFrom is how long it takes to claim so many bytes from another L3: 0.36 µs
	// and more on Zen 4, where it takes 0.1 to 0.25 within one.
	farFrom = 300 * time.Nanosecond
	// farAfter is how many claims in a row have to take as long; a single one may
	// have been interrupted.
	farAfter = 8
)

func (d *distance) far() bool { return d.row >= farAfter }

func (d *distance) judge(took, farFrom time.Duration) {
	if took < farFrom {
		d.row = 0
	} else if !d.far() {
		d.row++
	}
}

// passes reports whether a message of this size goes past the caches to peer.
func (o *operation) passes(peer, size int) bool {
	return size > claimed && o.lends && !o.answers && o.comm.far(peer) // ll has flags among the data
}

// far reports whether a peer is far, or every one.
func (c *Comm) far(peer int) bool {
	if peer != schedule.Everyone {
		return c.peers[peer].distance.far()
	}
	for p := range c.peers {
		if p != c.rank && !c.peers[p].distance.far() {
			return false
		}
	}
	return true
}

// outgrown is how much the buffers of all ranks are together if caches keep nothing of
// them: two ranks with 8 MiB each way, measured on an L3 of 32 MiB.
const outgrown = 32 << 20

// outgrows reports whether the call's buffers come from memory and go there. Then results
// for windows of peers go past the caches, or their lines would be fetched only to be
// written; and lent inputs are not claimed, or they would be written back.
func (o *operation) outgrows() bool {
	return o.comm.outgrows(max(len(o.call.In), len(o.call.Out)))
}

// outgrows is the same of any buffers, with so many bytes on each rank each way.
func (c *Comm) outgrows(bytes int) bool { return 2*c.size*bytes >= c.outgrown }

// flooded is how much the buffers of all ranks are together if nobody will find in a cache
// what a call leaves: two ranks with 32 MiB each way, measured on an L3 that a host shares.
const flooded = 128 << 20

// footprint is how much the buffers of all ranks are together.
func (o *operation) footprint() int {
	in, out := o.call.In, o.call.Out
	if sys.Overlap(in, out) {
		return o.comm.size * max(len(in), len(out))
	}
	return o.comm.size * (len(in) + len(out))
}

// keep copies what nobody else writes to the caller's output.
func (o *operation) keep(dst, src []byte) {
	if o.footprint() < o.comm.flooded {
		copy(dst, src)
		return
	}
	sys.CopyPast(dst, src)
	sys.Fence() // for the caller's other threads
}

// put copies data to the place at of a slot.
func put(room []byte, at int, data []byte, past bool) {
	through := len(data)
	if past {
		through = min(max(claimed-at, 0), through)
	}
	copy(room[at:], data[:through])
	if through < len(data) {
		sys.CopyPast(room[at+through:at+len(data)], data[through:])
	}
}

func commit(w channel.Writer, tag uint32) {
	if tag&past != 0 {
		sys.Fence()
	}
	w.Commit(tag)
}

// claims reports whether the message received last is to be claimed: what this
// rank alone reads. If several do, or the owner reads too, as of an input that
// it lends to everyone, they would take the lines from each other. Lines that are
// to take an answer back are soon written to anyhow.
func (o *operation) claims(shared bool) bool {
	if !sys.ClaimsTell() || o.borrowed && o.outgrows() {
		return false
	}
	if o.answers {
		return o.borrowed
	}
	return !shared || o.comm.size == 2 && !o.borrowed
}

// claim claims the first piece of a message, and learns from that how far its
// writer is. What is lent may come from memory, and a later segment may have been
// fetched ahead.
func (o *operation) claim(peer, round int, piece []byte) {
	if len(piece) < claimed || o.borrowed || round > 0 {
		sys.Claim(piece)
		return
	}
	began := o.comm.clock()
	sys.Claim(piece)
	o.comm.peers[peer].distance.judge(o.comm.clock()-began, o.comm.farFrom)
}

// take copies the message that was received last, from peer, and claims it.
func (o *operation) take(peer, round int, dst, src []byte) {
	n := min(claimed, len(src))
	o.claim(peer, round, src[:n])
	copy(dst, src[:n])
	if o.passed {
		copy(dst[n:], src[n:])
	} else {
		take(dst[n:], src[n:])
	}
}

// take copies what a peer wrote.
func take(dst, src []byte) {
	if !sys.ClaimsTell() {
		copy(dst, src)
		return
	}
	for len(src) > 0 {
		n := min(claimed, len(src))
		sys.Claim(src[:n])
		copy(dst, src[:n])
		dst, src = dst[n:], src[n:]
	}
}

// combine runs the kernel for the step at next, a piece at a time, on its terms, of
// which those that claim has bits for are claimed first, and beyond their first piece
// those that passed has none for. It copies the result to where it is wanted.
func (o *operation) combine(next *counter, dst []byte, terms []reduce.Source, claim, passed uint64, copies [][]byte, past bool) {
	s := &o.route.program[next.step]
	wide := s.Value == schedule.Partial
	element := o.size(wide)
	pieces := o.comm.pieces[:len(terms)]
	elements := claimed / o.wide
	// The kernel can write the result twice in one pass. Not past the caches; nor to what
	// a peer has in its cache, as of a short message that it lends: its lines are slow
	// to come, and stores wait for each other, unless they are fetched before.
	short := o.borrowed && o.rounds == 1 && !past
	first, more := -1, false
	for i, there := range copies {
		switch {
		case there == nil:
		case first < 0 && !past && (!short || sys.Fetches()):
			first = i
		default:
			more = true
		}
	}
	// If twice as much is under way as makes copies go past the caches, so does what the kernel
	// makes, from memory that stays in the first level and else has partial results.
	flood := o.footprint() >= 2*o.comm.flooded && !wide
	for i := range terms {
		flood = flood && !terms[i].Wide
	}
	if claim == 0 && !more && !flood && !(short && sys.Fetches()) {
		elements = len(dst) / element // nothing is to be found in the cache again
	}
	for at, n := 0, len(dst)/element; at < n; at += elements {
		end := min(at+elements, n)
		for i, t := range terms {
			size := o.size(t.Wide)
			piece := t.Data[at*size : end*size]
			pieces[i] = reduce.Source{Wide: t.Wide, Data: piece}
			switch {
			case claim&(1<<i) == 0:
			case at == 0:
				o.claim(s.From[i].Rank, next.round, piece)
			case at*size < claimed || passed&(1<<i) == 0:
				sys.Claim(piece)
			}
		}
		if short {
			for _, there := range copies {
				if there != nil {
					sys.Fetch(there[at*element : end*element])
				}
			}
		}
		result := dst[at*element : end*element]
		if flood {
			result = o.comm.partial[:len(result)]
		}
		var also []byte
		if first >= 0 {
			also = copies[first][at*element : end*element]
		}
		o.kernel(result, also, wide, pieces, o.comm.size)
		if flood {
			sys.CopyPast(dst[at*element:end*element], result)
		}
		for i, there := range copies {
			if there != nil && i != first {
				put(there, at*element, result, past)
			}
		}
	}
	if flood {
		sys.Fence()
	}
	forget(pieces)
}
