package device

import (
	"errors"
	"fmt"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/run/communicator"
)

// path is the way from one rank to another.
func (d *Comm) path(from, to int) *Path { return &d.paths[from*d.size+to] }

// view is what a rank finds of its ways to the others, by rank.
type view struct {
	Paths []Path `json:"paths"`
	Kinds []Kind `json:"kinds"`
	Lines []int  `json:"lines"` // that arrive together
}

// choosePaths finds for each pair of ranks the best way that works both ways.
// Pairs that are left with Host have no memory in common yet. It returns how
// many bytes arrive together on every other way.
func (d *Comm) choosePaths(judged []judgement, offers []offer) (line int, err error) {
	mine := view{Paths: make([]Path, d.size), Kinds: make([]Kind, d.size), Lines: make([]int, d.size)}
	for p, j := range judged {
		mine.Paths[p] = Path{From: d.rank, To: p}
		if p == d.rank {
			mine.Kinds[p] = Same
			continue
		}
		err := j.err
		if err == nil {
			mine.Kinds[p], mine.Lines[p] = j.kind, j.line
			err = d.reach(p, offers[p])
		}
		if err != nil {
			mine.Kinds[p], mine.Paths[p].Why = Host, err.Error()
		}
	}
	if err := d.settle(mine); err != nil {
		return 0, err
	}
	var tries []Candidate
	for p := range d.size {
		if p != d.rank && d.path(d.rank, p).Kind != Host {
			tries = append(tries, d.candidate(p, d.memory.window.Size()/uint64(d.size-1)))
		}
	}
	return d.try(mine, tries)
}

func (d *Comm) candidate(peer int, bytes uint64) Candidate {
	r := &d.memory.peers[peer]
	return Candidate{peer, d.path(d.rank, peer).Kind, r.outbox, r.inbox, bytes}
}

// judgement is what is expected of the way to a peer before it is tried.
type judgement struct {
	kind Kind
	line int   // bytes that arrive together
	err  error // why there is only Host
}

// judge judges the ways to all ranks. It reports whether any leads straight to
// the memory of a peer.
func (d *Comm) judge() (all []judgement, straight bool) {
	all = make([]judgement, d.size)
	for p := range all {
		if p != d.rank {
			all[p].kind, all[p].line, all[p].err = d.judgeOne(p)
			straight = straight || all[p].err == nil
		}
	}
	return all, straight
}

func (d *Comm) judgeOne(peer int) (Kind, int, error) {
	me, them := &d.members[d.rank], &d.members[peer]
	if d.sameGPU(d.rank, peer) {
		return Same, 128, nil
	}
	if d.options.P2P == P2POff {
		return Host, 0, errors.New("RINGLANE_P2P is off")
	}
	if me.MIG || them.MIG {
		return Host, 0, errors.New("a MIG instance has no peers")
	}
	driver, err := cuda.Open()
	if err != nil {
		return Host, 0, err
	}
	for _, g := range driver.Devices() {
		if g.UUID != them.UUID {
			continue
		}
		ok, err := d.gpu.device.CanAccess(g)
		if err != nil {
			return Host, 0, err
		}
		if !ok {
			why := cause(me.Address, them.Address)
			if why == "" {
				why = " (ringlane doctor looks for the reason)"
			}
			return Host, 0, fmt.Errorf("the driver says that %v cannot reach %v%s", d.gpu.device, g, why)
		}
		// Atomics are what NVLink carries and PCIe in general does not.
		line := 16
		if link, err := d.gpu.device.Link(g); err == nil && link.Atomics {
			line = 128
		}
		return Peer, line, nil
	}
	return Host, 0, fmt.Errorf("the driver does not show this process %v of rank %d (let CUDA_VISIBLE_DEVICES name all GPUs of the job on every rank)", them, peer)
}

