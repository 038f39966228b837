package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

const (
	probeBlocks  = 4         // a peer
	probeThreads = 256       // a block, at most
	probeArea    = 512 << 10 // bytes at most that are written and verified, each way

	arrival      = 100 * time.Millisecond // for what a kernel has written that has ended
	answer       = 5 * time.Second        // of another rank's kernel
	stuck        = 15 * time.Second       // beyond which a kernel does not end any more
	stressTime   = 15 * time.Millisecond  // of sending lines to and fro
	enoughLines  = 100000                 // to believe that none is ever torn
	pings        = 100
	measureBytes = 4 << 20 // at most, that are written over and over
	measureTime  = 400 * time.Microsecond
	mostPasses   = 256
)

// Steps of a probe, as flags count them.
const (
	stepCheck  = 1 // and two more
	stepStress = 4
	stepPing   = 5
)

// errStuck is a kernel that does not end: no clock that it reads ends an access
// to memory that is never answered.
var errStuck = errors.New("a kernel that uses it does not end")

// prober tries the ways of one rank to others. What fails is kept, and nothing
// more is started then, but the rank goes on meeting the others.
type prober struct {
	*Comm
	functions map[string]*cuda.Function
	stream    cuda.Stream
	start     cuda.Event
	end       cuda.Event
	params    *cuda.Params
	seen      cuda.Pointer // a kernels.Seen for each warp of each way
	area      uint64       // bytes that are written and verified
	warps     int          // that work on a way
	ways      []Candidate
	found     []Verdict
	failure   error
	stuck     bool
}

// tryAll is the Prober that writes, reads and verifies, one way, the other and both
// at once, and measures. What it measures is rounded to three digits.
func tryAll(d *Comm, candidates []Candidate) ([]Verdict, error) {
	p := &prober{Comm: d, ways: candidates, found: make([]Verdict, len(candidates))}
	p.warps = probeBlocks * p.threads(probeThreads) / 32
	p.do(p.prepare)
	for _, step := range []func() error{p.seed, p.check, p.exclude, p.stress, p.measure} {
		if err := step(); err != nil { // of the communicator: nobody meets any more
			return p.found, errors.Join(err, p.free())
		}
	}
	return p.found, errors.Join(p.failure, p.free())
}

// do does what others do not wait for.
func (p *prober) do(what func() error) {
	if p.failure == nil && len(p.ways) > 0 {
		p.failure = what()
	}
}

func (p *prober) prepare() (err error) {
	p.functions = map[string]*cuda.Function{}
	for _, name := range []string{"offer", "check", "stress", "ping", "push", "pull"} {
		if p.functions[name], err = p.gpu.function("probe", "probe_"+name); err != nil {
			return err
		}
	}
	context := p.gpu.context
	if p.stream, err = context.NewStream(cuda.High); err != nil {
		return err
	}
	if p.start, err = context.NewEvent(true); err != nil {
		return err
	}
	if p.end, err = context.NewEvent(true); err != nil {
		return err
	}
	if p.params, err = cuda.NewParams(binary.Size(kernels.Probe{})); err != nil {
		return err
	}
	bytes := uint64(len(p.ways) * p.warps * binary.Size(kernels.Seen{}))
	if p.seen, err = context.Alloc(bytes); err != nil {
		return err
	}
	return context.Set(p.seen, 0, bytes)
}

