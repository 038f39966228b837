// Package main is libringlane: the communicator behind a C ABI of opaque
// handles, integer status and explicit sizes.
//
// Every function here is exported as rlgo_NAME. The public rl_NAME is a C
// function in entry_gen.c that first looks whether the process is a forked
// child, where the Go runtime has no threads and a call would never return.
package main

/*
#cgo CFLAGS: -I${SRCDIR}/../include
#include <stdlib.h>
#include "ringlane.h"
#include "guard.h"
*/
import "C"

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"time"
	"unsafe"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

//go:generate go run ./generate

func main() {}

// init sees to it that the Go runtime has a processor to spare. Whoever calls
// from C holds one; where there is no other, the runtime takes it away as soon
// as the caller has been back in C for 20 us, and the next call waits for it
// some 20 us more.
func init() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 4))
	}
}

// report keeps the text of err for rl_last_error of the calling thread and
// returns its status.
func report(err error) C.int32_t {
	if err == nil {
		return C.RL_OK
	}
	text := C.CString(err.Error())
	C.rl_set_error(text)
	C.free(unsafe.Pointer(text))
	var e *communicator.Error
	if errors.As(err, &e) {
		return C.int32_t(e.Code)
	}
	return C.int32_t(communicator.System)
}

func invalid(text string) C.int32_t {
	return report(&communicator.Error{Code: communicator.Argument, Text: text})
}

// rl_join_env joins the job that the environment describes: the RINGLANE_*
// variables, which `ringlane run` sets, or those that torchrun sets.
//
//export rlgo_join_env
func rlgo_join_env(comm *C.rl_comm) C.int32_t {
	cfg, err := communicator.FromProcess()
	if err != nil {
		return report(err)
	}
	return joined(comm, cfg)
}

// rl_join joins the communicator named job, as rank of size ranks, and returns
// when all have joined. rendezvous is a directory private to the user in which
// the ranks meet, or NULL or "" for one below the temporary directory that is
// named after job and removed after the join. timeout (seconds) is the deadline
// of the join and of every collective, staging (bytes) bounds the shared memory
// of this rank; 0 is the default of each: 60 s, 16 MiB.
//
//export rlgo_join
func rlgo_join(rendezvous, job *C.char, rank, size C.int32_t, timeout C.double, staging C.uint64_t, comm *C.rl_comm) C.int32_t {
	if job == nil || !(timeout >= 0 && timeout < 1e9) || staging > 1<<40 {
		return invalid("join: job is NULL, or the timeout or the staging memory is out of range (0 takes the default)")
	}
	cfg := communicator.Config{
		Job: C.GoString(job), Rank: int(rank), Size: int(size),
		Timeout: time.Duration(float64(timeout) * float64(time.Second)), Staging: int(staging),
	}
	if rendezvous != nil {
		cfg.Rendezvous = C.GoString(rendezvous)
	}
	if err := communicator.Overrides(&cfg); err != nil {
		return report(err)
	}
	return joined(comm, cfg)
}

func joined(comm *C.rl_comm, cfg communicator.Config) C.int32_t {
	if comm == nil {
		return invalid("join: comm is NULL")
	}
	c, err := communicator.Join(cfg)
	if err != nil {
		return report(err)
	}
	*comm = C.rl_comm(comms.put(c))
	return C.RL_OK
}

// rl_group makes a communicator of n ranks of parent, numbered in the order of
// the list. Every listed rank calls it with the same list; no other needs to.
//
//export rlgo_group
func rlgo_group(parent C.rl_comm, ranks *C.int32_t, n C.int32_t, comm *C.rl_comm) C.int32_t {
	c, err := comms.get(uint64(parent))
	if err != nil {
		return report(err)
	}
	if comm == nil || ranks == nil || n < 1 {
		return invalid("group: the list of ranks is empty, or comm is NULL")
	}
	list := make([]int, n)
	for i, r := range unsafe.Slice(ranks, n) {
		list[i] = int(r)
	}
	g, err := c.Group(list)
	if err != nil {
		return report(err)
	}
	*comm = C.rl_comm(comms.put(g))
	return C.RL_OK
}

// rl_rank stores this process's rank in comm.
//
//export rlgo_rank
func rlgo_rank(comm C.rl_comm, rank *C.int32_t) C.int32_t {
	c, err := comms.get(uint64(comm))
	if err != nil {
		return report(err)
	}
	if rank == nil {
		return invalid("rank: rank is NULL")
	}
	*rank = C.int32_t(c.Rank())
	return C.RL_OK
}

