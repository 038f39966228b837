// Package ringlane lets the processes of one machine perform collectives over
// shared memory: AllReduce and its family, and point-to-point messages.
//
// A program is started once for every rank, by `ringlane run` or by torchrun,
// and each rank joins:
//
//	c, err := ringlane.Join(ringlane.Config{})
//	if err != nil { … }
//	defer c.Close()
//	err = ringlane.AllReduce(c, gradients, gradients, ringlane.Avg)
//
// Every rank makes the same calls in the same order, with the same sizes, types
// and operators. A rank that does not, does not come, or dies is named in the
// error of the others, within the deadline or within a second of its death; the
// communicator has then failed on all of them. Errors are told apart by
// errors.Is with the Code constants.
//
// All ranks receive the same bits. f16 and bf16 are accumulated in float32.
package ringlane

import (
	"fmt"
	"time"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
	"ringlane/internal/run/telemetry"
)

// Config says who this rank is and how it meets the others. The zero Config
// takes all of it from the environment: RINGLANE_RANK, RINGLANE_SIZE,
// RINGLANE_JOB and RINGLANE_RENDEZVOUS, which `ringlane run` sets, or RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun sets.
type Config struct {
	// Rank is this rank's number, from 0, among Size ranks.
	Rank, Size int
	// Job names the communicator: the same on all its ranks, and no other's.
	Job string
	// Rendezvous is a directory of mode 0700 in which the ranks meet; by
	// default one below the temporary directory, which is removed after that.
	Rendezvous string
	// Timeout is the deadline of the join and of every collective, 60 s if 0.
	// RINGLANE_TIMEOUT wins over it.
	Timeout time.Duration
	// Staging bounds the shared memory of this rank in bytes, 16 MiB if 0.
	// RINGLANE_STAGING wins over it.
	Staging int
}

// Comm is this rank's part of a communicator. One collective at a time may be
// under way in it: a second goroutine's fails with Busy.
type Comm struct{ c *communicator.Comm }

// Join meets the other ranks and returns when all have come, or an error that
// names those that have not.
func Join(cfg Config) (*Comm, error) {
	inner := communicator.Config{
		Rank: cfg.Rank, Size: cfg.Size, Job: cfg.Job, Rendezvous: cfg.Rendezvous,
		Timeout: cfg.Timeout, Staging: cfg.Staging,
	}
	var err error
	if cfg.Size == 0 && cfg.Job == "" {
		inner, err = communicator.FromProcess()
	} else {
		err = communicator.Overrides(&inner)
	}
	if err != nil {
		return nil, err
	}
	c, err := communicator.Join(inner)
	if err != nil {
		return nil, err
	}
	return &Comm{c}, nil
}

// Rank is this rank's number, from 0.
func (c *Comm) Rank() int { return c.c.Rank() }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.c.Size() }

// Group makes a communicator of the listed ranks, numbered in the order of the
// list. Every listed rank calls it with the same list; the others need not.
func (c *Comm) Group(ranks ...int) (*Comm, error) {
	g, err := c.c.Group(ranks)
	if err != nil {
		return nil, err
	}
	return &Comm{g}, nil
}

// Latency sums up the calls of one collective: how many, their bytes and
// seconds, and the percentiles of their latency in microseconds.
type Latency = telemetry.Latency

// Stats are the latencies of this rank's collectives since the join.
func (c *Comm) Stats() []Latency { return c.c.Stats() }

// Abort fails every pending and later call of every rank; why goes into their
// errors.
func (c *Comm) Abort(why string) { c.c.Abort(why) }

// Close leaves the communicator. Other ranks complete their calls without it.
func (c *Comm) Close() error { return c.c.Close() }

// Alloc returns n zeroed elements in a window of this process: other ranks read
// them where they lie, so that collectives on them copy less. They serve every
// communicator and stay, unseen by the garbage collector, until Free.
func Alloc[T Element](n int) ([]T, error) {
	if n < 0 || n > 1<<56 {
		return nil, &communicator.Error{Code: Argument, Text: fmt.Sprintf("alloc: %d elements are not possible", n)}
	}
	var zero [1]T
	b, err := communicator.Alloc(n * len(reduce.Bytes(zero[:])))
	if err != nil {
		return nil, err
	}
	return reduce.View[T](b), nil
}

// Free gives a slice from Alloc back. No operation may be under way on it.
func Free[T Element](s []T) error { return communicator.Free(reduce.Bytes(s)) }

// F16 and BF16 are elements of 16 bits, as their bit patterns.
type (
	F16  uint16 // IEEE 754 binary16
	BF16 uint16 // the upper half of an IEEE 754 binary32
)

// Element is a type that collectives work on.
type Element interface {
	float32 | float64 | F16 | BF16 | int8 | uint8 | int32 | int64
}

// Op is a reduction operator.
type Op = dtype.Op

// The operators. Integers wrap; Avg of integers truncates toward zero. Min and
// Max propagate NaN.
const (
	Sum  = dtype.Sum
	Avg  = dtype.Avg
	Min  = dtype.Min
	Max  = dtype.Max
	Prod = dtype.Prod
)