// seed settles what is written, and how much of it.
func (p *prober) seed() error {
	// The smallest numbers of all ranks. The seed is one that no probe before has
	// used: what another has left behind is never taken for what should arrive.
	agreed := []int64{rand.Int64(), probeArea}
	for _, w := range p.ways {
		step, flags := int64(p.warps*kernels.RowBytes), uint64(p.warps+1)*kernels.ProbeFlag
		agreed[1] = min(agreed[1], int64(w.Bytes-flags)/2/step*step)
	}
	if err := p.comm.Do(&communicator.Call{Collective: schedule.AllReduce, Type: dtype.I64, Op: dtype.Min, Count: len(agreed), In: reduce.Bytes(agreed), Out: reduce.Bytes(agreed)}); err != nil {
		return err
	}
	p.area = uint64(agreed[1])
	p.do(func() error {
		v := p.view()
		v.Results, v.Deadline, v.Budget = uint64(p.seen), uint64(arrival), uint64(stressTime)
		v.Area, v.Count, v.Blocks = p.area, uint32(len(p.ways)), probeBlocks
		for i, w := range p.ways {
			between := func(from, to int) uint64 { return uint64(agreed[0]) ^ uint64(from+1)<<40 ^ uint64(to+1)<<48 }
			v.Ways[i] = kernels.Way{
				Outbox: uint64(w.Outbox), Inbox: uint64(w.Inbox),
				SeedOut: between(p.rank, w.Rank), SeedIn: between(w.Rank, p.rank),
				First: number(p.rank < w.Rank),
			}
		}
		return nil
	})
	return nil
}

// threads is how many threads of a block all GPUs can run, most at most.
func (p *prober) threads(most int) int {
	for r := range p.members {
		most = min(most, p.members[r].Threads)
	}
	return most / 32 * 32
}

// view is what kernels are told.
func (p *prober) view() *kernels.Probe { return cuda.View[kernels.Probe](p.params) }

func number(yes bool) uint32 {
	if yes {
		return 1
	}
	return 0
}

func (p *prober) free() error {
	if p.stuck { // to free would wait for the kernel
		return nil
	}
	var err error
	if p.seen != 0 {
		err = p.gpu.context.Free(p.seen)
	}
	if p.params != nil {
		err = errors.Join(err, p.params.Free())
	}
	if e := p.gpu.context.Enter(); e != nil {
		return errors.Join(err, e)
	}
	defer p.gpu.context.Leave()
	if p.start != 0 {
		err = errors.Join(err, p.start.Destroy())
	}
	if p.end != 0 {
		err = errors.Join(err, p.end.Destroy())
	}
	if p.stream != 0 {
		err = errors.Join(err, p.stream.Destroy())
	}
	return err
}

// launch puts a kernel into the stream that works on all ways.
func (p *prober) launch(name string, step, turns uint32) error {
	v := p.view()
	v.Step, v.Turns = step, turns
	return p.functions[name].Launch(uint32(len(p.ways)*probeBlocks), uint32(p.threads(probeThreads)), 0, p.stream, p.params)
}

// wait waits for the stream, but not for a kernel that never ends.
func (p *prober) wait() error {
	if err := p.gpu.context.Enter(); err != nil {
		return err
	}
	defer p.gpu.context.Leave()
	limit := time.Now().Add(stuck)
	for polls := 0; ; polls++ {
		done, err := p.stream.Query()
		switch {
		case err != nil || done:
			return err
		case time.Now().After(limit):
			return errStuck
		case polls > 100: // the processor may be needed elsewhere
			sys.Nap(20 * time.Microsecond)
		}
	}
}

func (p *prober) barrier() error {
	return p.comm.Do(&communicator.Call{Collective: schedule.Barrier})
}

// read gives what the warps of a way saw.
func (p *prober) read(way int) ([]kernels.Seen, error) {
	seen := make([]kernels.Seen, p.warps)
	bytes := make([]byte, binary.Size(seen))
	if err := p.gpu.context.CopyFrom(bytes, p.seen+cuda.Pointer(way*len(bytes))); err != nil {
		return nil, err
	}
	_, err := binary.Decode(bytes, binary.LittleEndian, seen)
	return seen, err
}

// check has all ways verified: one way, the other way, both at once.
func (p *prober) check() error {
	p.do(func() error {
		if err := p.launch("offer", 0, 0); err != nil {
			return err
		}
		return p.wait()
	})
	for i, turns := range []uint32{
		kernels.FirstPushes, kernels.SecondVerifies,
		kernels.SecondPushes, kernels.FirstVerifies,
		kernels.FirstPushes | kernels.SecondPushes, kernels.FirstVerifies | kernels.SecondVerifies,
	} {
		// All that has been pushed is there, and verified.
		if err := p.barrier(); err != nil {
			return err
		}
		p.do(func() error {
			step := stepCheck + uint32(i/2)
			if err := p.launch("check", step, turns); err != nil {
				return err
			}
			return p.judgeAll(step, p.checked)
		})
	}
	return nil
}