// rl_size stores the number of ranks in comm.
//
//export rlgo_size
func rlgo_size(comm C.rl_comm, size *C.int32_t) C.int32_t {
	c, err := comms.get(uint64(comm))
	if err != nil {
		return report(err)
	}
	if size == nil {
		return invalid("size: size is NULL")
	}
	*size = C.int32_t(c.Size())
	return C.RL_OK
}

// rl_close leaves comm and frees it. Calls of this rank that are under way
// fail; other ranks complete theirs without it.
//
//export rlgo_close
func rlgo_close(comm C.rl_comm) C.int32_t {
	c, err := comms.take(uint64(comm))
	if err != nil {
		return report(err)
	}
	return report(c.Close())
}

// rl_abort fails every pending and later call of every rank of comm; why goes
// into their error texts.
//
//export rlgo_abort
func rlgo_abort(comm C.rl_comm, why *C.char) C.int32_t {
	c, err := comms.get(uint64(comm))
	if err == nil {
		text := "no reason given"
		if why != nil {
			text = C.GoString(why)
		}
		c.Abort(text)
	}
	return report(err)
}

// rl_alloc stores in memory the address of bytes zeroed bytes in a window: other
// ranks read them where they lie, so that collectives on them copy less. They
// are aligned to a page, belong to no communicator, and stay until rl_free.
//
//export rlgo_alloc
func rlgo_alloc(bytes C.uint64_t, memory *unsafe.Pointer) C.int32_t {
	if memory == nil || bytes < 1 || bytes > 1<<56 {
		return invalid("alloc: the size is out of range, or memory is NULL")
	}
	b, err := communicator.Alloc(int(bytes))
	if err != nil {
		return report(err)
	}
	*memory = unsafe.Pointer(unsafe.SliceData(b))
	return C.RL_OK
}

// rl_free gives memory from rl_alloc back; NULL is fine. No operation may be
// under way on it.
//
//export rlgo_free
func rlgo_free(memory unsafe.Pointer) C.int32_t {
	if memory == nil {
		return C.RL_OK
	}
	return report(communicator.Free(unsafe.Slice((*byte)(memory), 1)))
}

// rl_all_reduce leaves the reduction of every rank's in (count elements) in
// every rank's out. in may be out.
//
//export rlgo_all_reduce
func rlgo_all_reduce(comm C.rl_comm, in, out unsafe.Pointer, count C.uint64_t, dtype, op C.int32_t, request *C.rl_request) C.int32_t {
	return collective(comm, request, schedule.AllReduce, in, out, count, dtype, op, 0)
}

// rl_reduce leaves the reduction of every rank's in (count elements) in the
// root's out, which no other rank uses. in may be out.
//
//export rlgo_reduce
func rlgo_reduce(comm C.rl_comm, in, out unsafe.Pointer, count C.uint64_t, dtype, op, root C.int32_t, request *C.rl_request) C.int32_t {
	return collective(comm, request, schedule.Reduction, in, out, count, dtype, op, root)
}

// rl_reduce_scatter leaves part r of the reduction of every rank's in (count
// elements times the number of ranks) in out (count elements) of rank r.
//
//export rlgo_reduce_scatter
func rlgo_reduce_scatter(comm C.rl_comm, in, out unsafe.Pointer, count C.uint64_t, dtype, op C.int32_t, request *C.rl_request) C.int32_t {
	return collective(comm, request, schedule.ReduceScatter, in, out, count, dtype, op, 0)
}

// rl_all_gather leaves every rank's in (count elements) side by side, in the
// order of ranks, in every rank's out.
//
//export rlgo_all_gather
func rlgo_all_gather(comm C.rl_comm, in, out unsafe.Pointer, count C.uint64_t, dtype C.int32_t, request *C.rl_request) C.int32_t {
	return collective(comm, request, schedule.AllGather, in, out, count, dtype, 0, 0)
}

// rl_broadcast leaves the root's buffer (count elements) in every rank's.
//
//export rlgo_broadcast
func rlgo_broadcast(comm C.rl_comm, buffer unsafe.Pointer, count C.uint64_t, dtype, root C.int32_t, request *C.rl_request) C.int32_t {
	return collective(comm, request, schedule.Broadcast, buffer, buffer, count, dtype, 0, root)
}

// rl_gather leaves every rank's in (count elements) side by side, in the order
// of ranks, in the root's out, which no other rank uses.
//
//export rlgo_gather
func rlgo_gather(comm C.rl_comm, in, out unsafe.Pointer, count C.uint64_t, dtype, root C.int32_t, request *C.rl_request) C.int32_t {
	return collective(comm, request, schedule.Gather, in, out, count, dtype, 0, root)
}

