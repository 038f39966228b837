package device

import (
	"errors"
	"fmt"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/logic/collective"
)

// engine carries bulk between two ranks by copy engines, through slots in each other's
// host memory. What a call takes is in engine.cuh: lanes of copies to the peer, lanes of
// copies from it, and a stream of sums.
type engine struct {
	layout collective.EngineLayout
	at     uint64       // where its flags and slots begin in a part
	memory cuda.Pointer // of the GPU: room for what has come through each slot
	teams  []*team      // the first is never captured
	params *cuda.Params
	turn   *kernels.Turn // what params holds
	wait   *cuda.Function
	turns  []turn // of the call that is put
	lanes  int    // of that call
	staged []bool // in this call a slot's room has had a piece that was to be reduced
}

// enginePage is what flags take in a part.
const enginePage = 4096

// bytes is what the engine's flags and slots take in a part.
func (e *engine) bytes() uint64 {
	if e.layout.Slots == 0 {
		return 0
	}
	return enginePage + e.staging()
}

// staging is what all slots take, in a part as on the GPU.
func (e *engine) staging() uint64 { return uint64(e.layout.Slots * e.layout.SlotBytes) }

// flags is where the flags of slots lie in a part, and slot where that of a turn does.
func (e *engine) flags(part cuda.Pointer) cuda.Pointer { return part + cuda.Pointer(e.at) }

func (e *engine) slot(part cuda.Pointer, turn int) cuda.Pointer {
	return e.flags(part) + enginePage + cuda.Pointer(turn%e.layout.Slots*e.layout.SlotBytes)
}

// room is where a piece waits to be reduced.
func (e *engine) room(turn int) cuda.Pointer {
	return e.memory + cuda.Pointer(turn%e.layout.Slots*e.layout.SlotBytes)
}

// filled and emptied are the flags for the pieces of turns from first up to end, as far as
// there are such turns.
func (e *engine) filled(first, end int) kernels.Flags {
	first, end = max(first, 0), min(end, len(e.turns))
	return kernels.Flags{First: uint32(first % e.layout.Slots), Count: uint32(max(end-first, 0))}
}

func (e *engine) emptied(first, end int) kernels.Flags {
	f := e.filled(first, end)
	f.At = kernels.FlagEmptied
	return f
}

// ahead is by how many turns copies to the peer are put ahead of those from it. The one that
// comes next in a lane needs a slot that the peer has emptied, and that says so only with its
// lane's next copy.
func (e *engine) ahead() int { return e.layout.Slots - 2*e.lanes }

// team is the streams of a call. With more streams than a process has queues, eight if it
// does not ask for more, a sum would hold up what it should run beside.
type team struct {
	capture         uint64                  // that its streams were last used in
	streams         [inSums + 1]cuda.Stream // lanes outward, lanes inward, and inSums
	fork            [1]cuda.Event           // from the caller's stream
	joins           [inSums + 1]cuda.Event  // and back to it
	copied, reduced []cuda.Event            // the last turn of a slot: its piece has come, and is reduced
}

const (
	outward = 0
	inward  = collective.EngineLanes
	inSums  = 2 * collective.EngineLanes
)

// out and in are the lanes that take a turn, and used says of a stream whether the call that
// is put uses it.
func (e *engine) out(c *team, turn int) cuda.Stream { return c.streams[outward+turn%e.lanes] }

func (e *engine) in(c *team, turn int) cuda.Stream { return c.streams[inward+turn%e.lanes] }

func (e *engine) used(stream int) bool {
	return stream == inSums || stream%collective.EngineLanes < e.lanes
}

func (c *team) events() [4][]cuda.Event {
	return [...][]cuda.Event{c.fork[:], c.joins[:], c.copied, c.reduced}
}

// place says where the engine's memory lies in parts whose first bytes others use.
func (e *engine) place(l collective.EngineLayout, bytes uint64) {
	e.layout, e.at = l, (bytes+enginePage-1)&^(enginePage-1)
	e.staged = make([]bool, l.Slots)
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
	if e.memory, err = ctx.Alloc(e.staging()); err != nil {
		return err
	}
	if _, err = e.hire(ctx); err != nil {
		return err
	}
	return ctx.Set(e.flags(d.memory.peers[1-d.rank].inbox), 0, enginePage)
}

