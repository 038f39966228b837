package device

import (
	"fmt"
	"strings"
	"time"

	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/run/communicator"
)

// explain tells the story of a wait that a kernel has given up.
func (d *Comm) explain(f *kernels.Fault) *communicator.Error {
	call, collective := d.called(f.Sequence)
	if collective {
		if err := d.disagreement(f.Sequence); err != nil {
			return err
		}
	}
	peer := int(f.Peer)
	if peer >= d.size {
		return failf(communicator.System, "%s: a kernel waited for rank %d of %d (is the memory of %v in order?)", call, peer, d.size, d.gpu.device)
	}
	text := fmt.Sprintf("%s: %s waited %v for %s over %s: %s", call, d.who(d.rank),
		time.Duration(f.Waited).Round(time.Millisecond), d.who(peer), d.wayFrom(peer), d.owed(f))
	for _, s := range d.suspects(f, collective) {
		text += "; " + s
	}
	if d.path(peer, d.rank).Kind != Same {
		text += health(d.members[d.rank].Address, d.members[peer].Address)
	}
	return failf(communicator.Timeout, "%s (raise RINGLANE_TIMEOUT if that rank is only slow)", text)
}

// called names a launch by its sequence.
func (d *Comm) called(sequence uint64) (name string, collective bool) {
	if sequence&messageBit != 0 {
		return fmt.Sprintf("send or receive (#%d of this rank)", sequence&^messageBit), false
	}
	if about, ok := d.own(sequence); ok {
		return fmt.Sprintf("%v (collective #%d on GPUs)", about, sequence), true
	}
	return fmt.Sprintf("collective #%d on GPUs", sequence), true
}

// own is what this rank enqueued as collective number sequence: lately, or into
// a graph.
func (d *Comm) own(sequence uint64) (description, bool) {
	if about, ok := d.captured.Load(sequence); ok {
		return about.(description), true
	}
	return d.memory.peers[d.rank].board.described(sequence)
}

// who names a rank, its process and its GPU.
func (d *Comm) who(rank int) string {
	return fmt.Sprintf("%s on %v", d.comm.Who(rank), &d.members[rank])
}

func (d *Comm) wayFrom(peer int) string {
	switch p := d.path(peer, d.rank); p.Kind {
	case Same:
		return "memory of the GPU that they share"
	case Peer:
		return "the peer path"
	default:
		return fmt.Sprintf("host memory (%s)", p.Why)
	}
}

// owed says what the peer has not done.
func (d *Comm) owed(f *kernels.Fault) string {
	switch f.Place {
	case kernels.AtLine:
		return fmt.Sprintf("exchange %d has not come, chunk %d (a row of lines), block %d", f.Step, f.Chunk, f.Block)
	case kernels.AtRow:
		return fmt.Sprintf("chunk %d (a row) has not come, block %d", f.Chunk, f.Block)
	case kernels.AtHead:
		return fmt.Sprintf("slot %d has not come, block %d", f.Step+1, f.Block)
	case kernels.AtCredit:
		return fmt.Sprintf("it has not emptied slot %d, block %d", f.Step+1, f.Block)
	case kernels.AtPiece:
		return fmt.Sprintf("piece %d of its message has not come, turn %d of the call", f.Chunk, f.Step+1)
	case kernels.AtRoom:
		return fmt.Sprintf("it has not copied an earlier piece away, turn %d of the call", f.Step+1)
	}
	return fmt.Sprintf("at place %d", f.Place)
}

// suspects are the ranks that something is wrong with: those that have not made
// the call, and those whose process is not running.
func (d *Comm) suspects(f *kernels.Fault, collective bool) (list []string) {
	for p := range d.size {
		if p == d.rank {
			continue
		}
		entered := d.memory.peers[p].board.entered()
		state := ""
		if m := d.comm.Member(p); m.Host == d.comm.Member(d.rank).Host {
			state = sys.ProcessState(m.PID)
		}
		switch {
		case d.comm.Left(p):
			list = append(list, fmt.Sprintf("rank %d has ended or closed the communicator, after %d collectives on GPUs", p, entered))
		case collective && entered < f.Sequence && entered > 0:
			list = append(list, fmt.Sprintf("%s has not enqueued it (its last is #%d)", d.comm.Who(p), entered))
		case collective && entered == 0:
			list = append(list, fmt.Sprintf("%s has not enqueued any", d.comm.Who(p)))
		case p != int(f.Peer) && strings.HasPrefix(state, "stopped"):
			list = append(list, fmt.Sprintf("%s does not run", d.comm.Who(p)))
		}
	}
	return list
}

// compare looks whether ranks disagree about a call that they have made lately,
// which kernels may bring to an end all the same, with results that are wrong;
// or have left while this rank waits for them.
func (d *Comm) compare() *communicator.Error {
	own := d.memory.peers[d.rank].board
	last := own.entered()
	for p := range d.size {
		if p != d.rank && own.left(p) {
			if n := d.memory.peers[p].board.entered(); n < last {
				name, _ := d.called(n + 1)
				return failf(communicator.Closed, "%s: %s has closed the communicator on GPUs after %d collectives, without this one (all ranks must make the same calls)", name, d.comm.Who(p), n)
			}
		}
	}
	for sequence := last - min(last, compared); sequence < last; sequence++ {
		if err := d.disagreement(sequence + 1); err != nil {
			return err
		}
	}
	return nil
}

// compared is how many calls compare looks at.
const compared = 16

// disagreement compares what ranks say of a collective.
func (d *Comm) disagreement(sequence uint64) *communicator.Error {
	ours, ok := d.own(sequence)
	for p := range d.size {
		theirs, known := d.memory.peers[p].board.described(sequence)
		if ok && known && ours != theirs {
			return failf(communicator.Mismatch, "collective #%d on GPUs: ranks disagree: rank %d calls %v, rank %d calls %v (all ranks must make the same calls in the same order)",
				sequence, d.rank, ours, p, theirs)
		}
	}
	return nil
}
