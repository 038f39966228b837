package main

/*
#include "ringlane.h"
#include "guard.h"
*/
import "C"

import (
	"unsafe"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/device"
)

// Addresses of GPU memory and streams arrive as C.rl_address, an integer: the
// Go runtime looks at what it takes for pointers, and the streams 1 and 2 of
// CUDA would end the process.

// rl_device_join makes a device communicator of comm's ranks: every one of them
// calls it, each with the ordinal of its own GPU, as CUDA_VISIBLE_DEVICES leaves
// them; ranks may share one. Every pair of ranks is tried out first. Without a GPU
// or a driver the status is RL_ESYSTEM on all ranks. The communicator uses the
// GPU's primary context, as the CUDA runtime does. It ends with comm, after which
// rl_device_close only frees the handle.
//
//export rlgo_device_join
func rlgo_device_join(comm C.rl_comm, ordinal C.int32_t, device *C.rl_device) C.int32_t {
	c, err := comms.get(uint64(comm))
	if err != nil {
		return report(err)
	}
	if device == nil {
		return invalid("device join: device is NULL")
	}
	d, err := joinDevice(c, int(ordinal))
	if err != nil {
		return report(err)
	}
	*device = C.rl_device(devices.put(d))
	return C.RL_OK
}

// joinDevice is for where a parameter has the package's name.
var joinDevice = device.Join

// rl_device_close waits until the GPU has done this process's work and no other
// rank writes here any more, with limits to both, and frees device. Graphs that
// hold calls of it cannot be launched after that. comm stays.
//
//export rlgo_device_close
func rlgo_device_close(device C.rl_device) C.int32_t {
	d, err := devices.take(uint64(device))
	if err != nil {
		return report(err)
	}
	return report(d.Close())
}

// rl_device_abort fails device on every rank: kernels that wait give up, and
// later calls fail; why goes into their error texts.
//
//export rlgo_device_abort
func rlgo_device_abort(device C.rl_device, why *C.char) C.int32_t {
	d, err := devices.get(uint64(device))
	if err == nil {
		text := "no reason given"
		if why != nil {
			text = C.GoString(why)
		}
		d.Abort(text)
	}
	return report(err)
}

// rl_device_error is the failure of device: RL_OK as long as there is none. It
// does not wait for the GPU, and makes no CUDA call.
//
//export rlgo_device_error
func rlgo_device_error(device C.rl_device) C.int32_t {
	d, err := devices.again(uint64(device))
	if err != nil {
		return report(err)
	}
	return report(d.Err())
}

// rl_device_synchronize waits until the work in stream is done, or device has
// failed, which the status tells.
//
//export rlgo_device_synchronize
func rlgo_device_synchronize(device C.rl_device, stream C.rl_address) C.int32_t {
	d, err := devices.get(uint64(device))
	if err != nil {
		return report(err)
	}
	return report(d.Synchronize(cuda.Stream(stream)))
}

// rl_device_beside says that what runs in stream, one of device's context, shares
// the GPU with other work, such as a backward pass: calls there take fewer
// multiprocessors where that is possible. A later call names another stream. Other
// ranks need not do the same.
//
//export rlgo_device_beside
func rlgo_device_beside(device C.rl_device, stream C.rl_address) C.int32_t {
	d, err := devices.get(uint64(device))
	if err != nil {
		return report(err)
	}
	return report(d.Beside(cuda.Stream(stream)))
}

// rl_device_order has what is put into the stream then from now on run after what
// is in first now, both of device's context. Where first is captured into a CUDA
// graph, then is as well from now on. Other ranks need not do the same.
//
//export rlgo_device_order
func rlgo_device_order(device C.rl_device, first, then C.rl_address) C.int32_t {
	d, err := devices.again(uint64(device))
	if err != nil {
		return report(err)
	}
	return report(d.Order(cuda.Stream(first), cuda.Stream(then)))
}

// rl_device_all_reduce is rl_all_reduce on GPU memory.
//
//export rlgo_device_all_reduce
func rlgo_device_all_reduce(device C.rl_device, in, out C.rl_address, count C.uint64_t, dtype, op C.int32_t, stream C.rl_address) C.int32_t {
	return enqueue(device, stream, schedule.AllReduce, in, out, count, dtype, op, 0)
}

// rl_device_reduce is rl_reduce on GPU memory.
//
//export rlgo_device_reduce
func rlgo_device_reduce(device C.rl_device, in, out C.rl_address, count C.uint64_t, dtype, op, root C.int32_t, stream C.rl_address) C.int32_t {
	return enqueue(device, stream, schedule.Reduction, in, out, count, dtype, op, root)
}

// rl_device_reduce_scatter is rl_reduce_scatter on GPU memory.
//
//export rlgo_device_reduce_scatter
func rlgo_device_reduce_scatter(device C.rl_device, in, out C.rl_address, count C.uint64_t, dtype, op C.int32_t, stream C.rl_address) C.int32_t {
	return enqueue(device, stream, schedule.ReduceScatter, in, out, count, dtype, op, 0)
}

// rl_device_all_gather is rl_all_gather on GPU memory.
//
//export rlgo_device_all_gather
func rlgo_device_all_gather(device C.rl_device, in, out C.rl_address, count C.uint64_t, dtype C.int32_t, stream C.rl_address) C.int32_t {
	return enqueue(device, stream, schedule.AllGather, in, out, count, dtype, 0, 0)
}

