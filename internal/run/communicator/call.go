package communicator

import (
	"fmt"

	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// Call is one collective as one rank asks for it. In and Out are raw memory;
// their lengths in elements of Type are, for n ranks and Count = c:
//
//	allreduce             In c, Out c
//	reduce                In c, Out c on the root (unused elsewhere)
//	broadcast             In c on the root, Out c
//	reducescatter         In n*c, Out c
//	allgather             In c, Out n*c
//	gather                In c, Out n*c on the root
//	scatter               In n*c on the root, Out c
//	alltoall              In n*c, Out n*c; or the sums of SendCounts and RecvCounts
//	barrier               none
//
// In and Out may be the same memory where chunk for chunk they are the same
// place: allreduce, reduce and broadcast with In == Out; allgather and gather
// with In at this rank's place in Out; reducescatter and scatter with Out at
// this rank's place in In. Otherwise they must not overlap.
type Call struct {
	Collective schedule.Collective
	Type       dtype.Type
	Op         dtype.Op
	Root       int
	Count      int
	In, Out    []byte

	// SendCounts and RecvCounts, if set, make an alltoall uneven: elements to
	// and from each rank, packed in rank order.
	SendCounts, RecvCounts []int
}

func (c *Call) String() string {
	return c.description().String()
}

func (c *Call) description() description {
	d := description{collective: c.Collective, typ: c.Type, op: c.Op, root: c.Root, count: c.Count}
	if c.SendCounts != nil {
		d.count = -1
	}
	return d
}

func (d description) String() string {
	if d.collective == schedule.Barrier {
		return "barrier"
	}
	s := fmt.Sprintf("%v of %d × %v", d.collective, d.count, d.typ)
	if d.count < 0 {
		s = fmt.Sprintf("uneven %v of %v", d.collective, d.typ)
	}
	switch d.collective {
	case schedule.AllReduce, schedule.ReduceScatter, schedule.Reduction:
		s += fmt.Sprintf(" %v", d.op)
	}
	if d.collective.Rooted() {
		s += fmt.Sprintf(" with root %d", d.root)
	}
	return s
}

// lengths is the number of elements that In and Out must have on this rank.
func (c *Call) lengths(ranks, rank int) (in, out int) {
	n, atRoot := c.Count, rank == c.Root
	switch c.Collective {
	case schedule.AllReduce:
		in, out = n, n
	case schedule.Reduction:
		in = n
		if atRoot {
			out = n
		}
	case schedule.Broadcast:
		out = n
		if atRoot {
			in = n
		}
	case schedule.ReduceScatter:
		in, out = n*ranks, n
	case schedule.AllGather:
		in, out = n, n*ranks
	case schedule.Gather:
		in = n
		if atRoot {
			out = n * ranks
		}
	case schedule.Scatter:
		out = n
		if atRoot {
			in = n * ranks
		}
	case schedule.AllToAll:
		in, out = n*ranks, n*ranks
		if c.SendCounts != nil {
			in, out = total(c.SendCounts), total(c.RecvCounts)
		}
	}
	return in, out
}

// Lengths is the number of elements that call uses of In and of Out on this
// rank.
func (c *Comm) Lengths(call *Call) (in, out int, err error) {
	if err := call.sane(c.size); err != nil {
		return 0, 0, err
	}
	in, out = call.lengths(c.size, c.rank)
	return in, out, nil
}

func total(counts []int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// sane validates all but the buffers.
func (c *Call) sane(ranks int) error {
	if !c.Type.Valid() {
		return failf(Argument, "%v: %v is not an element type (the C header lists them)", c.Collective, c.Type)
	}
	if !c.Op.Valid() {
		return failf(Argument, "%v: %v is not an operator (the C header lists them)", c.Collective, c.Op)
	}
	if c.Collective.Rooted() && (c.Root < 0 || c.Root >= ranks) {
		return failf(Argument, "%v: root %d is outside 0 to %d", c.Collective, c.Root, ranks-1)
	}
	if c.Count < 0 || c.Count > 1<<56/ranks {
		return failf(Argument, "%v: a count of %d elements is not possible", c.Collective, c.Count)
	}
	if c.SendCounts != nil || c.RecvCounts != nil {
		if len(c.SendCounts) != ranks || len(c.RecvCounts) != ranks {
			return failf(Argument, "%v: %d send and %d receive counts for %d ranks (one of each is needed a rank)", c.Collective, len(c.SendCounts), len(c.RecvCounts), ranks)
		}
		for r := range ranks {
			if c.SendCounts[r] < 0 || c.RecvCounts[r] < 0 {
				return failf(Argument, "%v: the count for rank %d is negative", c.Collective, r)
			}
		}
	}
	return nil
}

// check validates the call and cuts In and Out to what it uses.
func (c *Call) check(ranks, rank int) error {
	if err := c.sane(ranks); err != nil {
		return err
	}
	if c.SendCounts != nil && c.SendCounts[rank] != c.RecvCounts[rank] {
		return failf(Argument, "%v: rank %d sends itself %d elements and expects %d", c.Collective, rank, c.SendCounts[rank], c.RecvCounts[rank])
	}
	in, out := c.lengths(ranks, rank)
	in, out = in*c.Type.Size(), out*c.Type.Size()
	if len(c.In) < in || len(c.Out) < out {
		return failf(Argument, "%v: buffers of %d and %d bytes, %d and %d are needed", c, len(c.In), len(c.Out), in, out)
	}
	c.In, c.Out = c.In[:in], c.Out[:out]
	if sys.Overlap(c.In, c.Out) && !c.inPlace(ranks, rank) {
		return failf(Argument, "%v: input and output overlap, but not as this collective allows (use separate buffers, or the in-place form)", c)
	}
	return nil
}

// inPlace reports whether the overlap of In and Out is the one in which every
// chunk has the same place in both.
func (c *Call) inPlace(ranks, rank int) bool {
	own := c.Count * c.Type.Size()
	switch c.Collective {
	case schedule.AllReduce, schedule.Reduction, schedule.Broadcast:
		return sys.Same(c.In, c.Out)
	case schedule.AllGather, schedule.Gather:
		return sys.Same(c.In, c.Out[rank*own:])
	case schedule.ReduceScatter, schedule.Scatter:
		return sys.Same(c.In[rank*own:], c.Out)
	}
	return false
}

// span is a run of elements of a buffer.
type span struct{ at, len int }

// chunk says where chunk lies in In and in Out of this rank. A span is
// meaningful only where the program uses it.
func (c *Call) chunk(chunk, chunks, ranks, rank int) (in, out span) {
	n := c.Count
	switch c.Collective {
	case schedule.AllReduce, schedule.Reduction, schedule.Broadcast:
		s := split(n, chunks, chunk, c.align())
		return s, s
	case schedule.ReduceScatter, schedule.Scatter:
		return span{chunk * n, n}, span{0, n}
	case schedule.AllGather, schedule.Gather, schedule.Barrier:
		return span{0, n}, span{chunk * n, n}
	case schedule.AllToAll:
		from, to := chunk/ranks, chunk%ranks
		if c.SendCounts == nil {
			return span{to * n, n}, span{from * n, n}
		}
		if from == rank {
			in = span{total(c.SendCounts[:to]), c.SendCounts[to]}
		}
		if to == rank {
			out = span{total(c.RecvCounts[:from]), c.RecvCounts[from]}
		}
		return in, out
	}
	panic(fmt.Sprintf("communicator: %v has no chunks", c.Collective))
}

// align is the number of elements in a cache line: cuts fall on lines, so that
// no two ranks write to one.
func (c *Call) align() int { return line / c.Type.Size() }

// split is part i of n elements cut into parts of equal size but the last.
func split(n, parts, i, align int) span {
	size := (n + parts - 1) / parts
	size = (size + align - 1) / align * align
	at := min(i*size, n)
	return span{at, min(size, n-at)}
}

// segment is piece round of a chunk of n elements, cut evenly into as few
// pieces as do not exceed most elements, which must be a multiple of align.
// Both ends of a channel compute the same cut from the chunk's length.
func segment(n, most, align, round int) span {
	if n <= most {
		if round > 0 {
			return span{n, 0}
		}
		return span{0, n}
	}
	return split(n, (n+most-1)/most, round, align)
}
