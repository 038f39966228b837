package benchmark

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
	"ringlane/internal/run/device"
)

const (
	replayCalls   = 20  // in a graph
	smallCalls    = 100 // in one of small messages: they hide that a graph takes a while to start
	small         = 256 << 10
	fewestReplays = 10
	mostReplays   = 1000
	unsettled     = 2 // the first replays: they wait for the host, or for the other ranks
)

// DescribeDevice says what d was measured with; gpus are those of the ranks.
func DescribeDevice(d *device.Comm, gpus []string) Setup {
	return Setup{GPUs: gpus, Paths: d.Paths(), Ring: d.Ring(), Islands: d.Islands()}
}

// MeasureDevice is Measure for buffers in the memory of GPUs. Calls are timed by
// the GPUs: graphs of 20 calls or more, one replay right behind the other, the
// mean of a replay's calls; or with Eager each call by itself. The slowest rank
// of each counts.
func MeasureDevice(d *device.Comm, c *communicator.Comm, o Options, emit func(Row) error) error {
	stream, err := d.Context().NewStream(cuda.Normal)
	if err != nil {
		return err
	}
	b := &deviceBench{Comm: d, host: c, Options: o, stream: stream}
	for _, size := range o.Sizes {
		if err = errors.Join(b.measure(size), b.free()); err != nil {
			break
		}
		if c.Rank() == 0 {
			if err = emit(b.row); err != nil {
				break
			}
		}
	}
	return errors.Join(err, b.inside(stream.Destroy))
}

// deviceBench measures one size after the other.
type deviceBench struct {
	*device.Comm
	host *communicator.Comm
	Options
	stream cuda.Stream

	row     Row
	call    device.Call
	in, out int // bytes
	memory  []cuda.Pointer
}

// inside runs do in the GPU's context.
func (b *deviceBench) inside(do func() error) error {
	if err := b.Context().Enter(); err != nil {
		return err
	}
	defer b.Context().Leave()
	return do()
}

// prepare makes the call for a size, and its buffers.
func (b *deviceBench) prepare(size int) error {
	element, parts := b.Type.Size(), parts(b.Collective, b.Size())
	count := max(size/(element*parts), 1)
	if b.Collective == schedule.Barrier {
		count, parts, element = 0, 0, 0
	}
	b.row = Row{Bytes: count * element * parts, Count: count}
	b.call = device.Call{Collective: b.Collective, Type: b.Type, Op: b.Op, Count: count}
	in, out := count, count
	if b.Collective != schedule.SendRecv {
		in, out, _ = b.host.Lengths(&communicator.Call{Collective: b.Collective, Type: b.Type, Op: b.Op, Count: count})
		b.describe()
	} else {
		b.row.Algorithm, b.row.Protocol = "direct", "auto"
	}
	b.in, b.out = in*element, out*element
	return b.buffers()
}

func (b *deviceBench) measure(size int) error {
	if err := b.prepare(size); err != nil {
		return err
	}
	wrong, err := b.verify(b.perform)
	if err != nil {
		return err
	}
	times, err := b.time()
	if err != nil {
		return err
	}
	if !b.Eager {
		more, err := b.verifyReplay()
		if err != nil {
			return err
		}
		wrong += more
	}
	b.row.Wrong = wrong
	summary := bench{Comm: b.host, Options: b.Options, row: b.row}
	summary.summarise(times)
	b.row = summary.row
	return nil
}

func (b *deviceBench) describe() {
	choice := b.Describe(b.call)
	b.row.Algorithm, b.row.Protocol = choice.Algorithm, choice.Protocol()
	b.row.Blocks, b.row.Threads = choice.Blocks, choice.Threads
}

// buffers makes the input and the output of the call.
func (b *deviceBench) buffers() error {
	alloc := func(bytes int) (cuda.Pointer, error) {
		p, err := b.Context().Alloc(uint64(max(bytes, 1)))
		if err == nil {
			b.memory = append(b.memory, p)
		}
		return p, err
	}
	var err error
	if !b.InPlace || b.Collective == schedule.AllToAll || b.Collective == schedule.SendRecv {
		if b.call.In, err = alloc(b.in); err == nil {
			b.call.Out, err = alloc(b.out)
		}
		return err
	}
	all, err := alloc(max(b.in, b.out))
	b.call.In, b.call.Out = all, all
	own := cuda.Pointer(b.Rank() * min(b.in, b.out))
	switch {
	case b.in < b.out: // allgather, gather: this rank's place in the output
		b.call.In += own
	case b.in > b.out:
		b.call.Out += own
	}
	return err
}

func (b *deviceBench) free() (err error) {
	for _, p := range b.memory {
		err = errors.Join(err, b.Context().Free(p))
	}
	b.memory = nil
	return err
}

// perform puts one call into the stream.
func (b *deviceBench) perform() error {
	if b.Collective != schedule.SendRecv {
		return b.Enqueue(b.call, b.stream)
	}
	n := b.Size()
	message := func(send bool, peer int, at cuda.Pointer) device.Message {
		return device.Message{Send: send, Peer: peer, Type: b.Type, Count: b.call.Count, Buffer: at}
	}
	return b.Exchange([]device.Message{
		message(true, (b.Rank()+1)%n, b.call.In), message(false, (b.Rank()+n-1)%n, b.call.Out),
	}, b.stream)
}

