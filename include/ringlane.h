/* Code generated from the exported functions of capi by `go generate ./capi`. DO NOT EDIT. */

/* Ringlane: collectives among the processes of one machine.
 *
 * Every function that returns int32_t returns RL_OK or a failure, whose story
 * rl_last_error tells. All may be called from any thread. One collective at a
 * time may be under way inside a blocking call of a communicator; another
 * thread's collective then fails with RL_EBUSY.
 *
 * A collective with request NULL returns when it is complete. Otherwise it is
 * started, and *request receives 0 if it is complete already, or a handle for
 * rl_wait and rl_test; its buffers must stay as they are until then. Counts are
 * in elements. Buffers need no alignment.
 *
 * The rl_device_ functions do the same on memory that a GPU reaches: each puts
 * its work into stream (a CUstream or cudaStream_t; NULL is the default one) and
 * returns. They can be captured into CUDA graphs. Calls of one device
 * communicator run in the order in which they are made, whatever their streams
 * and threads, and every rank makes the same; its host communicator may be used
 * in between. What goes wrong on the GPU is the status of a later call. */
#ifndef RINGLANE_H
#define RINGLANE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opaque handles; 0 is no communicator, and a request that is complete. */
typedef uint64_t rl_comm;
typedef uint64_t rl_device;
typedef uint64_t rl_request;

/* One send or receive of rl_device_exchange. */
typedef struct rl_message {
	void *buffer;
	uint64_t count;
	int32_t dtype;
	int32_t peer; /* the rank that it goes to or comes from */
	int32_t send; /* 1 is a send, 0 a receive */
} rl_message;

/* Status. */
enum {
	RL_OK = 0,
	RL_EARGUMENT = 1, /* invalid argument */
	RL_ETIMEOUT = 2, /* deadline passed */
	RL_EDEAD = 3, /* a rank has died */
	RL_EMISMATCH = 4, /* ranks disagree */
	RL_ECLOSED = 5, /* communicator is closed */
	RL_EBUSY = 6, /* communicator is in use */
	RL_EFORKED = 7, /* called in a forked child */
	RL_EMEMORY = 8, /* not enough memory */
	RL_ESYSTEM = 9, /* system error */
};

/* Element types. */
enum {
	RL_F32 = 0,
	RL_F64 = 1,
	RL_F16 = 2,
	RL_BF16 = 3,
	RL_I8 = 4,
	RL_U8 = 5,
	RL_I32 = 6,
	RL_I64 = 7,
};

/* Reduction operators. */
enum {
	RL_SUM = 0,
	RL_AVG = 1,
	RL_MIN = 2,
	RL_MAX = 3,
	RL_PROD = 4,
};

/* The text of the calling thread's last failure; valid until its next call. */
const char *rl_last_error(void);

/* rl_join_env joins the job that the environment describes: the RINGLANE_*
 * variables, which `ringlane run` sets, or those that torchrun sets. */
int32_t rl_join_env(rl_comm *comm);

/* rl_join joins the communicator named job, as rank of size ranks, and returns
 * when all have joined. rendezvous is a directory private to the user in which
 * the ranks meet, or NULL or "" for one below the temporary directory that is
 * named after job and removed after the join. timeout (seconds) is the deadline
 * of the join and of every collective, staging (bytes) bounds the shared memory
 * of this rank; 0 is the default of each: 60 s, 16 MiB. */
int32_t rl_join(const char *rendezvous, const char *job, int32_t rank, int32_t size, double timeout, uint64_t staging, rl_comm *comm);

/* rl_group makes a communicator of n ranks of parent, numbered in the order of
 * the list. Every listed rank calls it with the same list; no other needs to. */
int32_t rl_group(rl_comm parent, const int32_t *ranks, int32_t n, rl_comm *comm);

/* rl_rank stores this process's rank in comm. */
int32_t rl_rank(rl_comm comm, int32_t *rank);

/* rl_size stores the number of ranks in comm. */
int32_t rl_size(rl_comm comm, int32_t *size);

/* rl_close leaves comm and frees it. Calls of this rank that are under way
 * fail; other ranks complete theirs without it. */
int32_t rl_close(rl_comm comm);

