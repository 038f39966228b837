package device

import (
	"errors"
	"fmt"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/logic/collective"
)

// engine carries bulk between two ranks by copy engines, through slots in each other's
// host memory. What a call takes is in engine.cuh: three streams, of copies to the peer,
// of copies from it with a kernel of one thread before each, which waits, and of sums.
type engine struct {
	layout collective.EngineLayout
	at     uint64       // where its flags and slots begin in a part
	memory cuda.Pointer // of the GPU: the word that flags are set to, until this rank fails, then room for what has come through each slot
	teams  []*team      // the first is never captured
	params *cuda.Params
	turn   *kernels.Turn // what params holds
	wait   *cuda.Function
	turns  []turn // of the call that is put
}

// enginePage is what flags take in a part, and the word on the GPU.
const enginePage = 4096

// bytes is what the engine's flags and slots take, in a part or on the GPU.
func (e *engine) bytes() uint64 {
	if e.layout.Slots == 0 {
		return 0
	}
	return enginePage + uint64(e.layout.Slots*e.layout.SlotBytes)
}

// flags is where the flags of slots lie in a part, and slot where that of a turn does.
func (e *engine) flags(part cuda.Pointer) cuda.Pointer { return part + cuda.Pointer(e.at) }

func (e *engine) slot(part cuda.Pointer, turn int) cuda.Pointer {
	return e.flags(part) + enginePage + cuda.Pointer(turn%e.layout.Slots*e.layout.SlotBytes)
}

// staged is where a piece waits to be reduced.
func (e *engine) staged(turn int) cuda.Pointer {
	return e.memory + enginePage + cuda.Pointer(turn%e.layout.Slots*e.layout.SlotBytes)
}

// number is how kernels know the slot of a turn; there is none before the first turn.
func (e *engine) number(turn int) uint32 {
	if turn < 0 {
		return 0
	}
	return uint32(turn%e.layout.Slots) + 1
}

// heard is how many turns before the one that is waited for the slot is that is to be
// empty by then too: its rank says so in its wait of the turn in between.
const heard = 2

// ahead is by how many turns copies to the peer are ahead of those from it.
func (e *engine) ahead() int { return e.layout.Slots - heard }

// team is the streams of a call. With more streams than a process has queues, eight if it
// does not ask for more, a sum would hold up what it should run beside.
type team struct {
	capture                 uint64                  // that its streams were last used in
	streams                 [inSums + 1]cuda.Stream // outward, inward, inSums
	fork                    [1]cuda.Event           // from the caller's stream
	joins                   [inSums + 1]cuda.Event  // and back to it
	waited, copied, reduced []cuda.Event            // the last turn of a slot: its wait is over, its piece has come, and is reduced
}

const (
	outward = iota
	inward
	inSums
)

func (c *team) events() [5][]cuda.Event {
	return [...][]cuda.Event{c.fork[:], c.joins[:], c.waited, c.copied, c.reduced}
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
	return errors.Join(ctx.Set(e.memory, 0, enginePage), ctx.Set(e.memory, kernels.FlagSet, 1),
		ctx.Set(e.flags(d.memory.peers[1-d.rank].inbox), 0, enginePage))
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
	for _, events := range []*[]cuda.Event{&c.waited, &c.copied, &c.reduced} {
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

// cut lists the turns of a call. A result goes half as many turns behind its piece as
// there are slots, or more, so that it has been reduced when its turn has come.
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
		if !results || pieces-shown < lead && at < total {
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
		Word: uint64(e.memory), Slots: uint32(e.layout.Slots),
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
	if err = s.Record(c.fork[0]); err != nil {
		return err
	}
	for _, stream := range c.streams {
		if err = stream.WaitEvent(c.fork[0]); err != nil {
			return err
		}
	}
	e.cut(total, uint64(p.choice.Piece), x.Publish != 0)
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
	for k := range heard {
		if err = d.await(c, len(e.turns)+k); err != nil {
			return err
		}
	}
	for i, stream := range c.streams {
		if err = stream.Record(c.joins[i]); err == nil {
			err = s.WaitEvent(c.joins[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// send copies the piece of a turn to the peer's slot, and then the word that says so.
func (d *Comm) send(p *plan, c *team, number int) error {
	e, x, peer, t := &d.engine, p.exchange, &p.exchange.Peers[0], &d.engine.turns[number]
	out := c.streams[outward]
	if number >= e.layout.Slots { // the slot is empty when the wait of a later turn is over
		if err := out.WaitEvent(c.waited[(number+heard)%e.layout.Slots]); err != nil {
			return err
		}
	}
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
	flag := e.flags(part) + cuda.Pointer(number%e.layout.Slots*kernels.FlagBytes)
	return out.Copy(flag, e.memory, 8)
}

// await puts the wait before a turn's piece is copied from its slot: for the piece, and
// for the peer to have emptied an earlier slot. Waits behind the last turn are for slots
// that are left.
func (d *Comm) await(c *team, number int) error {
	e, t := &d.engine, d.engine.turn
	turns := len(e.turns)
	t.Turn, t.Piece = uint64(number), 0
	t.Emptied, t.Full, t.Empty = e.number(number-1), 0, e.number(number-heard)
	if number < turns {
		t.Full, t.Piece = e.number(number), uint64(e.turns[number].piece)
	}
	if number > turns {
		t.Emptied = 0
	}
	return c.streams[inward].Launch(e.wait, 1, 32, 0, e.params)
}

// receive waits for the peer's piece and copies it out of this rank's slot: to where it
// is reduced, or to where it stays.
func (d *Comm) receive(p *plan, c *team, reduce *cuda.Function, number int) error {
	e, x, peer, t := &d.engine, p.exchange, &p.exchange.Peers[0], &d.engine.turns[number]
	slot, in, sums := number%e.layout.Slots, c.streams[inward], c.streams[inSums]
	if err := d.await(c, number); err != nil {
		return err
	}
	if err := in.Record(c.waited[slot]); err != nil {
		return err
	}
	to, bytes := cuda.Pointer(x.Out+peer.RecvAt+t.at), t.of(peer.RecvBytes)
	reduces := p.reduces && !t.result
	switch {
	case t.result:
		to, bytes = cuda.Pointer(x.Out+peer.GatherAt+t.at), t.of(peer.GatherBytes)
	case reduces:
		to, bytes = e.staged(number), t.of(x.OwnBytes)
	}
	// The result of what was staged there has been with the peer, or it is waited for.
	if before := number - e.layout.Slots; reduces && before >= 0 && !e.turns[before].result {
		if err := in.WaitEvent(c.reduced[slot]); err != nil {
			return err
		}
	}
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