// rl_scatter leaves part r of the root's in (count elements times the number of
// ranks), which no other rank uses, in out (count elements) of rank r.
//
//export rlgo_scatter
func rlgo_scatter(comm C.rl_comm, in, out unsafe.Pointer, count C.uint64_t, dtype, root C.int32_t, request *C.rl_request) C.int32_t {
	return collective(comm, request, schedule.Scatter, in, out, count, dtype, 0, root)
}

// rl_all_to_all leaves part r of rank s's in as part s of rank r's out; a part
// has count elements.
//
//export rlgo_all_to_all
func rlgo_all_to_all(comm C.rl_comm, in, out unsafe.Pointer, count C.uint64_t, dtype C.int32_t, request *C.rl_request) C.int32_t {
	return collective(comm, request, schedule.AllToAll, in, out, count, dtype, 0, 0)
}

// rl_all_to_allv is rl_all_to_all with parts of their own sizes: send_counts[r]
// elements go to rank r and recv_counts[r] come from it, packed in the order of
// ranks.
//
//export rlgo_all_to_allv
func rlgo_all_to_allv(comm C.rl_comm, in unsafe.Pointer, send_counts *C.uint64_t, out unsafe.Pointer, recv_counts *C.uint64_t, dtype C.int32_t, request *C.rl_request) C.int32_t {
	c, err := comms.get(uint64(comm))
	if err != nil {
		return report(err)
	}
	if send_counts == nil || recv_counts == nil {
		return invalid("alltoall: send_counts or recv_counts is NULL")
	}
	call := communicator.Call{
		Collective: schedule.AllToAll, Type: typ(dtype),
		SendCounts: counts(send_counts, c.Size()), RecvCounts: counts(recv_counts, c.Size()),
	}
	return perform(c, request, &call, in, out)
}

func counts(p *C.uint64_t, n int) []int {
	list := make([]int, n)
	for i, v := range unsafe.Slice(p, n) {
		list[i] = int(v)
	}
	return list
}

// rl_barrier returns when every rank has called it.
//
//export rlgo_barrier
func rlgo_barrier(comm C.rl_comm, request *C.rl_request) C.int32_t {
	return collective(comm, request, schedule.Barrier, nil, nil, 0, 0, 0, 0)
}

func typ(code C.int32_t) dtype.Type { return dtype.Type(min(uint32(code), 255)) }

func collective(comm C.rl_comm, request *C.rl_request, kind schedule.Collective, in, out unsafe.Pointer, count C.uint64_t, dt, op, root C.int32_t) C.int32_t {
	c, err := comms.again(uint64(comm))
	if err != nil {
		return report(err)
	}
	// Field by field: a literal is made elsewhere and copied, and the processor has
	// to wait for what it has just written in smaller pieces (6 ns).
	var call communicator.Call
	call.Collective, call.Type, call.Op = kind, typ(dt), dtype.Op(min(uint32(op), 255))
	call.Root, call.Count = int(root), int(min(count, 1<<62))
	return perform(c, request, &call, in, out)
}

func perform(c *communicator.Comm, request *C.rl_request, call *communicator.Call, in, out unsafe.Pointer) C.int32_t {
	n, m, err := c.Lengths(call)
	if err != nil {
		return report(err)
	}
	size := call.Type.Size()
	if n > 0 && in == nil || m > 0 && out == nil {
		return invalid(call.Collective.String() + ": a buffer is NULL")
	}
	call.In, call.Out = unsafe.Slice((*byte)(in), n*size), unsafe.Slice((*byte)(out), m*size)
	if request == nil {
		return report(c.Do(call))
	}
	r, err := c.Start(*call)
	return started(request, r, nil, err)
}

// rl_send sends count elements to rank dst. A receive there takes them if its
// tag is the same.
//
//export rlgo_send
func rlgo_send(comm C.rl_comm, buffer unsafe.Pointer, count C.uint64_t, dtype, dst, tag C.int32_t, request *C.rl_request) C.int32_t {
	c, buf, err := letter(comm, buffer, count, dtype)
	if err != nil {
		return report(err)
	}
	if request == nil {
		return report(c.Send(buf, typ(dtype), int(dst), int(tag)))
	}
	r, err := c.StartSend(buf, typ(dtype), int(dst), int(tag))
	return started(request, r, nil, err)
}

