package device

import (
	"errors"
	"fmt"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/logic/collective"
)

// engine carries bulk between two ranks by copy engines. A slot of the peer's host
// memory belongs to a stream, in which a piece of the message is copied there, the
// peer's piece is copied here from this rank's slot, and kernels in between wait,
// count and reduce (engine.cuh). Slots take turns with the pieces.
type engine struct {
	layout collective.EngineLayout
	at     uint64       // where its counters and slots begin in a part
	memory cuda.Pointer // of the GPU: counts of turns, then a slot each for what has come
	teams  []*team      // the first is never captured
	params *cuda.Params
	turn   *kernels.Turn // what params holds
	meet   *cuda.Function
}

// enginePage is what counters take: of slots in a part, of turns on the GPU.
const enginePage = 4096

// bytes is what the engine's counters and slots take, in a part or on the GPU.
func (e *engine) bytes() uint64 {
	if e.layout.Slots == 0 {
		return 0
	}
	return enginePage + uint64(e.layout.Slots*e.layout.SlotBytes)
}

// counters is where the counters of a slot lie in a part, and slot where it lies.
func (e *engine) counters(part cuda.Pointer, slot int) cuda.Pointer {
	return part + cuda.Pointer(e.at) + cuda.Pointer(slot*kernels.TurnBytes)
}

func (e *engine) slot(part cuda.Pointer, slot int) cuda.Pointer {
	return part + cuda.Pointer(e.at) + enginePage + cuda.Pointer(slot*e.layout.SlotBytes)
}

// staged is where a piece waits that has come through a slot.
func (e *engine) staged(slot int) cuda.Pointer {
	return e.memory + enginePage + cuda.Pointer(slot*e.layout.SlotBytes)
}

func (e *engine) turns(slot int) cuda.Pointer { return e.memory + cuda.Pointer(8*slot) }

// team is a stream for each slot, and what forks them from the caller's stream and
// joins them to it.
type team struct {
	capture uint64 // that its streams were last used in
	fork    cuda.Event
	lanes   []lane
}

type lane struct {
	stream cuda.Stream
	done   cuda.Event
}

// place says where the engine's memory lies in parts whose first bytes others use.
func (e *engine) place(l collective.EngineLayout, bytes uint64) {
	e.layout, e.at = l, (bytes+enginePage-1)&^(enginePage-1)
}

// equip makes what the engine needs, once parts are reached.
func (d *Comm) equip() (err error) {
	e, ctx := &d.engine, d.gpu.context
	if e.layout.Slots == 0 {
		return nil
	}
	if e.params, err = cuda.NewParams(turnBytes); err != nil {
		return err
	}
	e.turn = cuda.View[kernels.Turn](e.params)
	if e.memory, err = ctx.Alloc(e.bytes()); err != nil {
		return err
	}
	if _, err = e.hire(ctx); err != nil {
		return err
	}
	return errors.Join(ctx.Set(e.memory, 0, enginePage), ctx.Set(d.memory.peers[1-d.rank].inbox+cuda.Pointer(e.at), 0, enginePage))
}

