/* Code generated from the exported functions of capi by `go generate ./capi`. DO NOT EDIT. */
#include "ringlane.h"
#include "_cgo_export.h"
#include "guard.h"

int32_t rl_join_env(rl_comm *comm) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_join_env");
	return rlgo_join_env(comm);
}

int32_t rl_join(const char *rendezvous, const char *job, int32_t rank, int32_t size, double timeout, uint64_t staging, rl_comm *comm) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_join");
	return rlgo_join((char *)rendezvous, (char *)job, rank, size, timeout, staging, comm);
}

int32_t rl_group(rl_comm parent, const int32_t *ranks, int32_t n, rl_comm *comm) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_group");
	return rlgo_group(parent, (int32_t *)ranks, n, comm);
}

int32_t rl_rank(rl_comm comm, int32_t *rank) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_rank");
	return rlgo_rank(comm, rank);
}

int32_t rl_size(rl_comm comm, int32_t *size) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_size");
	return rlgo_size(comm, size);
}

int32_t rl_close(rl_comm comm) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_close");
	return rlgo_close(comm);
}

int32_t rl_abort(rl_comm comm, const char *why) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_abort");
	return rlgo_abort(comm, (char *)why);
}

int32_t rl_alloc(uint64_t bytes, void **memory) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_alloc");
	return rlgo_alloc(bytes, memory);
}

int32_t rl_free(void *memory) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_free");
	return rlgo_free(memory);
}

int32_t rl_all_reduce(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_all_reduce");
	return rlgo_all_reduce(comm, (void *)in, out, count, dtype, op, request);
}

int32_t rl_reduce(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, int32_t root, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_reduce");
	return rlgo_reduce(comm, (void *)in, out, count, dtype, op, root, request);
}

int32_t rl_reduce_scatter(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_reduce_scatter");
	return rlgo_reduce_scatter(comm, (void *)in, out, count, dtype, op, request);
}

int32_t rl_all_gather(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_all_gather");
	return rlgo_all_gather(comm, (void *)in, out, count, dtype, request);
}

int32_t rl_broadcast(rl_comm comm, void *buffer, uint64_t count, int32_t dtype, int32_t root, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_broadcast");
	return rlgo_broadcast(comm, buffer, count, dtype, root, request);
}

int32_t rl_gather(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, int32_t root, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_gather");
	return rlgo_gather(comm, (void *)in, out, count, dtype, root, request);
}

int32_t rl_scatter(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, int32_t root, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_scatter");
	return rlgo_scatter(comm, (void *)in, out, count, dtype, root, request);
}

int32_t rl_all_to_all(rl_comm comm, const void *in, void *out, uint64_t count, int32_t dtype, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_all_to_all");
	return rlgo_all_to_all(comm, (void *)in, out, count, dtype, request);
}

int32_t rl_all_to_allv(rl_comm comm, const void *in, const uint64_t *send_counts, void *out, const uint64_t *recv_counts, int32_t dtype, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_all_to_allv");
	return rlgo_all_to_allv(comm, (void *)in, (uint64_t *)send_counts, out, (uint64_t *)recv_counts, dtype, request);
}

int32_t rl_barrier(rl_comm comm, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_barrier");
	return rlgo_barrier(comm, request);
}

int32_t rl_send(rl_comm comm, void *buffer, uint64_t count, int32_t dtype, int32_t dst, int32_t tag, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_send");
	return rlgo_send(comm, buffer, count, dtype, dst, tag, request);
}

int32_t rl_recv(rl_comm comm, void *buffer, uint64_t count, int32_t dtype, int32_t src, int32_t tag, int32_t *from, rl_request *request) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_recv");
	return rlgo_recv(comm, buffer, count, dtype, src, tag, from, request);
}

int32_t rl_wait(rl_request request, double timeout) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_wait");
	return rlgo_wait(request, timeout);
}

int32_t rl_test(rl_request request, int32_t *done) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_test");
	return rlgo_test(request, done);
}