// rl_device_broadcast is rl_broadcast on GPU memory.
//
//export rlgo_device_broadcast
func rlgo_device_broadcast(device C.rl_device, buffer C.rl_address, count C.uint64_t, dtype, root C.int32_t, stream C.rl_address) C.int32_t {
	return enqueue(device, stream, schedule.Broadcast, buffer, buffer, count, dtype, 0, root)
}

// rl_device_gather is rl_gather on GPU memory.
//
//export rlgo_device_gather
func rlgo_device_gather(device C.rl_device, in, out C.rl_address, count C.uint64_t, dtype, root C.int32_t, stream C.rl_address) C.int32_t {
	return enqueue(device, stream, schedule.Gather, in, out, count, dtype, 0, root)
}

// rl_device_scatter is rl_scatter on GPU memory.
//
//export rlgo_device_scatter
func rlgo_device_scatter(device C.rl_device, in, out C.rl_address, count C.uint64_t, dtype, root C.int32_t, stream C.rl_address) C.int32_t {
	return enqueue(device, stream, schedule.Scatter, in, out, count, dtype, 0, root)
}

// rl_device_all_to_all is rl_all_to_all on GPU memory.
//
//export rlgo_device_all_to_all
func rlgo_device_all_to_all(device C.rl_device, in, out C.rl_address, count C.uint64_t, dtype C.int32_t, stream C.rl_address) C.int32_t {
	return enqueue(device, stream, schedule.AllToAll, in, out, count, dtype, 0, 0)
}

// rl_device_all_to_allv is rl_all_to_allv on GPU memory. The counts lie in host
// memory, and are not needed any more when the call returns.
//
//export rlgo_device_all_to_allv
func rlgo_device_all_to_allv(device C.rl_device, in C.rl_address, send_counts *C.uint64_t, out C.rl_address, recv_counts *C.uint64_t, dtype C.int32_t, stream C.rl_address) C.int32_t {
	d, err := devices.again(uint64(device))
	if err != nil {
		return report(err)
	}
	if send_counts == nil || recv_counts == nil {
		return invalid("alltoall: send_counts or recv_counts is NULL")
	}
	return report(d.Enqueue(deviceCall(schedule.AllToAll, in, out, 0, dtype, 0, 0,
		counts(send_counts, d.Size()), counts(recv_counts, d.Size())), cuda.Stream(stream)))
}

// rl_device_barrier lets the work that comes into stream later wait until every
// rank's stream has come to its barrier.
//
//export rlgo_device_barrier
func rlgo_device_barrier(device C.rl_device, stream C.rl_address) C.int32_t {
	return enqueue(device, stream, schedule.Barrier, 0, 0, 0, 0, 0, 0)
}

func enqueue(handle C.rl_device, stream C.rl_address, kind schedule.Collective, in, out C.rl_address, count C.uint64_t, dt, op, root C.int32_t) C.int32_t {
	d, err := devices.again(uint64(handle))
	if err != nil {
		return report(err)
	}
	return report(d.Enqueue(deviceCall(kind, in, out, count, dt, op, root, nil, nil), cuda.Stream(stream)))
}

func deviceCall(kind schedule.Collective, in, out C.rl_address, count C.uint64_t, dt, op, root C.int32_t, send, recv []int) device.Call {
	return device.Call{
		Collective: kind, Type: typ(dt), Op: dtype.Op(min(uint32(op), 255)), Root: int(root), Count: int(min(count, 1<<62)),
		In: cuda.Pointer(in), Out: cuda.Pointer(out), SendCounts: send, RecvCounts: recv,
	}
}

// rl_device_exchange performs n sends and receives together, in any order. A
// rank's messages to another are received there in the order in which they were
// sent; count and dtype are the same at both ends.
//
//export rlgo_device_exchange
func rlgo_device_exchange(device C.rl_device, messages *C.rl_message, n C.uint64_t, stream C.rl_address) C.int32_t {
	d, err := devices.again(uint64(device))
	if err != nil {
		return report(err)
	}
	if n > 1<<20 || n > 0 && messages == nil {
		return invalid("exchange: messages is NULL, or there are more than 1048576 of them")
	}
	list := letters(unsafe.Slice(messages, n))
	return report(d.Exchange(list, cuda.Stream(stream)))
}

func letters(messages []C.rl_message) []device.Message {
	list := make([]device.Message, len(messages))
	for i, m := range messages {
		list[i] = device.Message{
			Send: m.send != 0, Peer: int(m.peer), Type: typ(m.dtype), Count: int(min(m.count, 1<<62)),
			Buffer: cuda.Pointer(uintptr(m.buffer)),
		}
	}
	return list
}

// rl_device_paths writes what the trial of each ordered pair of ranks found, as a
// JSON list of {"from","to","kind","why","push_gbs","pull_gbs","latency_ns"}, into
// text, in the way of rl_stats. kind is "peer", "same" (one GPU) or "host", through
// whose memory they meet; why says what keeps it from being better. What was not
// measured is left out.
//
//export rlgo_device_paths
func rlgo_device_paths(device C.rl_device, text *C.char, size C.uint64_t, needed *C.uint64_t) C.int32_t {
	d, err := devices.get(uint64(device))
	if err != nil {
		return report(err)
	}
	return writeJSON("paths", d.Paths(), text, size, needed)
}