// Code classifies an error: errors.Is(err, ringlane.Timeout).
type Code = communicator.Code

// The classes.
const (
	Argument = communicator.Argument // the caller's arguments do not fit
	Timeout  = communicator.Timeout  // a deadline passed
	Dead     = communicator.Dead     // a rank's process ended
	Mismatch = communicator.Mismatch // ranks disagree about a call
	Closed   = communicator.Closed   // the communicator was closed
	Busy     = communicator.Busy     // another goroutine is inside a collective
	Memory   = communicator.Memory   // the machine does not grant the memory
	System   = communicator.System   // the operating system refused something
)

// AnySource as the source of a Recv takes a message from whichever rank sends
// one with that tag first.
const AnySource = communicator.AnySource

func typeOf[T Element]() dtype.Type {
	switch any(*new(T)).(type) {
	case float32:
		return dtype.F32
	case float64:
		return dtype.F64
	case F16:
		return dtype.F16
	case BF16:
		return dtype.BF16
	case int8:
		return dtype.I8
	case uint8:
		return dtype.U8
	case int32:
		return dtype.I32
	}
	return dtype.I64
}

// perform makes a call whose Count is count. Buffers that the call uses must
// have just the length that follows from it: a longer one is a mistake.
func perform[T Element](c *Comm, k schedule.Collective, in, out []T, count int, op Op, root int) error {
	// Field by field: a literal is made elsewhere and copied, and the processor has to
	// wait for what it has just written in smaller pieces (9 ns).
	var call communicator.Call
	call.Collective, call.Type, call.Op, call.Root, call.Count = k, typeOf[T](), op, root, count
	call.In, call.Out = reduce.Bytes(in), reduce.Bytes(out)
	n, m, err := c.c.Lengths(&call)
	if err != nil {
		return err
	}
	if n > 0 && len(in) != n || m > 0 && len(out) != m {
		refused := call // so that a call that fits stays on the stack
		return &communicator.Error{Code: Argument, Text: fmt.Sprintf("%v: slices of %d and %d elements, %d and %d are needed", &refused, len(in), len(out), n, m)}
	}
	return c.c.Do(&call)
}

// AllReduce leaves the reduction of every rank's in in every rank's out, which
// may be in itself. Both have the same length on all ranks.
func AllReduce[T Element](c *Comm, in, out []T, op Op) error {
	return perform(c, schedule.AllReduce, in, out, len(in), op, 0)
}

// Reduce leaves the reduction of every rank's in in the root's out, which may
// be in itself; the other ranks' out is not used.
func Reduce[T Element](c *Comm, in, out []T, op Op, root int) error {
	return perform(c, schedule.Reduction, in, out, len(in), op, root)
}

// ReduceScatter leaves part r of the reduction of every rank's in in out of
// rank r. in is as long as the outs of all ranks together.
func ReduceScatter[T Element](c *Comm, in, out []T, op Op) error {
	return perform(c, schedule.ReduceScatter, in, out, len(out), op, 0)
}

// AllGather leaves every rank's in side by side, in the order of ranks, in
// every rank's out.
func AllGather[T Element](c *Comm, in, out []T) error {
	return perform(c, schedule.AllGather, in, out, len(in), Sum, 0)
}

// Broadcast leaves the root's data in every rank's.
func Broadcast[T Element](c *Comm, data []T, root int) error {
	return perform(c, schedule.Broadcast, data, data, len(data), Sum, root)
}

// Gather leaves every rank's in side by side, in the order of ranks, in the
// root's out; the other ranks' out is not used.
func Gather[T Element](c *Comm, in, out []T, root int) error {
	return perform(c, schedule.Gather, in, out, len(in), Sum, root)
}

// Scatter leaves part r of the root's in, which the other ranks do not use, in
// out of rank r.
func Scatter[T Element](c *Comm, in, out []T, root int) error {
	return perform(c, schedule.Scatter, in, out, len(out), Sum, root)
}

// AllToAll leaves part r of rank s's in as part s of rank r's out. Both have
// one part of equal length for each rank.
func AllToAll[T Element](c *Comm, in, out []T) error {
	return perform(c, schedule.AllToAll, in, out, len(in)/c.Size(), Sum, 0)
}

// Send sends data to rank dst and returns when data may be used again.
func Send[T Element](c *Comm, data []T, dst, tag int) error {
	return c.c.Send(reduce.Bytes(data), typeOf[T](), dst, tag)
}

// Recv receives the next message with tag from rank src, or from AnySource, and
// returns its sender. The message must be as long as data.
func Recv[T Element](c *Comm, data []T, src, tag int) (from int, err error) {
	return c.c.Recv(reduce.Bytes(data), typeOf[T](), src, tag)
}

// Barrier returns when every rank has called it.
func (c *Comm) Barrier() error {
	return c.c.Do(&communicator.Call{Collective: schedule.Barrier})
}
