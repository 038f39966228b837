/* One loop for every contender: collectives timed over Ringlane or over an MPI.
 *
 * bench/contenders.py compiles this file against each MPI's mpi.h, with -DRINGLANE against
 * ringlane.h, and with -DBARE against bench/bare.h, where loops stand in for a library. The
 * contenders differ in the few functions of the second part; what is timed, and the barrier
 * before it, is the same code for all. bench/gopeer does the same over Ringlane's Go package:
 * what is changed here is to be changed there.
 *
 *     peers DIRECTORY RANKS SHARES
 *
 * The contenders of a run live side by side and take turns: a rank sleeps in a read of
 * DIRECTORY/RANK until the next command, a line "COLLECTIVE BYTES DTYPE SECONDS USED WINDOW".
 * Rank 0 writes the library's version to DIRECTORY/reply, and for each command a line "CALLS
 * WRONG HOW BEFORE AFTER" with CALLS doubles after it, the seconds of each call. BEFORE and
 * AFTER are the seconds of an empty barrier around the turn: what it takes to hear of all
 * ranks, the least that a call can take. End of file ends the program.
 *
 * DIRECTORY/board is memory of all ranks, for the barrier and for the times. With a barrier
 * of its own, each library would be measured by how unevenly its ranks leave it.
 *
 * SHARES are the CPUs of each rank, "0,1:2,3", or "none" where there are too few. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 64, MAX_CALLS = 20000, MIN_CALLS = 4 };

static void die(const char *what, const char *why)
{
	fprintf(stderr, "peers: %s: %s\n", what, why);
	exit(1);
}

static int named(const char *directory, const char *name, int flags)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	int fd = open(path, flags, 0600);
	if (fd < 0)
		die("open", path);
	return fd;
}

static void *ordinary(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!p)
		die("buffer", "not enough memory");
	return p;
}

/* The collectives. BYTES is the larger of a rank's buffers. */

enum collective { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL, SEND_RECV, COLLECTIVES };

static const char *const names[COLLECTIVES] = {
	"allreduce", "reducescatter", "allgather", "broadcast", "alltoall", "sendrecv",
};

struct call {
	enum collective collective;
	bool bf16;
	void *in, *out; /* the same for broadcast */
	size_t count;   /* as the libraries count: of a part, where there are parts */
	size_t inputs, outputs;
};

static int rank, ranks;
static bool crowded; /* more ranks than CPUs: who waits must let the others run */

/* sendrecv is a message to a neighbour and one back; who has none waits. */
static bool has_peer(void) { return (rank ^ 1) < ranks; }

/* The contenders. */

#ifdef RINGLANE
#include <ringlane.h>

static rl_comm comm;

static void must(int32_t status, const char *what)
{
	if (status != RL_OK)
		die(what, rl_last_error());
}

static int begin(const char *directory)
{
	(void)directory;
	int32_t rank;
	must(rl_join_env(&comm), "join");
	must(rl_rank(comm, &rank), "rank");
	return rank;
}

static void version(char *text, size_t size) { snprintf(text, size, "%s", rl_version()); }

static void *buffer(size_t bytes, bool window)
{
	void *p;
	if (!window)
		return ordinary(bytes);
	must(rl_alloc(bytes, &p), "buffer");
	return p;
}

static void release(void *p, bool window)
{
	if (window)
		must(rl_free(p), "free");
	else
		free(p);
}

static const char *how(bool bf16)
{
	(void)bf16;
	return "native";
}

static inline void perform(const struct call *c)
{
	int32_t type = c->bf16 ? RL_BF16 : RL_F32, status = RL_OK;
	switch (c->collective) {
	case ALL_REDUCE:
		status = rl_all_reduce(comm, c->in, c->out, c->count, type, RL_SUM, NULL);
		break;
	case REDUCE_SCATTER:
		status = rl_reduce_scatter(comm, c->in, c->out, c->count, type, RL_SUM, NULL);
		break;
	case ALL_GATHER:
		status = rl_all_gather(comm, c->in, c->out, c->count, type, NULL);
		break;
	case BROADCAST:
		status = rl_broadcast(comm, c->in, c->count, type, 0, NULL);
		break;
	case ALL_TO_ALL:
		status = rl_all_to_all(comm, c->in, c->out, c->count, type, NULL);
		break;
	default:
		for (int i = 0; i < 2 && has_peer(); i++)
			must((rank + i) % 2 == 0 ? rl_send(comm, c->in, c->count, type, rank ^ 1, 0, NULL)
						 : rl_recv(comm, c->out, c->count, type, rank ^ 1, 0, NULL, NULL),
			     names[SEND_RECV]);
	}
	must(status, names[c->collective]);
}