// hire makes one more team. Its kernels go before others: they hold up a peer.
func (e *engine) hire(ctx *cuda.Context) (*team, error) {
	c := &team{}
	e.teams = append(e.teams, c)
	var err error
	if c.fork, err = ctx.NewEvent(false); err != nil {
		return nil, err
	}
	for range e.layout.Slots {
		var l lane
		if l.stream, err = ctx.NewStream(cuda.High); err == nil {
			l.done, err = ctx.NewEvent(false)
		}
		c.lanes = append(c.lanes, l)
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// team is whose streams a call uses. Streams that a capture has drawn in are part
// of it until it ends, so that other calls need others.
func (e *engine) team(ctx *cuda.Context, capturing bool, capture uint64) (*team, error) {
	if !capturing {
		return e.teams[0], nil
	}
	for _, c := range e.teams[1:] {
		if c.capture == capture {
			return c, nil
		}
	}
	for _, c := range e.teams[1:] {
		if busy, _, err := c.lanes[0].stream.Capturing(); err == nil && !busy {
			c.capture = capture
			return c, nil
		}
	}
	c, err := e.hire(ctx)
	if err == nil {
		c.capture = capture
	}
	return c, err
}

// free gives everything back, when the GPU is done with it.
func (e *engine) free(ctx *cuda.Context) error {
	err := ctx.Enter()
	if err != nil {
		return err
	}
	defer ctx.Leave()
	for _, c := range e.teams {
		if c.fork != 0 {
			err = errors.Join(err, c.fork.Destroy())
		}
		for _, l := range c.lanes {
			if l.stream != 0 {
				err = errors.Join(err, l.stream.Destroy())
			}
			if l.done != 0 {
				err = errors.Join(err, l.done.Destroy())
			}
		}
	}
	e.teams = nil
	if e.memory != 0 {
		err = errors.Join(err, ctx.Free(e.memory))
	}
	if e.params != nil {
		err = errors.Join(err, e.params.Free())
	}
	e.memory, e.params, e.turn = 0, nil, nil
	return err
}

// engineKernel ends the turns of a call.
func engineKernel(typ fmt.Stringer, reduces bool) kernel {
	if !reduces {
		return kernel{module: "engine", name: "engine_part"}
	}
	return kernel{module: fmt.Sprint("engine_", typ), name: fmt.Sprint("engine_reduce_", typ)}
}

// piece goes through the pieces of a message.
type piece struct {
	at, bytes   uint64
	total, most uint64
	number      int // from 1
}

func (p *piece) next() bool {
	p.at += p.bytes
	p.number++
	p.bytes = collective.NextPiece(p.at, p.total, p.most)
	return p.bytes > 0
}

// of is how much of the piece a message has that may be the shorter one.
func (p *piece) of(message uint64) uint64 {
	return min(p.bytes, message-min(message, p.at))
}

// carry puts a call that copy engines carry into s.
func (d *Comm) carry(p *plan, part *cuda.Function, s cuda.Stream, capturing bool) (err error) {
	e := &d.engine
	if e.meet == nil {
		if e.meet, err = d.gpu.function("engine", "engine_meet"); err != nil {
			return err
		}
	}
	c, err := e.team(d.gpu.context, capturing, d.order.capture)
	if err != nil {
		return err
	}
	if err = d.put(p, c, part, s); err != nil && !capturing {
		d.condemn(failf(codeOf(err), "%v: %v (some of it has begun)", p.about, err))
	}
	return err
}

// put puts the pieces of a call into the streams of a team. Their order is one in
// which all of it could be done one after the other, on both ranks, should the GPU
// have no queue to spare.
func (d *Comm) put(p *plan, c *team, part *cuda.Function, s cuda.Stream) (err error) {
	e, x := &d.engine, p.exchange
	if err = s.Record(c.fork); err != nil {
		return err
	}
	peer := &x.Peers[0]
	*e.turn = kernels.Turn{
		State: x.State, Control: x.Control, Deadline: x.Deadline, Sequence: x.Sequence,
		Rank: x.Rank, Ranks: x.Ranks, Peer: peer.Rank, Op: x.Op,
	}
	total := max(peer.SendBytes, peer.RecvBytes)
	if p.reduces {
		total = max(peer.SendBytes, x.OwnBytes)
	} else if from, to := x.In+x.OwnIn, x.Out+x.OwnOut; from != to && x.OwnBytes > 0 {
		if err = s.Copy(cuda.Pointer(to), cuda.Pointer(from), x.OwnBytes); err != nil {
			return err
		}
	}
	out := piece{total: total, most: uint64(p.choice.Piece)}
	in := out
	ahead := 0
	for {
		for ahead < len(c.lanes) && out.next() {
			if err = d.send(p, c, &out); err != nil {
				return err
			}
			ahead++
		}
		if !in.next() {
			break
		}
		if err = d.receive(p, c, part, &in); err != nil {
			return err
		}
		ahead--
	}
	for _, l := range c.lanes[:min(in.number-1, len(c.lanes))] {
		if err = l.stream.Record(l.done); err == nil {
			err = s.WaitEvent(l.done)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// send copies a piece to the peer's slot, which is empty by then.
func (d *Comm) send(p *plan, c *team, piece *piece) error {
	slot := (piece.number - 1) % len(c.lanes)
	stream := c.lanes[slot].stream
	if piece.number <= len(c.lanes) {
		if err := stream.WaitEvent(c.fork); err != nil {
			return err
		}
	}
	x, peer := p.exchange, &p.exchange.Peers[0]
	bytes := piece.of(peer.SendBytes)
	if bytes == 0 {
		return nil
	}
	return stream.Copy(d.engine.slot(cuda.Pointer(peer.Outbox), slot), cuda.Pointer(x.In+peer.SendAt+piece.at), bytes)
}

// receive waits for the peer's piece and copies it out of this rank's slot.
func (d *Comm) receive(p *plan, c *team, part *cuda.Function, piece *piece) error {
	e, x, peer, t := &d.engine, p.exchange, &p.exchange.Peers[0], d.engine.turn
	slot := (piece.number - 1) % len(c.lanes)
	stream := c.lanes[slot].stream
	t.Outbox, t.Inbox = uint64(e.counters(cuda.Pointer(peer.Outbox), slot)), uint64(e.counters(cuda.Pointer(peer.Inbox), slot))
	t.Turns, t.Piece = uint64(e.turns(slot)), uint64(piece.number)
	if err := stream.Launch(e.meet, 1, 32, 0, e.params); err != nil {
		return err
	}
	to, bytes := cuda.Pointer(x.Out+peer.RecvAt+piece.at), piece.of(peer.RecvBytes)
	blocks, threads := uint32(1), uint32(32)
	if p.reduces {
		to, bytes = e.staged(slot), piece.of(x.OwnBytes)
		t.Own, t.Come, t.Out, t.Bytes = x.In+x.OwnIn+piece.at, uint64(to), x.Out+x.OwnOut+piece.at, bytes
		blocks, threads = uint32(p.choice.Blocks), uint32(p.choice.Threads)
	}
	if bytes > 0 {
		if err := stream.Copy(to, e.slot(cuda.Pointer(peer.Inbox), slot), bytes); err != nil {
			return err
		}
	}
	return stream.Launch(part, blocks, threads, 0, e.params)
}