// judgeAll waits for what was launched and has each way judged. Where a kernel
// is stuck, the ways whose warps have not come to the last step are to blame.
func (p *prober) judgeAll(last uint32, judge func(way int, seen []kernels.Seen)) error {
	err := p.wait()
	if err != nil && !errors.Is(err, errStuck) {
		return err
	}
	for i := range p.ways {
		if p.view().Ways[i].Skip != 0 || p.found[i].Veto != "" {
			continue
		}
		seen, e := p.read(i)
		if e != nil {
			return e
		}
		judge(i, seen)
		for _, s := range seen {
			if err != nil && s.Done != last && s.Late == 0 {
				p.found[i].Veto = err.Error()
			}
		}
	}
	if err == nil {
		return nil
	}
	return p.unstick()
}

// unstick goes on without the stream of a kernel that does not end.
func (p *prober) unstick() (err error) {
	p.stuck = true
	p.stream, err = p.gpu.context.NewStream(cuda.High)
	return err
}

// checked says what the check of a way came to.
func (p *prober) checked(way int, seen []kernels.Seen) {
	var pushed, pulled uint64
	late := false
	var sample kernels.Seen
	for _, s := range seen {
		pushed, pulled, late = pushed+s.PushedWrong, pulled+s.PulledWrong, late || s.Late != 0
		if s.PushedWrong+s.PulledWrong > 0 {
			sample = s
		}
	}
	word := fmt.Sprintf("word %d is %#x and was written as %#x", sample.WrongAt, sample.WrongIs, sample.WrongWas)
	f, peer := &p.found[way], p.ways[way].Rank
	switch {
	case pushed > 0:
		f.Veto = fmt.Sprintf("what rank %d writes arrives changed at rank %d: %d of %d rows, %s", peer, p.rank, pushed, p.area/kernels.RowBytes, word)
	case pulled > 0:
		f.Veto = fmt.Sprintf("what rank %d reads is not what rank %d has: %d of %d rows, %s", p.rank, peer, pulled, p.area/kernels.RowBytes, word)
	case late:
		f.Veto = fmt.Sprintf("what rank %d writes does not arrive at rank %d within %v", peer, p.rank, arrival)
	}
}

// exclude has both ends give up a way that one of them has found bad, and asks
// the doctor why it is.
func (p *prober) exclude() error {
	mine := make([]string, p.size)
	for i := range p.found {
		mine[p.ways[i].Rank] = p.found[i].Veto
	}
	all, err := agree(p.comm, mine, nil)
	if err != nil {
		return err
	}
	p.do(func() error {
		for i := range p.found {
			f, peer := &p.found[i], p.ways[i].Rank
			if f.Veto == "" {
				f.Veto = all[peer][p.rank]
			}
			if f.Veto == "" {
				continue
			}
			p.view().Ways[i].Skip = 1
			if p.ways[i].Kind == Peer {
				f.Veto += cause(p.members[p.rank].Address, p.members[peer].Address)
			}
		}
		return nil
	})
	return nil
}

// stress tells up to which length lines come whole.
func (p *prober) stress() error {
	if err := p.barrier(); err != nil {
		return err
	}
	p.do(func() error {
		v := p.view()
		v.Deadline = uint64(answer)
		before := v.Ways
		for i := range p.ways {
			if p.ways[i].Kind == Same {
				v.Ways[i].Skip = 1
			}
		}
		defer func() { v.Ways = before }()
		if err := p.launch("stress", stepStress, 0); err != nil {
			return err
		}
		return p.judgeAll(stepStress, p.stressed)
	})
	return nil
}

