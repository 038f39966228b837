package device

import (
	"ringlane/internal/hardware/cuda"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// Exchange puts messages into s, which make progress together, and returns at
// once. What one rank sends another it receives in the same order, each with
// the same number of bytes; how they are grouped may differ. Messages keep their
// order with collectives.
func (d *Comm) Exchange(ms []Message, s cuda.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return err
	}
	for i := range ms {
		if err := d.checkMessage(&ms[i]); err != nil {
			return err
		}
	}
	if d.private == nil {
		d.private = &plan{}
	}
	p := d.private
	// A launch takes one message to and one from each peer.
	done := make([]bool, len(ms))
	for {
		if err := p.prepare(); err != nil {
			return failf(communicator.System, "send or receive: %v", err)
		}
		x := p.exchange
		p.choice = d.devices.Choose(schedule.SendRecv, dtype.U8, collective.Uneven)
		d.address(x, p.choice)
		some := false
		for r := range d.size {
			send, recv := next(ms, done, r, true), next(ms, done, r, false)
			if send == nil && recv == nil {
				continue
			}
			some = true
			// In and Out are 0, so that ranges are addresses.
			peer := d.peer(x, r, p.choice)
			if send != nil {
				peer.SendAt, peer.SendBytes = uint64(send.Buffer), send.bytes()
			}
			if recv != nil {
				peer.RecvAt, peer.RecvBytes = uint64(recv.Buffer), recv.bytes()
			}
		}
		if !some {
			return nil
		}
		p.kernel, p.fast = kernelFor(p.choice, 0, false), kernel{}
		p.about = description{about: uint64(schedule.SendRecv) << 56}
		x.Sequence = messageBit | (d.messages + 1)
		if _, err := d.launch(p, s); err != nil {
			return err
		}
		d.messages++
	}
}

// messageBit tells the numbers of launches for messages from those of
// collectives: they are a rank's own.
const messageBit = 1 << 63

// next takes the first message of ms to or from a peer that is not done.
func next(ms []Message, done []bool, peer int, send bool) *Message {
	for i := range ms {
		m := &ms[i]
		if m.Peer == peer && m.Send == send && !done[i] {
			done[i] = true
			if m.Count > 0 {
				return m
			}
		}
	}
	return nil
}

func (m *Message) bytes() uint64 { return uint64(m.Count) * uint64(m.Type.Size()) }

func (d *Comm) checkMessage(m *Message) error {
	what := "receive"
	if m.Send {
		what = "send"
	}
	switch {
	case !m.Type.Valid():
		return failf(communicator.Argument, "%s: %v is not an element type", what, m.Type)
	case m.Peer == d.rank:
		return failf(communicator.Argument, "%s: rank %d cannot exchange messages with itself", what, d.rank)
	case m.Peer < 0 || m.Peer >= d.size:
		return failf(communicator.Argument, "%s: rank %d is outside 0 to %d", what, m.Peer, d.size-1)
	case m.Count < 0 || m.Count > 1<<56:
		return failf(communicator.Argument, "%s: a count of %d elements is not possible", what, m.Count)
	}
	return d.visible(what, m.Buffer, m.bytes())
}