static void progress(void) {}

static void end(void) { must(rl_close(comm), "close"); }

#elif defined BARE
#include "bare.h"

#else
#include <mpi.h>

#ifdef MPIX_BFLOAT16
#define BF16 MPIX_BFLOAT16
#define BF16_HOW "native"
#else
#define BF16 MPI_UINT16_T
#define BF16_HOW "user-function"

/* What a user of an MPI without bf16 writes: a sum over uint16, rounded to even. */
static void sum_bf16(void *in, void *inout, int *len, MPI_Datatype *type)
{
	const uint16_t *restrict a = in;
	uint16_t *restrict b = inout;
	(void)type;
	for (int i = 0; i < *len; i++) {
		union { uint32_t bits; float value; } x, y;
		x.bits = (uint32_t)a[i] << 16;
		y.bits = (uint32_t)b[i] << 16;
		x.value += y.value;
		b[i] = (uint16_t)((x.bits + 0x7fff + (x.bits >> 16 & 1)) >> 16);
	}
}
#endif

static MPI_Op bf16_sum = MPI_SUM;

static int begin(const char *directory)
{
	(void)directory;
	int rank;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#ifndef MPIX_BFLOAT16
	MPI_Op_create(sum_bf16, 1, &bf16_sum);
#endif
	return rank;
}