// settle makes all ranks know all views, and gives each pair the worse of the
// kinds that its two ranks see.
func (d *Comm) settle(mine view) error {
	views, err := agree(d.comm, mine, nil)
	if err != nil {
		return err
	}
	d.paths = make([]Path, 0, d.size*d.size)
	for from := range views {
		for to := range views {
			p := views[from].Paths[to]
			p.Kind = min(views[from].Kinds[to], views[to].Kinds[from])
			if p.Kind == Host && p.Why == "" {
				p.Why = fmt.Sprintf("the other way: %s", views[to].Paths[from].Why)
			}
			if p.Kind == Host && d.options.P2P == P2POn {
				return failf(communicator.System, "join: RINGLANE_P2P is on, and rank %d with %v cannot reach rank %d with %v: %s (set it to auto to stage through host memory)",
					from, &d.members[from], to, &d.members[to], p.Why)
			}
			d.paths = append(d.paths, p)
		}
	}
	for p := range d.size {
		if d.path(d.rank, p).Kind == Host {
			if err := d.unreach(p); err != nil {
				return failf(communicator.System, "join: give up the memory of rank %d: %v", p, err)
			}
		}
	}
	return nil
}

// try has the prober look at candidates, vetoes pairs and keeps what was
// measured. It returns how many bytes arrive together on all that are left, of
// all ranks; 128 where there are none.
func (d *Comm) try(mine view, tries []Candidate) (int, error) {
	verdicts, failure := probe(d, tries)
	for i, v := range verdicts {
		p := tries[i].Rank
		path := &mine.Paths[p]
		path.Push, path.Pull, path.Latency = v.Push, v.Pull, v.Latency
		if v.Line != 0 { // many that came whole are no promise where none is expected
			mine.Lines[p] = min(mine.Lines[p], v.Line)
		}
		if v.Veto != "" {
			mine.Kinds[p], path.Why = Host, v.Veto
		}
	}
	if _, err := agree(d.comm, struct{}{}, failure); err != nil {
		return 0, err
	}
	if err := d.settle(mine); err != nil {
		return 0, err
	}
	line := 128
	for p := range d.size {
		if p != d.rank && mine.Kinds[p] != Host {
			line = min(line, mine.Lines[p])
		}
	}
	lines, err := agree(d.comm, line, nil)
	for _, l := range lines {
		line = min(line, l)
	}
	return line, err
}

// reachHosts connects the pairs that meet in host memory, whose parts lie at
// places by reader and writer. It returns how many bytes arrive together there,
// 0 where there are no such pairs.
func (d *Comm) reachHosts(places [][]int, bytes uint64) (line int, err error) {
	var tries []Candidate
	any := false
	for _, p := range d.paths {
		any = any || p.Kind == Host
	}
	for p := range d.size {
		if p == d.rank || d.path(d.rank, p).Kind != Host || err != nil {
			continue
		}
		if err = d.reachHost(p, places[p][d.rank], bytes); err == nil {
			tries = append(tries, d.candidate(p, bytes))
		}
	}
	if _, err := agree(d.comm, struct{}{}, err); err != nil || !any {
		return 0, err
	}
	verdicts, err := probe(d, tries)
	line = 64 // what a processor's caches keep together
	vetoes := ""
	for i, v := range verdicts {
		if v.Veto != "" {
			vetoes = fmt.Sprintf("host memory that it shares with rank %d: %s", tries[i].Rank, v.Veto)
		}
		if v.Line == 0 {
			v.Line = 16
		}
		line = min(line, v.Line)
		path := d.path(d.rank, tries[i].Rank)
		path.Push, path.Pull, path.Latency = v.Push, v.Pull, v.Latency
	}
	if err == nil && vetoes != "" {
		err = errors.New(vetoes)
	}
	found, err := agree(d.comm, measured{line, d.paths[d.rank*d.size:][:d.size]}, err)
	if err != nil {
		return 0, err
	}
	for r, f := range found {
		line = min(line, f.Line)
		copy(d.paths[r*d.size:], f.Paths)
	}
	return line, nil
}

// measured is what a rank says of the ways through host memory.
type measured struct {
	Line  int    `json:"line"`
	Paths []Path `json:"paths"` // from it, by rank
}
