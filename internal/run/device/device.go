// Package device runs collectives on GPUs: on memory of the GPUs, by kernels that
// write straight into memory of their peers, in the order of the caller's
// streams. Its ranks are those of a communicator, which carries what they say to
// each other and whose fate they share.
//
// A call is one kernel, or copies by copy engines with kernels in between. What it
// sends, reduces and receives is taken from the schedule that it fuses; the kernels
// are in hardware/cuda/kernels.
package device

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/logic/collective"
	"ringlane/internal/run/communicator"
)

// Comm is this rank's part of a communicator on GPUs. Calls are carried out in
// the order in which they are enqueued, on whatever streams, and that order must
// be the same on all ranks; messages keep their order between two ranks. It may
// be used from several goroutines.
type Comm struct {
	comm       *communicator.Comm
	rank, size int
	gpu        *gpu
	options    Options
	members    []member // by rank
	paths      []Path
	devices    collective.Devices
	geometry   kernels.Geometry
	memory     memory
	engine     engine
	ending     *communicator.Ending
	watch      watch
	closing    sync.Mutex
	fate       sync.Mutex // held while failed is set
	released   bool       // everything is given back; guarded by fate
	failed     atomic.Pointer[communicator.Error]

	captured sync.Map // description by number of a collective, of those that graphs hold

	mu        sync.Mutex // guards what follows
	closed    bool
	schedules map[scheduleKey]*scheduled
	plans     map[key]*plan
	last      *plan
	private   *plan // of the call under way, which no other will be like
	order     order
	calls     uint64 // collectives enqueued
	beside    cuda.Stream
	shares    bool   // what runs in beside shares the GPU
	few       int    // blocks that a call has there
	messages  uint64 // launches for messages

	settlement settlement
}

// Rank is this rank's number, from 0.
func (d *Comm) Rank() int { return d.rank }

// Size is the number of ranks.
func (d *Comm) Size() int { return d.size }

// Device is the GPU of this rank.
func (d *Comm) Device() *cuda.Device { return d.gpu.device }

// Context is the primary context of that GPU.
func (d *Comm) Context() *cuda.Context { return d.gpu.context }

// Paths says how each rank reaches each other one, ordered by the one and then
// by the other.
func (d *Comm) Paths() []Path {
	return slices.DeleteFunc(slices.Clone(d.paths), func(p Path) bool { return p.From == p.To })
}

func failf(code communicator.Code, format string, args ...any) *communicator.Error {
	return &communicator.Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// codeOf keeps the code of an error that has one.
func codeOf(err error) communicator.Code {
	if e, ok := err.(*communicator.Error); ok {
		return e.Code
	}
	if cuda.StatusOf(err) == cuda.StatusOutOfMemory {
		return communicator.Memory
	}
	return communicator.System
}