// verify has known data go through do, and counts what differs from exact
// arithmetic on any rank.
func (b *deviceBench) verify(do func() error) (int64, error) {
	p := pattern{collective: b.Collective, op: b.Op, ranks: b.Size()}
	if b.Collective != schedule.Barrier {
		if err := b.Context().Set(b.call.Out, 0, uint64(b.out)); err != nil {
			return 0, err
		}
		data := make([]byte, b.in)
		spread(b.Type, data, func(part []byte, first int) int64 {
			fill(b.Type, part, func(i int) float64 { return p.input(b.Rank(), first+i) })
			return 0
		})
		if err := b.Context().CopyTo(b.call.In, data); err != nil {
			return 0, err
		}
		if err := b.barrier(); err != nil { // in place, a peer may write where another still fills
			return 0, err
		}
	}
	if err := do(); err != nil {
		return 0, err
	}
	if err := b.Synchronize(b.stream); err != nil || b.Collective == schedule.Barrier {
		return 0, err
	}
	data := make([]byte, b.out)
	if err := b.Context().CopyFrom(data, b.call.Out); err != nil {
		return 0, err
	}
	want := p.output(b.Rank(), b.call.Count)
	wrong := []int64{spread(b.Type, data, func(part []byte, first int) int64 {
		return count(b.Type, part, func(i int) float64 { return want(first + i) })
	})}
	if err := b.host.Do(&communicator.Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: 1, In: reduce.Bytes(wrong), Out: reduce.Bytes(wrong)}); err != nil {
		return 0, fmt.Errorf("cannot sum up the errors: %w", err)
	}
	return wrong[0], nil
}

// spread has all cores work on parts of data; each is told which element is its
// first. It sums up what they return.
func spread(t dtype.Type, data []byte, work func(part []byte, first int) int64) (sum int64) {
	size := t.Size()
	n := len(data) / size
	each := max((n+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0), 1<<16)
	var mu sync.Mutex
	var parts sync.WaitGroup
	for first := 0; first < n; first += each {
		parts.Go(func() {
			got := work(data[first*size:min(first+each, n)*size], first)
			mu.Lock()
			sum += got
			mu.Unlock()
		})
	}
	parts.Wait()
	return sum
}

func (b *deviceBench) barrier() error {
	return b.host.Do(&communicator.Call{Collective: schedule.Barrier})
}

// graph captures calls of the collective.
func (b *deviceBench) graph(calls int) (x *cuda.Exec, err error) {
	err = b.inside(func() error {
		if err := b.stream.BeginCapture(); err != nil {
			return err
		}
		var failed error
		for range calls {
			if failed = b.perform(); failed != nil {
				break
			}
		}
		g, err := b.stream.EndCapture()
		if err = errors.Join(failed, err); err != nil {
			return err
		}
		x, err = g.Instantiate()
		return errors.Join(err, g.Destroy())
	})
	return x, err
}

// verifyReplay verifies a graph of one call, replayed twice.
func (b *deviceBench) verifyReplay() (wrong int64, err error) {
	x, err := b.graph(1)
	if err != nil {
		return 0, err
	}
	for range 2 {
		more, err := b.verify(func() error { return b.inside(func() error { return x.Launch(b.stream) }) })
		if err != nil {
			return 0, err
		}
		wrong += more
	}
	return wrong, b.inside(x.Destroy)
}

// callsAtOnce is how many calls a graph has whose replays are timed.
func (b *deviceBench) callsAtOnce() int {
	if b.row.Bytes <= small {
		return smallCalls
	}
	return replayCalls
}

// time returns the nanoseconds of a call, of each replay or each eager call, on
// the slowest rank.
func (b *deviceBench) time() ([]float64, error) {
	run, calls := b.perform, 1
	if !b.Eager {
		calls = b.callsAtOnce()
		x, err := b.graph(calls)
		if err != nil {
			return nil, err
		}
		defer func() { _ = b.inside(x.Destroy) }()
		run = func() error { return x.Launch(b.stream) }
	}
	b.row.Calls = calls
	times, err := b.timed(run, 3) // warms up, and tells how many fit the budget
	if err != nil {
		return nil, err
	}
	runs := int(max(min(float64(budget)/times[len(times)-1], mostReplays), fewestReplays))
	if b.Iterations > 0 {
		runs = (b.Iterations + calls - 1) / calls
	}
	if times, err = b.timed(run, runs+unsettled); err != nil {
		return nil, err
	}
	times = times[unsettled:]
	b.row.Iterations = len(times) * calls
	for i := range times {
		times[i] /= float64(calls)
	}
	return times, nil
}

// timed has the GPU take the time of each of n runs, put into the stream one
// behind the other, and returns those of the slowest rank, in nanoseconds.
func (b *deviceBench) timed(run func() error, n int) ([]float64, error) {
	times := make([]float64, n)
	events := make([]cuda.Event, n+1)
	var err error
	for i := range events {
		if events[i], err = b.Context().NewEvent(true); err != nil {
			return nil, err
		}
	}
	defer func() {
		_ = b.inside(func() error {
			for _, e := range events {
				_ = e.Destroy()
			}
			return nil
		})
	}()
	if err := b.barrier(); err != nil {
		return nil, err
	}
	if err := b.inside(func() error {
		for i, e := range events {
			if i > 0 {
				if err := run(); err != nil {
					return err
				}
			}
			if err := b.stream.Record(e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := b.Synchronize(b.stream); err != nil {
		return nil, err
	}
	if err := b.inside(func() error {
		for i := range times {
			took, err := events[i+1].Since(events[i])
			if err != nil {
				return err
			}
			times[i] = float64(max(took, time.Nanosecond))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	slowest := make([]float64, n)
	err = b.host.Do(&communicator.Call{
		Collective: schedule.AllReduce, Type: dtype.F64, Op: dtype.Max, Count: n,
		In: reduce.Bytes(times), Out: reduce.Bytes(slowest),
	})
	return slowest, err
}