/* rl_abort fails every pending and later call of every rank of comm; why goes
 * into their error texts. */
int32_t rl_abort(rl_comm comm, const char *why);

/* rl_alloc stores in memory the address of bytes zeroed bytes in a window: other
 * ranks read them where they lie, so that collectives on them copy less. They
 * are aligned to a page, belong to no communicator, and stay until rl_free. */
int32_t rl_alloc(uint64_t bytes, void **memory);

/* rl_free gives memory from rl_alloc back; NULL is fine. No operation may be
 * under way on it. */
int32_t rl_free(void *memory);

/* rl_all_reduce leaves the reduction of every rank's in (count elements) in
 * every rank's out. in may be out. */
int32_t rl_all_reduce(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, rl_request *request);

/* rl_reduce leaves the reduction of every rank's in (count elements) in the
 * root's out, which no other rank uses. in may be out. */
int32_t rl_reduce(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, int32_t root, rl_request *request);

/* rl_reduce_scatter leaves part r of the reduction of every rank's in (count
 * elements times the number of ranks) in out (count elements) of rank r. */
int32_t rl_reduce_scatter(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, rl_request *request);

/* rl_all_gather leaves every rank's in (count elements) side by side, in the
 * order of ranks, in every rank's out. */
int32_t rl_all_gather(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, rl_request *request);

/* rl_broadcast leaves the root's buffer (count elements) in every rank's. */
int32_t rl_broadcast(rl_comm comm, void *buffer, uint64_t count, int32_t dtype, int32_t root, rl_request *request);

/* rl_gather leaves every rank's in (count elements) side by side, in the order
 * of ranks, in the root's out, which no other rank uses. */
int32_t rl_gather(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, int32_t root, rl_request *request);

/* rl_scatter leaves part r of the root's in (count elements times the number of
 * ranks), which no other rank uses, in out (count elements) of rank r. */
int32_t rl_scatter(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, int32_t root, rl_request *request);

/* rl_all_to_all leaves part r of rank s's in as part s of rank r's out; a part
 * has count elements. */
int32_t rl_all_to_all(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, rl_request *request);

/* rl_all_to_allv is rl_all_to_all with parts of their own sizes: send_counts[r]
 * elements go to rank r and recv_counts[r] come from it, packed in the order of
 * ranks. */
int32_t rl_all_to_allv(rl_comm comm, const void *in, const uint64_t *send_counts, void *out, const uint64_t *recv_counts, int32_t dtype, rl_request *request);

/* rl_barrier returns when every rank has called it. */
int32_t rl_barrier(rl_comm comm, rl_request *request);

/* rl_send sends count elements to rank dst. A receive there takes them if its
 * tag is the same. */
int32_t rl_send(rl_comm comm, void *buffer, uint64_t count, int32_t dtype, int32_t dst, int32_t tag, rl_request *request);

/* rl_recv receives count elements with tag from rank src, or with src -1 from
 * whichever rank sends some first. from may be NULL; otherwise it receives the
 * sender when the operation completes. */
int32_t rl_recv(rl_comm comm, void *buffer, uint64_t count, int32_t dtype, int32_t src, int32_t tag, int32_t *from, rl_request *request);

/* rl_wait returns when request has completed or failed, and frees it. With a
 * timeout (seconds) of 0 or more it returns RL_ETIMEOUT when that has passed
 * first, and the request stays valid; a negative one waits for the operation's
 * own deadline. Request 0 is complete. */
int32_t rl_wait(rl_request request, double timeout);

/* rl_test stores in done whether request has completed, and frees it if so or
 * if it has failed, which the status tells. */
int32_t rl_test(rl_request request, int32_t *done);

/* rl_stats writes the latencies of comm's collectives as JSON, a list of
 * {"collective","count","bytes","seconds","p50_us","p99_us","p999_us","max_us"},
 * into text (size bytes), ended by NUL. needed receives the size that it takes;
 * if size is less, nothing is written. */
int32_t rl_stats(rl_comm comm, char *text, uint64_t size, uint64_t *needed);

/* rl_version is the version of the library, a static text. */
const char *rl_version(void);