static void version(char *text, size_t size)
{
	char all[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;
	MPI_Get_library_version(all, &length);
	snprintf(text, size, "%.*s", (int)strcspn(all, ",\n"), all);
}

static void *buffer(size_t bytes, bool window) { return window ? NULL : ordinary(bytes); }

static void release(void *p, bool window)
{
	(void)window;
	free(p);
}

static const char *how(bool bf16) { return bf16 ? BF16_HOW : "native"; }

static inline void perform(const struct call *c)
{
	MPI_Datatype type = c->bf16 ? BF16 : MPI_FLOAT;
	MPI_Op sum = c->bf16 ? bf16_sum : MPI_SUM;
	int n = (int)c->count, status = MPI_SUCCESS;
	switch (c->collective) {
	case ALL_REDUCE:
		status = MPI_Allreduce(c->in, c->out, n, type, sum, MPI_COMM_WORLD);
		break;
	case REDUCE_SCATTER:
		status = MPI_Reduce_scatter_block(c->in, c->out, n, type, sum, MPI_COMM_WORLD);
		break;
	case ALL_GATHER:
		status = MPI_Allgather(c->in, n, type, c->out, n, type, MPI_COMM_WORLD);
		break;
	case BROADCAST:
		status = MPI_Bcast(c->in, n, type, 0, MPI_COMM_WORLD);
		break;
	case ALL_TO_ALL:
		status = MPI_Alltoall(c->in, n, type, c->out, n, type, MPI_COMM_WORLD);
		break;
	default:
		for (int i = 0; i < 2 && has_peer() && status == MPI_SUCCESS; i++)
			status = (rank + i) % 2 == 0
					 ? MPI_Send(c->in, n, type, rank ^ 1, 0, MPI_COMM_WORLD)
					 : MPI_Recv(c->out, n, type, rank ^ 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	if (status != MPI_SUCCESS)
		die(names[c->collective], "failed");
}

/* An MPI may leave the end of a collective to the next call into it. */
static void progress(void)
{
	int flag;
	MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

static void end(void) { MPI_Finalize(); }
#endif

/* The board. */

struct board {
	struct { _Alignas(64) _Atomic uint64_t passed; } barriers[MAX_RANKS];
	_Alignas(64) _Atomic int last; /* call of the repetition, by rank 0 */
	size_t wrong[MAX_RANKS];
	double seconds[MAX_RANKS][MAX_CALLS];
};

static struct board *board;

static void barrier(void)
{
	uint64_t now = atomic_load_explicit(&board->barriers[rank].passed, memory_order_relaxed) + 1;
	atomic_store_explicit(&board->barriers[rank].passed, now, memory_order_release);
	for (int r = 0; r < ranks; r++) {
		_Atomic uint64_t *passed = &board->barriers[r].passed;
		for (int i = 1; atomic_load_explicit(passed, memory_order_acquire) < now; i++) {
			if (crowded)
				sched_yield();
			if (i % 4096 == 0)
				progress();
		}
	}
}

static double seconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Inputs are small integers, whose sums are exact in both types. */

static unsigned term(int r, size_t i) { return (unsigned)(i + 3 * (size_t)r) & 7; }

static uint16_t to_bf16(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return (uint16_t)(bits >> 16);
}

static void fill(const struct call *c)
{
	if (c->bf16)
		for (size_t i = 0; i < c->inputs; i++)
			((uint16_t *)c->in)[i] = to_bf16((float)term(rank, i));
	else
		for (size_t i = 0; i < c->inputs; i++)
			((float *)c->in)[i] = (float)term(rank, i);
}

static unsigned sum_of_terms(size_t i)
{
	unsigned sum = 0;
	for (int r = 0; r < ranks; r++)
		sum += term(r, i);
	return sum;
}

/* What element i of this rank's output must be. */
static unsigned want(const struct call *c, size_t i)
{
	switch (c->collective) {
	case ALL_REDUCE:
		return sum_of_terms(i);
	case REDUCE_SCATTER:
		return sum_of_terms((size_t)rank * c->count + i);
	case ALL_GATHER:
		return term((int)(i / c->count), i % c->count);
	case BROADCAST:
		return term(0, i);
	case ALL_TO_ALL:
		return term((int)(i / c->count), (size_t)rank * c->count + i % c->count);
	default:
		return term(rank ^ 1, i);
	}
}

static size_t wrong(const struct call *c)
{
	size_t n = 0;
	if (c->collective == SEND_RECV && !has_peer())
		return 0;
	for (size_t i = 0; i < c->outputs; i++) {
		float w = (float)want(c, i);
		n += c->bf16 ? ((const uint16_t *)c->out)[i] != to_bf16(w) : ((const float *)c->out)[i] != w;
	}
	return n;
}

/* Reads every cache line of this rank's output. */
static void use(const struct call *c)
{
	static volatile char sink;
	const char *out = c->out;
	char all = 0;
	for (size_t i = 0; i < c->outputs * (c->bf16 ? 2 : 4); i += 64)
		all ^= out[i];
	sink = all;
}

/* Times calls for a while, leaves this rank's times on the board and returns how many.
 *
 * With `used`, each rank reads its output and writes its input between calls, outside the
 * clock, as the optimizer and the backward pass of a training step do. Buffers that nobody
 * touches would stay in the cache of whoever read or wrote them in the call before, where
 * nobody finds a gradient. */
static int repeat(const struct call *c, bool used, double seconds)
{
	if (rank == 0)
		board->last = -1;
	barrier();
	double begun = seconds_now();
	for (int i = 0;; i++) {
		if (used) {
			use(c);
			fill(c);
		}
		bool enough = i + 1 >= MIN_CALLS && seconds_now() - begun > seconds;
		if (rank == 0 && (enough || i + 1 == MAX_CALLS))
			board->last = i;
		barrier();
		double from = seconds_now();
		perform(c);
		board->seconds[rank][i] = seconds_now() - from;
		if (board->last == i) {
			barrier();
			return i + 1;
		}
	}
}

/* The time of an empty barrier: the least of some batches, since a barrier of which the
 * kernel takes a core away says nothing of the machine. */
static double empty(void)
{
	enum { BATCHES = 10, BARRIERS = 30 };
	double least = 1;
	barrier();
	for (int i = 0; i < BATCHES; i++) {
		double from = seconds_now();
		for (int k = 0; k < BARRIERS; k++)
			barrier();
		double took = (seconds_now() - from) / BARRIERS;
		if (took < least)
			least = took;
	}
	return least;
}

#ifdef BARE
static double median(int calls)
{
	double slowest[MAX_CALLS];
	for (int i = 0; i < calls; i++) {
		slowest[i] = 0;
		for (int r = 0; r < ranks; r++)
			if (slowest[i] < board->seconds[r][i])
				slowest[i] = board->seconds[r][i];
	}
	qsort(slowest, (size_t)calls, sizeof *slowest, ascending);
	return slowest[calls / 2];
}

/* Finds the fastest way for a call: the same on all ranks, who all read the same times. */
static void settle(const struct call *c, bool used, double seconds)
{
	double least = 0;
	const struct way *best = NULL;
	for (way = ways; way < ways + WAYS; way++) {
		double took = median(repeat(c, used, seconds / WAYS));
		barrier(); /* all have read them */
		if (!best || took < least) {
			least = took;
			best = way;
		}
	}
	way = best;
}
#else
static void settle(const struct call *c, bool used, double seconds) { repeat(c, used, seconds); }
#endif

static void write_all(int fd, const void *data, size_t size)
{
	for (const char *p = data; size;) {
		ssize_t n = write(fd, p, size);
		if (n <= 0)
			die("reply", "nobody reads it");
		p += n;
		size -= (size_t)n;
	}
}

static void reply(int fd, int calls, const char *how, double before, double after)
{
	size_t bad = 0;
	for (int r = 0; r < ranks; r++) {
		bad += board->wrong[r];
		for (int i = 0; i < calls; i++) /* the slowest rank counts */
			if (board->seconds[0][i] < board->seconds[r][i])
				board->seconds[0][i] = board->seconds[r][i];
	}
	char line[128];
	snprintf(line, sizeof line, "%d %zu %s %.9f %.9f\n", calls, bad, how, before, after);
	write_all(fd, line, strlen(line));
	write_all(fd, board->seconds[0], (size_t)calls * sizeof(double));
}

static enum collective collective_of(const char *name)
{
	for (int i = 0; i < COLLECTIVES; i++)
		if (!strcmp(names[i], name))
			return i;
	die("collective", name);
	return COLLECTIVES;
}

/* Sets the counts of a call whose larger buffer has so many elements. */
static void size_up(struct call *c, size_t elements)
{
	size_t part = elements / (size_t)ranks;
	bool parts = c->collective == REDUCE_SCATTER || c->collective == ALL_GATHER || c->collective == ALL_TO_ALL;
	c->count = parts ? part : elements;
	c->inputs = c->collective == ALL_GATHER ? part : elements;
	c->outputs = c->collective == REDUCE_SCATTER ? part : elements;
}

static void command(const char *line, int fd)
{
	char name[16], dtype[8];
	size_t bytes;
	double seconds;
	int used, window;
	if (sscanf(line, "%15s %zu %7s %lf %d %d", name, &bytes, dtype, &seconds, &used, &window) != 6)
		die("command", line);
	struct call c = {.collective = collective_of(name), .bf16 = !strcmp(dtype, "bf16")};
	size_t width = c.bf16 ? 2 : 4;
	size_up(&c, bytes / width);
	c.in = buffer(c.inputs * width, window);
	c.out = c.collective == BROADCAST ? c.in : buffer(c.outputs * width, window);
	if (!c.in || !c.out)
		die("buffer", "this library has no windows");
	memset(c.out, 0, c.outputs * width);
	fill(&c);
	settle(&c, used, seconds / 5); /* and warm up */
	double before = empty();
	int calls = repeat(&c, used, seconds);
	double after = empty();
	board->wrong[rank] = wrong(&c);
	barrier();
	if (rank == 0)
		reply(fd, calls, how(c.bf16), before, after);
	release(c.in, window);
	if (c.out != c.in)
		release(c.out, window);
}

/* Keeps rank r in its share of the CPUs: the thread that calls on the first of them, those
 * that the library has started wherever there is room. */
static void pin(const char *shares, int r)
{
	cpu_set_t share, first;
	CPU_ZERO(&share);
	CPU_ZERO(&first);
	for (; r > 0; r--)
		shares = strchr(shares, ':') + 1;
	for (char *p = (char *)shares; *p && *p != ':'; p += *p == ',') {
		unsigned long cpu = strtoul(p, &p, 10);
		if (!CPU_COUNT(&share))
			CPU_SET(cpu, &first);
		CPU_SET(cpu, &share);
	}
	DIR *threads = opendir("/proc/self/task");
	if (!threads)
		die("pin", "there is no /proc");
	for (struct dirent *e; (e = readdir(threads));)
		if (e->d_name[0] != '.')
			sched_setaffinity(atoi(e->d_name), sizeof share, &share);
	closedir(threads);
	sched_setaffinity(0, sizeof first, &first);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		die("arguments", "DIRECTORY RANKS SHARES");
	ranks = atoi(argv[2]);
	if (ranks < 1 || ranks > MAX_RANKS)
		die("arguments", "too many ranks");
	crowded = !strcmp(argv[3], "none");
	rank = begin(argv[1]);
	if (!crowded)
		pin(argv[3], rank);

	int fd = named(argv[1], "board", O_RDWR | O_CREAT);
	if (ftruncate(fd, sizeof *board))
		die("board", "not enough memory");
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (board == MAP_FAILED)
		die("board", "cannot be mapped");

	char line[256];
	int answers = named(argv[1], "reply", O_WRONLY);
	snprintf(line, sizeof line, "%d", rank);
	FILE *commands = fdopen(named(argv[1], line, O_RDONLY), "r");
	barrier(); /* all have opened their files, which may go now */
	if (rank == 0) {
		version(line, sizeof line - 1);
		strcat(line, "\n");
		write_all(answers, line, strlen(line));
	}
	while (fgets(line, sizeof line, commands))
		command(line, answers);
	end();
	return 0;
}