int32_t rl_stats(rl_comm comm, char *text, uint64_t size, uint64_t *needed) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_stats");
	return rlgo_stats(comm, text, size, needed);
}

const char *rl_version(void) {
	if (rl_in_forked_child()) return "unknown";
	return rlgo_version();
}

int32_t rl_device_join(rl_comm comm, int32_t ordinal, rl_device *device) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_join");
	return rlgo_device_join(comm, ordinal, device);
}

int32_t rl_device_close(rl_device device) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_close");
	return rlgo_device_close(device);
}

int32_t rl_device_abort(rl_device device, const char *why) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_abort");
	return rlgo_device_abort(device, (char *)why);
}

int32_t rl_device_error(rl_device device) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_error");
	return rlgo_device_error(device);
}

int32_t rl_device_synchronize(rl_device device, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_synchronize");
	return rlgo_device_synchronize(device, (rl_address)stream);
}

int32_t rl_device_beside(rl_device device, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_beside");
	return rlgo_device_beside(device, (rl_address)stream);
}

int32_t rl_device_order(rl_device device, void *first, void *then) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_order");
	return rlgo_device_order(device, (rl_address)first, (rl_address)then);
}

int32_t rl_device_all_reduce(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_all_reduce");
	return rlgo_device_all_reduce(device, (rl_address)in, (rl_address)out, count, dtype, op, (rl_address)stream);
}

int32_t rl_device_reduce(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, int32_t root, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_reduce");
	return rlgo_device_reduce(device, (rl_address)in, (rl_address)out, count, dtype, op, root, (rl_address)stream);
}

int32_t rl_device_reduce_scatter(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, int32_t op, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_reduce_scatter");
	return rlgo_device_reduce_scatter(device, (rl_address)in, (rl_address)out, count, dtype, op, (rl_address)stream);
}

int32_t rl_device_all_gather(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_all_gather");
	return rlgo_device_all_gather(device, (rl_address)in, (rl_address)out, count, dtype, (rl_address)stream);
}

int32_t rl_device_broadcast(rl_device device, void *buffer, uint64_t count, int32_t dtype, int32_t root, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_broadcast");
	return rlgo_device_broadcast(device, (rl_address)buffer, count, dtype, root, (rl_address)stream);
}

int32_t rl_device_gather(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, int32_t root, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_gather");
	return rlgo_device_gather(device, (rl_address)in, (rl_address)out, count, dtype, root, (rl_address)stream);
}

int32_t rl_device_scatter(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, int32_t root, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_scatter");
	return rlgo_device_scatter(device, (rl_address)in, (rl_address)out, count, dtype, root, (rl_address)stream);
}

int32_t rl_device_all_to_all(rl_device device, const void *in, void *out, uint64_t count, int32_t dtype, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_all_to_all");
	return rlgo_device_all_to_all(device, (rl_address)in, (rl_address)out, count, dtype, (rl_address)stream);
}

int32_t rl_device_all_to_allv(rl_device device, const void *in, const uint64_t *send_counts, void *out, const uint64_t *recv_counts, int32_t dtype, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_all_to_allv");
	return rlgo_device_all_to_allv(device, (rl_address)in, (uint64_t *)send_counts, (rl_address)out, (uint64_t *)recv_counts, dtype, (rl_address)stream);
}

int32_t rl_device_barrier(rl_device device, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_barrier");
	return rlgo_device_barrier(device, (rl_address)stream);
}

int32_t rl_device_exchange(rl_device device, const rl_message *messages, uint64_t n, void *stream) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_exchange");
	return rlgo_device_exchange(device, (rl_message *)messages, n, (rl_address)stream);
}

int32_t rl_device_paths(rl_device device, char *text, uint64_t size, uint64_t *needed) {
	if (rl_in_forked_child()) return rl_refuse_forked("rl_device_paths");
	return rlgo_device_paths(device, text, size, needed);
}