// stressed says which length of line is to be trusted.
func (p *prober) stressed(way int, seen []kernels.Seen) {
	var lines, torn64, torn128 uint64
	f := &p.found[way]
	for _, s := range seen {
		lines += s.Lines * (kernels.RowBytes / 128)
		torn64, torn128 = torn64+s.Torn64, torn128+s.Torn128
		if s.Late != 0 {
			f.Line = 0 // a busy host, since patterns have come: not tried
			return
		}
	}
	switch {
	case torn64 > 0:
		f.Line = 16
	case torn128 > 0:
		f.Line = 64
	case lines >= enoughLines:
		f.Line = 128
	}
}

// measure takes the pairs of ranks one after the other, so that none shares a
// link with another: a flag to and fro, what the one writes and reads, what the
// other does.
func (p *prober) measure() error {
	for first := range p.size {
		for second := first + 1; second < p.size; second++ {
			if err := p.measurePair(first, second); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *prober) measurePair(first, second int) error {
	both := func(way int) error { return p.ping(way) }
	for _, turn := range []struct {
		first, second func(way int) error
	}{{both, both}, {p.rates, nil}, {nil, p.rates}} {
		if err := p.barrier(); err != nil {
			return err
		}
		mine, peer := turn.first, second
		if p.rank == second {
			mine, peer = turn.second, first
		}
		way := slices.IndexFunc(p.ways, func(c Candidate) bool { return c.Rank == peer && c.Kind != Same })
		if p.rank != first && p.rank != second || mine == nil || way < 0 || p.found[way].Veto != "" {
			continue
		}
		p.do(func() error {
			err := mine(way)
			if errors.Is(err, errStuck) {
				p.found[way].Veto = err.Error()
				err = p.unstick()
			}
			return err
		})
	}
	return nil
}

// alone runs a kernel that works on one way.
func (p *prober) alone(name string, at int, grid, block uint32, area uint64, passes uint32) error {
	v := p.view()
	before := *v
	defer func() { *v = before }()
	v.Ways[0], v.Area, v.Passes, v.Step = v.Ways[at], area, passes, stepPing
	v.Blocks, v.Count = probeBlocks, 1
	v.Results += uint64(at * p.warps * binary.Size(kernels.Seen{}))
	return p.functions[name].Launch(grid, block, 0, p.stream, p.params)
}

// ping takes the time of a flag, as the mean of both directions.
func (p *prober) ping(way int) error {
	if err := p.alone("ping", way, 1, 32, p.area, pings); err != nil {
		return err
	}
	if err := p.wait(); err != nil {
		return err
	}
	seen, err := p.read(way)
	if err != nil {
		return err
	}
	if s := seen[0]; s.Pings > 0 {
		p.found[way].Latency = time.Duration(rounded(float64(s.Nanoseconds) / float64(s.Pings) / 2))
	}
	return nil
}

// rates takes the time of what this rank writes to the peer, and reads of it.
func (p *prober) rates(way int) (err error) {
	f := &p.found[way]
	area := min(p.ways[way].Bytes, measureBytes) &^ (kernels.RowBytes - 1)
	for _, one := range []struct {
		name string
		rate *float64
	}{{"push", &f.Push}, {"pull", &f.Pull}} {
		passes := uint32(1)
		for range 2 { // the first finds out how many passes fit
			took, err := p.timed(func() error {
				return p.alone(one.name, way, uint32(p.gpu.device.Multiprocessors), uint32(p.threads(512)), area, passes)
			})
			if err != nil {
				return err
			}
			*one.rate = rounded(float64(area) * float64(passes) / float64(max(took, 1)))
			passes = uint32(min(max(measureTime*time.Duration(passes)/max(took, 1), 1), mostPasses))
		}
	}
	return nil
}

// timed is the time that the GPU takes for what do puts into the stream.
func (p *prober) timed(do func() error) (time.Duration, error) {
	if err := p.gpu.context.Enter(); err != nil {
		return 0, err
	}
	defer p.gpu.context.Leave()
	if err := p.stream.Record(p.start); err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	if err := p.stream.Record(p.end); err != nil {
		return 0, err
	}
	if err := p.wait(); err != nil {
		return 0, err
	}
	return p.end.Since(p.start)
}

// rounded keeps three digits.
func rounded(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64) // of a number
	return v
}