// rl_recv receives count elements with tag from rank src, or with src -1 from
// whichever rank sends some first. from may be NULL; otherwise it receives the
// sender when the operation completes.
//
//export rlgo_recv
func rlgo_recv(comm C.rl_comm, buffer unsafe.Pointer, count C.uint64_t, dtype, src, tag C.int32_t, from *C.int32_t, request *C.rl_request) C.int32_t {
	c, buf, err := letter(comm, buffer, count, dtype)
	if err != nil {
		return report(err)
	}
	if request != nil {
		r, err := c.StartRecv(buf, typ(dtype), int(src), int(tag))
		return started(request, r, from, err)
	}
	sender, err := c.Recv(buf, typ(dtype), int(src), int(tag))
	if err == nil && from != nil {
		*from = C.int32_t(sender)
	}
	return report(err)
}

func letter(comm C.rl_comm, buffer unsafe.Pointer, count C.uint64_t, dtype C.int32_t) (*communicator.Comm, []byte, error) {
	c, err := comms.get(uint64(comm))
	if err != nil {
		return nil, nil, err
	}
	if !typ(dtype).Valid() || count > 1<<56 || count > 0 && buffer == nil {
		return nil, nil, &communicator.Error{Code: communicator.Argument, Text: "send or recv: the element type or the count is out of range, or the buffer is NULL"}
	}
	return c, unsafe.Slice((*byte)(buffer), int(count)*typ(dtype).Size()), nil
}

// ticket is a request and where its sender is to be stored.
type ticket struct {
	request *communicator.Request
	from    *C.int32_t
}

func (t ticket) deliver() {
	if t.from != nil {
		*t.from = C.int32_t(t.request.From())
	}
}

// started hands a request out, or 0 if it is complete.
func started(handle *C.rl_request, r *communicator.Request, from *C.int32_t, err error) C.int32_t {
	if err != nil {
		return report(err)
	}
	t := ticket{r, from}
	*handle = 0
	if !r.Done() {
		*handle = C.rl_request(requests.put(t))
		return C.RL_OK
	}
	if err := r.Wait(0); err != nil {
		return report(err)
	}
	t.deliver()
	return C.RL_OK
}

// rl_wait returns when request has completed or failed, and frees it. With a
// timeout (seconds) of 0 or more it returns RL_ETIMEOUT when that has passed
// first, and the request stays valid; a negative one waits for the operation's
// own deadline. Request 0 is complete.
//
//export rlgo_wait
func rlgo_wait(request C.rl_request, timeout C.double) C.int32_t {
	if request == 0 {
		return C.RL_OK
	}
	t, err := requests.get(uint64(request))
	if err != nil {
		return report(err)
	}
	limit := time.Duration(0)
	if timeout >= 0 {
		limit = max(time.Duration(min(float64(timeout), 1e9)*float64(time.Second)), time.Nanosecond)
	}
	err = t.request.Wait(limit)
	if !t.request.Done() {
		return report(err)
	}
	requests.take(uint64(request))
	if err == nil {
		t.deliver()
	}
	return report(err)
}

// rl_test stores in done whether request has completed, and frees it if so or
// if it has failed, which the status tells.
//
//export rlgo_test
func rlgo_test(request C.rl_request, done *C.int32_t) C.int32_t {
	if done == nil {
		return invalid("test: done is NULL")
	}
	*done = 1
	if request == 0 {
		return C.RL_OK
	}
	t, err := requests.get(uint64(request))
	if err != nil {
		return report(err)
	}
	if !t.request.Done() {
		*done = 0
		return C.RL_OK
	}
	return rlgo_wait(request, -1)
}

// rl_stats writes the latencies of comm's collectives as JSON, a list of
// {"collective","count","bytes","seconds","p50_us","p99_us","p999_us","max_us"},
// into text (size bytes), ended by NUL. needed receives the size that it takes;
// if size is less, nothing is written.
//
//export rlgo_stats
func rlgo_stats(comm C.rl_comm, text *C.char, size C.uint64_t, needed *C.uint64_t) C.int32_t {
	c, err := comms.get(uint64(comm))
	if err != nil {
		return report(err)
	}
	return writeJSON("stats", c.Stats(), text, size, needed)
}

func writeJSON(what string, value any, text *C.char, size C.uint64_t, needed *C.uint64_t) C.int32_t {
	if needed == nil {
		return invalid(what + ": needed is NULL")
	}
	b, err := json.Marshal(value)
	if err != nil {
		return report(err)
	}
	b = append(b, 0)
	*needed = C.uint64_t(len(b))
	if len(b) <= int(size) && text != nil {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(text)), len(b)), b)
	}
	return C.RL_OK
}

// rl_version is the version of the library, a static text.
//
//export rlgo_version
func rlgo_version() *C.char { return version }

var version = func() *C.char {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return C.CString(v)
}()
