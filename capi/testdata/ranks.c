/* One rank of the test of the C ABI: every function once, and a fork. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ringlane.h"

#define OK(call)                                                                  \
	do {                                                                      \
		int32_t status = (call);                                          \
		if (status != RL_OK) {                                            \
			fprintf(stderr, "%s: %d: %s\n", #call, status, rl_last_error()); \
			return 1;                                                 \
		}                                                                 \
	} while (0)

#define CHECK(condition)                                                \
	do {                                                            \
		if (!(condition)) {                                     \
			fprintf(stderr, "not so: %s (%s)\n", #condition, rl_last_error()); \
			return 1;                                       \
		}                                                       \
	} while (0)

/* How many threads of this process may sleep 5 ms longer than they ask for, or -1 where
 * only an administrator may know. */
static int loose(void) {
	int n = 0;
	DIR *tasks = opendir("/proc/self/task");
	for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
		char path[300];
		long slack = 0;
		snprintf(path, sizeof path, "/proc/%s/timerslack_ns", task->d_name);
		FILE *file = fopen(path, "r");
		if (task->d_name[0] == '.') continue;
		if (file == NULL || fscanf(file, "%ld", &slack) != 1) return -1;
		n += slack == 5000000;
		fclose(file);
	}
	return n;
}

int main(void) {
	rl_comm comm = 0, pair = 0;
	rl_request request = 0;
	int32_t rank = -1, size = -1, done = 0, from = -1;
	float a[8], b[32], c[32];

	CHECK(strlen(rl_version()) > 0);
	/* The monitor of the Go runtime may be late, this thread may not. */
	CHECK(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0) < 5000000);
	int late = loose();
	if (late < 0) puts("not checked: how long threads may oversleep");
	CHECK(late != 0);
	OK(rl_join_env(&comm));
	OK(rl_rank(comm, &rank));
	OK(rl_size(comm, &size));
	CHECK(size == 2);

	for (int i = 0; i < 8; i++) a[i] = (float)(rank + i);
	OK(rl_all_reduce(comm, a, b, 8, RL_F32, RL_SUM, NULL));
	CHECK(b[3] == 7);
	OK(rl_all_reduce(comm, a, b, 8, RL_F32, RL_AVG, &request));
	OK(rl_wait(request, -1));
	CHECK(b[3] == 3.5f);
	OK(rl_reduce(comm, a, b, 8, RL_F32, RL_MAX, 1, NULL));
	CHECK(rank == 0 || b[3] == 4);
	OK(rl_reduce_scatter(comm, a, b, 4, RL_F32, RL_PROD, NULL));
	CHECK(b[1] == (float)((4 * rank + 1) * (4 * rank + 2)));
	OK(rl_all_gather(comm, a, b, 8, RL_F32, NULL));
	CHECK(b[9] == 2);
	OK(rl_gather(comm, a, b, 8, RL_F32, 0, NULL));
	CHECK(rank == 1 || b[8] == 1);
	memcpy(c, a, sizeof a);
	OK(rl_broadcast(comm, c, 8, RL_F32, 1, NULL));
	CHECK(c[0] == 1);
	OK(rl_scatter(comm, a, b, 4, RL_F32, 0, NULL));
	CHECK(b[0] == (float)(4 * rank));
	OK(rl_all_to_all(comm, a, b, 4, RL_F32, NULL));
	CHECK(b[4] == (float)(4 * rank + 1));
	uint64_t counts[2] = {4, 4};
	OK(rl_all_to_allv(comm, a, counts, c, counts, RL_F32, NULL));
	CHECK(memcmp(b, c, sizeof a) == 0);

	if (rank == 0) {
		OK(rl_send(comm, a, 8, RL_F32, 1, 5, NULL));
	} else {
		OK(rl_recv(comm, b, 8, RL_F32, -1, 5, &from, &request));
		for (done = 0; !done;) OK(rl_test(request, &done));
		CHECK(from == 0 && b[7] == 7);
	}
	OK(rl_barrier(comm, NULL));

	int32_t both[2] = {1, 0}, place = -1;
	OK(rl_group(comm, both, 2, &pair));
	OK(rl_rank(pair, &place));
	CHECK(place == 1 - rank);

	/* A limit that passes leaves the request as it is. */
	if (rank == 0) {
		OK(rl_barrier(pair, &request));
		CHECK(request != 0 && rl_wait(request, 0.01) == RL_ETIMEOUT);
		OK(rl_send(comm, a, 1, RL_F32, 1, 6, NULL));
		OK(rl_wait(request, -1));
		CHECK(rl_wait(request, -1) == RL_ECLOSED); /* it was freed */
	} else {
		OK(rl_recv(comm, b, 1, RL_F32, 0, 6, NULL, NULL));
		OK(rl_barrier(pair, NULL));
	}

	/* Buffers in a window. */
	void *lent = NULL;
	OK(rl_alloc(1 << 20, &lent));
	float *w = lent;
	CHECK(w[0] == 0 && w[(1 << 18) - 1] == 0);
	w[1 << 17] = (float)rank + 1;
	OK(rl_all_reduce(comm, w, w, 1 << 18, RL_F32, RL_SUM, &request));
	OK(rl_wait(request, -1));
	CHECK(w[1 << 17] == 3);
	OK(rl_free(lent));
	OK(rl_free(NULL));
	CHECK(rl_free(b) == RL_EARGUMENT);
	CHECK(rl_alloc(0, &lent) == RL_EARGUMENT && rl_alloc(UINT64_MAX, &lent) == RL_EARGUMENT && rl_alloc(8, NULL) == RL_EARGUMENT);

	uint64_t needed = 0;
	OK(rl_stats(comm, NULL, 0, &needed));
	char *text = malloc(needed);
	OK(rl_stats(comm, text, needed, &needed));
	CHECK(strstr(text, "\"allreduce\",\"count\":3") != NULL);
	free(text);

	/* Bad arguments are errors with a text. */
	CHECK(rl_all_reduce(comm, NULL, b, 8, RL_F32, RL_SUM, NULL) == RL_EARGUMENT);
	CHECK(rl_all_reduce(comm, a, b, 8, 77, RL_SUM, NULL) == RL_EARGUMENT);
	CHECK(rl_all_reduce(comm, a, b, UINT64_MAX, RL_F32, RL_SUM, NULL) == RL_EARGUMENT);
	CHECK(rl_broadcast(comm, b, 8, RL_F32, 9, NULL) == RL_EARGUMENT);
	CHECK(rl_barrier(12345, NULL) == RL_ECLOSED && strlen(rl_last_error()) > 10);
	CHECK(rl_join(NULL, NULL, 0, 1, 0, 0, &pair) == RL_EARGUMENT);
	CHECK(rl_join(NULL, "x", 0, 1, -1, 0, &pair) == RL_EARGUMENT);

	CHECK(rl_rank(comm, NULL) == RL_EARGUMENT && rl_size(comm, NULL) == RL_EARGUMENT);
	CHECK(rl_test(0, NULL) == RL_EARGUMENT && rl_stats(comm, NULL, 0, NULL) == RL_EARGUMENT);

	/* Without a GPU there is no device communicator, and the other one stays. */
	rl_device device = 0;
	rl_message message = {a, 1, RL_F32, 1 - rank, 1};
	CHECK(rl_device_join(comm, 0, &device) != RL_OK && device == 0 && strstr(rl_last_error(), "GPU") != NULL);
	CHECK(rl_device_join(comm, 0, NULL) == RL_EARGUMENT && rl_device_join(12345, 0, &device) == RL_ECLOSED);
	CHECK(rl_device_all_reduce(1, a, b, 8, RL_F32, RL_SUM, NULL) == RL_ECLOSED && rl_device_error(1) == RL_ECLOSED);
	CHECK(rl_device_exchange(1, &message, 1, NULL) == RL_ECLOSED && rl_device_close(1) == RL_ECLOSED);
	CHECK(rl_device_order(1, NULL, NULL) == RL_ECLOSED);
	OK(rl_barrier(comm, NULL));

	/* A forked child that calls gets an error, and disturbs nobody. */
	pid_t child = fork();
	if (child == 0) {
		int refused = rl_barrier(comm, NULL) == RL_EFORKED && strstr(rl_last_error(), "fork") != NULL;
		_exit(refused ? 42 : 1);
	}
	int status = 0;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
	OK(rl_barrier(comm, NULL));

	if (rank == 1) {
		OK(rl_abort(comm, "the test is over"));
	} else {
		CHECK(rl_barrier(comm, NULL) == RL_ECLOSED && strstr(rl_last_error(), "the test is over") != NULL);
	}
	OK(rl_close(comm));
	OK(rl_close(pair));
	CHECK(rl_close(comm) == RL_ECLOSED);
	puts("all is well");
	return 0;
}
