// Package benchmark times collectives in the terms of nccl-tests and verifies
// every size against exact arithmetic.
package benchmark

import (
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
	"ringlane/internal/run/device"
)

// Options say what to measure.
type Options struct {
	Collective schedule.Collective
	Type       dtype.Type
	Op         dtype.Op
	Sizes      []int // bytes, as nccl-tests counts them (see Row)
	Iterations int   // timed calls a size; 0 fits them into half a second
	InPlace    bool  // input and output share their memory, where the collective has such a form
	Window     bool  // buffers lie in a window
	Eager      bool  // GPUs: each call is timed by itself, not in a graph
}

// Row is the result of one size.
//
// Bytes is the message as nccl-tests counts it: the buffer of an allreduce,
// broadcast, reduce or sendrecv, and the larger of the two buffers otherwise,
// rounded to whole elements a rank. AlgBW is Bytes a second of the median call,
// BusBW that times the factor that makes it comparable with a link's speed.
// Times are of the slowest rank in each call.
type Row struct {
	Bytes      int     `json:"bytes"`
	Count      int     `json:"count"` // elements a rank passes
	Algorithm  string  `json:"algo"`
	Protocol   string  `json:"protocol"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	P999       float64 `json:"p999_us"`
	AlgBW      float64 `json:"algbw_gbs"`
	BusBW      float64 `json:"busbw_gbs"`
	Wrong      int64   `json:"wrong"` // elements that differ from exact arithmetic, over all ranks
	Iterations int     `json:"iterations"`

	// On GPUs: what a call takes of each, and how many calls are timed at once,
	// in a graph; 1 of eager calls.
	Blocks  int `json:"blocks,omitempty"` // as many multiprocessors, at most
	Threads int `json:"threads,omitempty"`
	Calls   int `json:"calls_at_once,omitempty"`
}

// Setup describes the communicator that was measured.
type Setup struct {
	StagingBytes int  `json:"staging_bytes"` // shared memory a rank
	HugePages    bool `json:"huge_pages"`
	SegmentBytes int  `json:"segment_bytes"` // of bulk channels

	// Of buffers in the memory of GPUs: the GPU of each rank, how they reach each
	// other, the ranks in the order of the ring, and the islands, if there are
	// several.
	GPUs    []string      `json:"gpus,omitempty"`
	Paths   []device.Path `json:"paths,omitempty"`
	Ring    []int         `json:"ring,omitempty"`
	Islands string        `json:"islands,omitempty"`
}

// Describe says what c was measured with.
func Describe(c *communicator.Comm) Setup {
	bytes, huge := c.Staging()
	return Setup{StagingBytes: bytes, HugePages: huge, SegmentBytes: c.Segment()}
}

const (
	budget        = 500 * time.Millisecond
	mostTimed     = 20000
	fewestTimed   = 5
	warmUps       = 5
	warmUpSeconds = 0.05
)

// Measure runs every size on this rank and hands each row to emit on rank 0.
// All ranks call it with the same options.
func Measure(c *communicator.Comm, o Options, emit func(Row) error) error {
	for _, size := range o.Sizes {
		row, err := measureSize(c, o, size)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := emit(row); err != nil {
				return err
			}
		}
	}
	return nil
}

func measureSize(c *communicator.Comm, o Options, size int) (Row, error) {
	b, err := newBench(c, o, size)
	var row Row
	if err == nil {
		row, err = b.run()
	}
	return row, errors.Join(err, b.free())
}

type bench struct {
	*communicator.Comm
	Options
	call communicator.Call
	row  Row
	lent [][]byte // buffers in a window
}

func newBench(c *communicator.Comm, o Options, size int) (*bench, error) {
	b := &bench{Comm: c, Options: o}
	element, parts := o.Type.Size(), parts(o.Collective, c.Size())
	count := max(size/(element*parts), 1)
	if o.Collective == schedule.Barrier {
		count, parts, element = 0, 0, 0
	}
	b.row = Row{Bytes: count * element * parts, Count: count}
	b.call = communicator.Call{Collective: o.Collective, Type: o.Type, Op: o.Op, Count: count}
	if o.Collective == schedule.SendRecv {
		b.row.Algorithm, b.row.Protocol = "direct", "simple"
		return b, b.buffers(count*element, count*element)
	}
	in, out, _ := c.Lengths(&b.call) // every count above is in range
	choice := c.Route(b.call)
	b.row.Algorithm, b.row.Protocol = choice.Algorithm, choice.Protocol
	return b, b.buffers(in*element, out*element)
}

// parts is how many times a rank's share fits its larger buffer.
func parts(c schedule.Collective, ranks int) int {
	switch c {
	case schedule.ReduceScatter, schedule.AllGather, schedule.Gather, schedule.Scatter, schedule.AllToAll:
		return ranks
	}
	return 1
}

// buffers makes the input and the output of the call.
func (b *bench) buffers(in, out int) error {
	if !b.InPlace || b.Collective == schedule.AllToAll || b.Collective == schedule.SendRecv {
		var err, also error
		b.call.In, err = b.memory(in)
		b.call.Out, also = b.memory(out)
		return errors.Join(err, also)
	}
	all, err := b.memory(max(in, out))
	if err != nil {
		return err
	}
	own := min(in, out)
	switch {
	case in == out:
		b.call.In, b.call.Out = all, all
	case in < out: // allgather, gather: this rank's place in the output
		b.call.In, b.call.Out = all[b.Rank()*own:][:in], all
	default:
		b.call.In, b.call.Out = all, all[b.Rank()*own:][:out]
	}
	return nil
}

func (b *bench) memory(size int) ([]byte, error) {
	if !b.Window {
		return make([]byte, size), nil
	}
	m, err := communicator.Alloc(size)
	if err == nil {
		b.lent = append(b.lent, m)
	}
	return m, err
}

// free gives buffers in a window back.
func (b *bench) free() (err error) {
	for _, m := range b.lent {
		err = errors.Join(err, communicator.Free(m))
	}
	b.lent = nil
	return err
}

// perform makes one call.
func (b *bench) perform() error {
	if b.Collective != schedule.SendRecv {
		return b.Do(&b.call)
	}
	n := b.Size()
	if n == 1 {
		copy(b.call.Out, b.call.In)
		return nil
	}
	r, err := b.StartSend(b.call.In, b.Type, (b.Rank()+1)%n, 0)
	if err != nil {
		return err
	}
	if _, err := b.Recv(b.call.Out, b.Type, (b.Rank()+n-1)%n, 0); err != nil {
		return err
	}
	return r.Wait(0)
}

func (b *bench) run() (Row, error) {
	if err := b.verify(); err != nil {
		return Row{}, err
	}
	iterations, err := b.warmUp()
	if err != nil {
		return Row{}, err
	}
	times := make([]float64, iterations) // nanoseconds
	barrier := communicator.Call{Collective: schedule.Barrier}
	for i := range times {
		if err := b.Do(&barrier); err != nil {
			return Row{}, err
		}
		start := time.Now()
		if err := b.perform(); err != nil {
			return Row{}, err
		}
		times[i] = float64(time.Since(start))
	}
	slowest := make([]float64, iterations)
	if err := b.Do(&communicator.Call{
		Collective: schedule.AllReduce, Type: dtype.F64, Op: dtype.Max, Count: iterations,
		In: reduce.Bytes(times), Out: reduce.Bytes(slowest),
	}); err != nil {
		return Row{}, err
	}
	b.row.Iterations = iterations
	b.summarise(slowest)
	return b.row, nil
}

// warmUp brings buffers, pages and caches into the state of a long run, and
// settles how many calls fit the budget; rank 0 decides for all.
func (b *bench) warmUp() (iterations int, err error) {
	start, calls := time.Now(), 0
	verdict := make([]int64, 1)
	decide := func(v int64) (int64, error) {
		verdict[0] = v
		err := b.Do(&communicator.Call{Collective: schedule.Broadcast, Type: dtype.I64, Count: 1, In: reduce.Bytes(verdict), Out: reduce.Bytes(verdict)})
		return verdict[0], err
	}
	for {
		for range warmUps {
			if err := b.perform(); err != nil {
				return 0, err
			}
		}
		calls += warmUps
		spent := time.Since(start)
		n := int64(0)
		switch {
		case b.Iterations > 0:
			n = int64(b.Iterations)
		case spent.Seconds() > warmUpSeconds || calls > mostTimed:
			n = max(min(int64(float64(budget)/float64(spent)*float64(calls)), mostTimed), fewestTimed)
		}
		if n, err = decide(n); err != nil || n > 0 {
			return int(n), err
		}
	}
}

func (b *bench) summarise(ns []float64) {
	h := hdrhistogram.New(1, int64(time.Hour), 3)
	for _, v := range ns {
		_ = h.RecordValue(min(max(int64(v), 1), int64(time.Hour))) // in range
	}
	us := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e3 }
	b.row.P50, b.row.P99, b.row.P999 = us(50), us(99), us(99.9)
	b.row.AlgBW = float64(b.row.Bytes) / (b.row.P50 * 1e3)
	b.row.BusBW = b.row.AlgBW * busFactor(b.Collective, b.Size())
}

// busFactor is nccl-tests' ratio of bus to algorithm bandwidth (its
// doc/PERFORMANCE.md): the bytes that must cross a rank's link for each byte of
// the message, counted one way.
func busFactor(c schedule.Collective, ranks int) float64 {
	n := float64(ranks)
	switch c {
	case schedule.AllReduce:
		return 2 * (n - 1) / n
	case schedule.ReduceScatter, schedule.AllGather, schedule.Gather, schedule.Scatter, schedule.AllToAll:
		return (n - 1) / n
	}
	return 1
}

// verify makes one call on known data and counts what differs from exact
// arithmetic on any rank.
func (b *bench) verify() error {
	if b.Collective == schedule.Barrier {
		return b.perform()
	}
	p := pattern{collective: b.Collective, op: b.Op, ranks: b.Size()}
	clear(b.call.Out)
	fill(b.Type, b.call.In, func(i int) float64 { return p.input(b.Rank(), i) })
	if err := b.perform(); err != nil {
		return err
	}
	wrong := []int64{0}
	want := p.output(b.Rank(), b.call.Count)
	wrong[0] = count(b.Type, b.call.Out, want)
	if err := b.Do(&communicator.Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: 1, In: reduce.Bytes(wrong), Out: reduce.Bytes(wrong)}); err != nil {
		return fmt.Errorf("cannot sum up the errors: %w", err)
	}
	b.row.Wrong = wrong[0]
	return nil
}