/* rl_device_join makes a device communicator of comm's ranks: every one of them
 * calls it, each with the ordinal of its own GPU, as CUDA_VISIBLE_DEVICES leaves
 * them; ranks may share one. Every pair of ranks is tried out first. Without a GPU
 * or a driver the status is RL_ESYSTEM on all ranks. The communicator uses the
 * GPU's primary context, as the CUDA runtime does. It ends with comm, after which
 * rl_device_close only frees the handle. */
int32_t rl_device_join(rl_comm comm, int32_t ordinal, rl_device *device);

/* rl_device_close waits until the GPU has done this process's work and no other
 * rank writes here any more, with limits to both, and frees device. Graphs that
 * hold calls of it cannot be launched after that. comm stays. */
int32_t rl_device_close(rl_device device);

/* rl_device_abort fails device on every rank: kernels that wait give up, and
 * later calls fail; why goes into their error texts. */
int32_t rl_device_abort(rl_device device, const char *why);

/* rl_device_error is the failure of device: RL_OK as long as there is none. It
 * does not wait for the GPU, and makes no CUDA call. */
int32_t rl_device_error(rl_device device);

/* rl_device_synchronize waits until the work in stream is done, or device has
 * failed, which the status tells. */
int32_t rl_device_synchronize(rl_device device, void *stream);

/* rl_device_beside says that what runs in stream, one of device's context, shares
 * the GPU with other work, such as a backward pass: calls there take fewer
 * multiprocessors where that is possible. A later call names another stream. Other
 * ranks need not do the same. */
int32_t rl_device_beside(rl_device device, void *stream);

/* rl_device_order has what is put into the stream then from now on run after what
 * is in first now, both of device's context. Where first is captured into a CUDA
 * graph, then is as well from now on. Other ranks need not do the same. */
int32_t rl_device_order(rl_device device, void *first, void *then);

/* rl_device_all_reduce is rl_all_reduce on GPU memory. */
int32_t rl_device_all_reduce(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, void *stream);

/* rl_device_reduce is rl_reduce on GPU memory. */
int32_t rl_device_reduce(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, int32_t root, void *stream);

/* rl_device_reduce_scatter is rl_reduce_scatter on GPU memory. */
int32_t rl_device_reduce_scatter(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, void *stream);

/* rl_device_all_gather is rl_all_gather on GPU memory. */
int32_t rl_device_all_gather(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, void *stream);

/* rl_device_broadcast is rl_broadcast on GPU memory. */
int32_t rl_device_broadcast(rl_device device, void *buffer, uint64_t count, int32_t dtype, int32_t root, void *stream);

/* rl_device_gather is rl_gather on GPU memory. */
int32_t rl_device_gather(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, int32_t root, void *stream);

/* rl_device_scatter is rl_scatter on GPU memory. */
int32_t rl_device_scatter(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, int32_t root, void *stream);

/* rl_device_all_to_all is rl_all_to_all on GPU memory. */
int32_t rl_device_all_to_all(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, void *stream);

/* rl_device_all_to_allv is rl_all_to_allv on GPU memory. The counts lie in host
 * memory, and are not needed any more when the call returns. */
int32_t rl_device_all_to_allv(rl_device device, const void *in, const uint64_t *send_counts, void *out, const uint64_t *recv_counts, int32_t dtype, void *stream);

/* rl_device_barrier lets the work that comes into stream later wait until every
 * rank's stream has come to its barrier. */
int32_t rl_device_barrier(rl_device device, void *stream);

/* rl_device_exchange performs n sends and receives together, in any order. A
 * rank's messages to another are received there in the order in which they were
 * sent; count and dtype are the same at both ends. */
int32_t rl_device_exchange(rl_device device, const rl_message *messages, uint64_t n, void *stream);

/* rl_device_paths writes what the trial of each ordered pair of ranks found, as a
 * JSON list of {"from","to","kind","why","push_gbs","pull_gbs","latency_ns"}, into
 * text, in the way of rl_stats. kind is "peer", "same" (one GPU) or "host", through
 * whose memory they meet; why says what keeps it from being better. What was not
 * measured is left out. */
int32_t rl_device_paths(rl_device device, char *text, uint64_t size, uint64_t *needed);

#ifdef __cplusplus
}
#endif

#endif