// hire makes one more team. Its kernels go before others: they hold up a peer.
func (e *engine) hire(ctx *cuda.Context) (*team, error) {
	c := &team{}
	e.teams = append(e.teams, c)
	var err error
	for i := range c.streams {
		if c.streams[i], err = ctx.NewStream(cuda.High); err != nil {
			return nil, err
		}
	}
	for _, events := range []*[]cuda.Event{&c.copied, &c.reduced} {
		*events = make([]cuda.Event, e.layout.Slots)
	}
	for _, events := range c.events() {
		for i := range events {
			if events[i], err = ctx.NewEvent(false); err != nil {
				return nil, err
			}
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
		if busy, _, err := c.streams[outward].Capturing(); err == nil && !busy {
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
		for _, s := range c.streams {
			if s != 0 {
				err = errors.Join(err, s.Destroy())
			}
		}
		for _, events := range c.events() {
			for _, event := range events {
				if event != 0 {
					err = errors.Join(err, event.Destroy())
				}
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

// engineKernel is what reduces, or where nothing is reduced, what waits.
func engineKernel(typ fmt.Stringer, reduces bool) kernel {
	if !reduces {
		return engineWait
	}
	return kernel{module: fmt.Sprint("engine_", typ), name: fmt.Sprint("engine_reduce_", typ)}
}

var engineWait = kernel{module: "engine", name: "engine_wait"}

// turn is a piece of the message on its way: to be reduced or to stay, or in an
// AllReduce the result that came of it.
type turn struct {
	at, bytes uint64
	piece     int // from 1
	result    bool
	from      int // of a result, the turn that its piece was reduced in; else -1
}

// of is how much of the turn's piece a message has that may be the shorter one.
func (t *turn) of(message uint64) uint64 { return min(t.bytes, message-min(message, t.at)) }

// cut lists the turns of a call. A result goes so many turns behind its piece as there are
// slots, so that it has been reduced when its turn has come. The last pieces go without
// results in between: what the peer makes of them is then ready before those are sent.
func (e *engine) cut(total, most uint64, results bool) {
	e.turns = e.turns[:0]
	var at uint64
	pieces, from := 0, 0
	lead := e.layout.Slots / 2
	for shown := 0; at < total || results && shown < pieces; {
		if at < total {
			bytes := collective.NextPiece(at, total, most)
			pieces++
			e.turns = append(e.turns, turn{at: at, bytes: bytes, piece: pieces, from: -1})
			at += bytes
		}
		if !results || at < total && (pieces-shown < lead || total-at <= most) {
			continue
		}
		for e.turns[from].result {
			from++
		}
		result := e.turns[from]
		result.result, result.from = true, from
		e.turns = append(e.turns, result)
		from++
		shown++
	}
}

// carry puts a call that copy engines carry into s.
func (d *Comm) carry(p *plan, reduce *cuda.Function, s cuda.Stream, capturing bool) (err error) {
	e := &d.engine
	if e.wait == nil {
		if e.wait, err = d.gpu.function(engineWait.module, engineWait.name); err != nil {
			return err
		}
	}
	c, err := e.team(d.gpu.context, capturing, d.order.capture)
	if err != nil {
		return err
	}
	if err = d.put(p, c, reduce, s); err != nil && !capturing {
		d.condemn(failf(codeOf(err), "%v: %v (some of it has begun)", p.about, err))
	}
	return err
}

// put puts the turns of a call into the streams of a team. Their order is one in
// which all of it could be done one after the other, on both ranks, should the GPU
// have no queue to spare.
func (d *Comm) put(p *plan, c *team, reduce *cuda.Function, s cuda.Stream) (err error) {
	e, x := &d.engine, p.exchange
	peer := &x.Peers[0]
	*e.turn = kernels.Turn{
		State: x.State, Control: x.Control, Deadline: x.Deadline, Sequence: x.Sequence,
		Outbox: uint64(e.flags(cuda.Pointer(peer.Outbox))), Inbox: uint64(e.flags(cuda.Pointer(peer.Inbox))),
		Slots: uint32(e.layout.Slots), Rank: x.Rank, Ranks: x.Ranks, Peer: peer.Rank, Op: x.Op,
	}
	total := max(peer.SendBytes, peer.RecvBytes)
	if p.reduces {
		total = max(peer.SendBytes, x.OwnBytes)
	} else if from, to := x.In+x.OwnIn, x.Out+x.OwnOut; from != to && x.OwnBytes > 0 {
		if err = s.Copy(cuda.Pointer(to), cuda.Pointer(from), x.OwnBytes); err != nil {
			return err
		}
	}
	if err = s.Record(c.fork[0]); err != nil {
		return err
	}
	e.lanes = p.choice.Lanes
	for i, stream := range c.streams {
		if !e.used(i) {
			continue
		}
		if err = stream.WaitEvent(c.fork[0]); err != nil {
			return err
		}
	}
	e.cut(total, uint64(p.choice.Piece), x.Publish != 0)
	clear(e.staged)
	sent := 0
	for k := range e.turns {
		for ; sent < min(k+e.ahead(), len(e.turns)) && e.turns[sent].from < k; sent++ {
			if err = d.send(p, c, sent); err != nil {
				return err
			}
		}
		if err = d.receive(p, c, reduce, k); err != nil {
			return err
		}
	}
	return d.finish(c, s)
}

// finish joins the streams of a call, and waits until the peer has emptied the last slots.
// One kernel is all that s waits for: what comes after it has no other streams to look at.
func (d *Comm) finish(c *team, s cuda.Stream) error {
	e, last := &d.engine, c.streams[inward]
	for i, stream := range c.streams {
		if stream == last || !e.used(i) {
			continue
		}
		if err := errors.Join(stream.Record(c.joins[i]), last.WaitEvent(c.joins[i])); err != nil {
			return err
		}
	}
	turns := len(e.turns)
	return errors.Join(d.await(last, turns, e.emptied(turns-e.lanes, turns), e.emptied(turns-e.layout.Slots, turns)),
		last.Record(c.joins[inward]), s.WaitEvent(c.joins[inward]))
}

// await puts the kernel into a stream that sets flags for the peer, and waits for others.
func (d *Comm) await(s cuda.Stream, number int, says, waits kernels.Flags) error {
	e, t := &d.engine, d.engine.turn
	t.Turn, t.Piece = uint64(number), 0
	if number < len(e.turns) {
		t.Piece = uint64(e.turns[number].piece)
	}
	t.Says, t.Waits = says, waits
	return s.Launch(e.wait, 1, 32, 0, e.params)
}

// send copies the piece of a turn to the peer's slot, and says so.
func (d *Comm) send(p *plan, c *team, number int) error {
	e, x, peer, t := &d.engine, p.exchange, &p.exchange.Peers[0], &d.engine.turns[number]
	out := e.out(c, number)
	from, bytes := x.In+peer.SendAt, t.of(peer.SendBytes)
	if t.result {
		if err := out.WaitEvent(c.reduced[t.from%e.layout.Slots]); err != nil {
			return err
		}
		from, bytes = x.Out+x.OwnOut, t.of(x.OwnBytes)
	}
	part := cuda.Pointer(peer.Outbox)
	if bytes > 0 {
		if err := out.Copy(e.slot(part, number), cuda.Pointer(from+t.at), bytes); err != nil {
			return err
		}
	}
	next := number + e.lanes
	room := e.emptied(next-e.layout.Slots, next-e.layout.Slots+1)
	if next >= len(e.turns) {
		room = kernels.Flags{}
	}
	return d.await(out, next, e.filled(number, number+1), room)
}

// receive waits for the peer's piece and copies it out of this rank's slot: to where it
// is reduced, or to where it stays.
func (d *Comm) receive(p *plan, c *team, reduce *cuda.Function, number int) error {
	e, x, peer, t := &d.engine, p.exchange, &p.exchange.Peers[0], &d.engine.turns[number]
	slot, in, sums := number%e.layout.Slots, e.in(c, number), c.streams[inSums]
	if err := d.await(in, number, e.emptied(number-e.lanes, number-e.lanes+1), e.filled(number, number+1)); err != nil {
		return err
	}
	to, bytes := cuda.Pointer(x.Out+peer.RecvAt+t.at), t.of(peer.RecvBytes)
	reduces := p.reduces && !t.result
	switch {
	case t.result:
		to, bytes = cuda.Pointer(x.Out+peer.GatherAt+t.at), t.of(peer.GatherBytes)
	case reduces:
		to, bytes = e.room(number), t.of(x.OwnBytes)
	}
	if reduces && e.staged[slot] {
		if err := in.WaitEvent(c.reduced[slot]); err != nil {
			return err
		}
	}
	e.staged[slot] = e.staged[slot] || reduces
	if bytes > 0 {
		if err := in.Copy(to, e.slot(cuda.Pointer(peer.Inbox), number), bytes); err != nil {
			return err
		}
	}
	if !reduces {
		return nil
	}
	if turn := e.turn; bytes > 0 {
		if err := errors.Join(in.Record(c.copied[slot]), sums.WaitEvent(c.copied[slot])); err != nil {
			return err
		}
		turn.Own, turn.Come, turn.Out, turn.Bytes = x.In+x.OwnIn+t.at, uint64(to), x.Out+x.OwnOut+t.at, bytes
		if err := sums.Launch(reduce, uint32(p.choice.Blocks), uint32(p.choice.Threads), 0, e.params); err != nil {
			return err
		}
	}
	return sums.Record(c.reduced[slot])
}
