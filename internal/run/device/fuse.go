package device

import (
	"fmt"

	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// flow is what goes between this rank and a peer, in bytes of In and Out.
type flow struct{ send, recv, gather extent }

// extent is a run of bytes of a buffer.
type extent struct{ at, bytes uint64 }

// fusion is a schedule as one kernel carries it out: every peer is sent its
// part of In; then either what peers send is copied to Out, or it is reduced
// with the own term, and where the result is published, the results of the
// peers are gathered.
type fusion struct {
	ownIn, ownOut extent // the own term and the result, or what is only copied
	peers         []flow // by rank
	reduces       bool   // any rank does
	publishes     bool
	longest       uint64 // message between any two ranks
}

// scheduled is a schedule as it is for all ranks.
type scheduled struct {
	name     string
	chunks   int
	programs []schedule.Program // by rank
}

func newScheduled(a schedule.Algorithm, ranks, root int) *scheduled {
	s := &scheduled{name: a.Name, chunks: a.Chunks(ranks)}
	for r := range ranks {
		s.programs = append(s.programs, a.Program(ranks, r, root))
	}
	return s
}

// fuse reads the programs of a schedule as the kernels carry them out. It fails
// where they do not: there is a Partial, a rank reduces what is not all inputs
// in rank order, or a step waits for one that the kernel does later.
func fuse(s *scheduled, call *communicator.Call, rank int) (fusion, error) {
	ranks, chunks, programs := len(s.programs), s.chunks, s.programs
	f := fusion{peers: make([]flow, ranks)}
	size := uint64(call.Type.Size())
	at := func(chunk int) (in, out extent) {
		i, o := call.Chunk(chunk, chunks, ranks, rank)
		return extent{uint64(i.At) * size, uint64(i.Len) * size}, extent{uint64(o.At) * size, uint64(o.Len) * size}
	}
	for r := range programs {
		for _, step := range programs[r] {
			f.reduces = f.reduces || step.Kind == schedule.Reduce
			f.publishes = f.publishes || step.Kind == schedule.Send && step.Value == schedule.Output
		}
	}
	done := 0 // the stage of the kernel that the steps have come to
	for i, step := range programs[rank] {
		in, out := at(step.Chunk)
		stage, ok := 0, true
		switch step.Kind {
		case schedule.Send:
			if step.Value == schedule.Output {
				stage, ok = 2, step.Peer == schedule.Everyone && out == f.ownOut
				break
			}
			ok = step.Value == schedule.Input
			for p := range f.peers {
				if p != rank && (p == step.Peer || step.Peer == schedule.Everyone) {
					ok = ok && put(&f.peers[p].send, in)
				}
			}
		case schedule.Copy:
			stage = done
			ok = !f.reduces && put(&f.ownIn, in) && put(&f.ownOut, out)
		case schedule.Reduce:
			stage = 1
			ok = step.Value == schedule.Output && inputsInRankOrder(step.From, ranks) && put(&f.ownIn, in) && put(&f.ownOut, out)
		case schedule.Recv:
			stage = 3
			to := &f.peers[step.Peer].recv
			if sent(programs[step.Peer], step.Chunk, rank) == schedule.Output {
				to = &f.peers[step.Peer].gather
			}
			ok = put(to, out)
		}
		if !ok || stage < done {
			return f, fmt.Errorf("%v by %s: rank %d of %d: no kernel carries out step %d (%v)", call.Collective, s.name, rank, ranks, i+1, step.Kind)
		}
		done = stage
	}
	if call.SendCounts == nil {
		for chunk := range chunks {
			in, out := at(chunk)
			f.longest = max(f.longest, in.bytes, out.bytes)
		}
	}
	return f, nil
}

// rings reports whether a program sends to one rank alone, and takes from one.
func rings(p schedule.Program, to, from int) bool {
	for _, step := range p {
		switch step.Kind {
		case schedule.Send:
			if step.Peer != to {
				return false
			}
		case schedule.Recv:
			if step.Peer != from || step.Shared {
				return false
			}
		case schedule.Reduce:
			if len(step.From) != 2 || step.From[0].Rank != from {
				return false
			}
		}
	}
	return true
}

// put fills an extent that is not in use yet.
func put(to *extent, e extent) bool {
	free := *to == extent{}
	*to = e
	return free
}

// sent is the value that a program sends of a chunk to a reader.
func sent(p schedule.Program, chunk, reader int) schedule.Value {
	for _, step := range p {
		if step.Kind == schedule.Send && step.Chunk == chunk && (step.Peer == reader || step.Peer == schedule.Everyone) {
			return step.Value
		}
	}
	return schedule.Partial
}

func inputsInRankOrder(from []schedule.Source, ranks int) bool {
	for r, s := range from {
		if s.Rank != r || s.Value != schedule.Input {
			return false
		}
	}
	return len(from) == ranks
}
