package device

import (
	"ringlane/internal/hardware/cuda"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// Call is one collective as one rank asks for it: communicator.Call with buffers
// that the GPU sees, in its own memory or in registered or managed host memory,
// at any address. Lengths and the overlaps that are allowed are the same.
type Call struct {
	Collective schedule.Collective
	Type       dtype.Type
	Op         dtype.Op
	Root       int
	Count      int
	In, Out    cuda.Pointer

	// SendCounts and RecvCounts, if set, make an alltoall uneven: elements to
	// and from each rank, packed in rank order.
	SendCounts, RecvCounts []int
}

// Message is one of the sends and receives of Exchange.
type Message struct {
	Send   bool
	Peer   int
	Type   dtype.Type
	Count  int
	Buffer cuda.Pointer
}

// onHost is the call as the communicator knows it.
func (c *Call) onHost() communicator.Call {
	return communicator.Call{
		Collective: c.Collective, Type: c.Type, Op: c.Op, Root: c.Root, Count: c.Count,
		SendCounts: c.SendCounts, RecvCounts: c.RecvCounts,
	}
}

// key is a call without its buffers.
type key struct {
	collective schedule.Collective
	typ        dtype.Type
	op         dtype.Op
	root       int32
	count      int
}

func (c *Call) key() key {
	return key{c.Collective, c.Type, c.Op, int32(c.Root), c.Count}
}

// check looks at a call whose plan is made, apart from its buffers.
func (d *Comm) check(call *Call) error {
	if call.Collective == schedule.SendRecv || !call.Collective.Valid() {
		return failf(communicator.Argument, "%v is not a collective call (use Exchange)", call.Collective)
	}
	host := call.onHost()
	if _, _, err := d.comm.Lengths(&host); err != nil {
		return err
	}
	if call.SendCounts != nil && call.SendCounts[d.rank] != call.RecvCounts[d.rank] {
		return failf(communicator.Argument, "%v: rank %d sends itself %d elements and expects %d", &host, d.rank, call.SendCounts[d.rank], call.RecvCounts[d.rank])
	}
	return nil
}

// visible looks at a buffer of size bytes, if it has any.
func (d *Comm) visible(what string, p cuda.Pointer, size uint64) error {
	if size == 0 {
		return nil
	}
	a, err := d.gpu.context.Attributes(p)
	if err != nil {
		return failf(codeOf(err), "%s at %#x: %v", what, uint64(p), err)
	}
	switch {
	case a.Type == cuda.Unknown:
		return failf(communicator.Argument, "%s at %#x is memory that %v does not see (pass memory of the GPU, or register host memory with the driver)", what, uint64(p), d.gpu.device)
	case a.Type == cuda.DeviceMemory && a.Device != d.gpu.device.Ordinal:
		return failf(communicator.Argument, "%s at %#x is memory of GPU %d, and rank %d is on GPU %d (pass memory of that GPU)", what, uint64(p), a.Device, d.rank, d.gpu.device.Ordinal)
	}
	return nil
}
