/* One loop for every contender: AllReduce timed over Ringlane or over an MPI.
 *
 * bench/contenders.py compiles this file against each MPI's mpi.h and, with -DRINGLANE,
 * against ringlane.h. The contenders differ in the few functions of the first part; what is
 * timed, and the barrier before it, is the same code for all.
 *
 *     peers DIRECTORY RANKS CPU[,CPU...]
 *
 * The contenders of a run live side by side and take turns: a rank sleeps in a read of
 * DIRECTORY/RANK until the next command, a line "BYTES DTYPE SECONDS FRESH WINDOW". Rank 0
 * writes the library's version to DIRECTORY/reply, and for each command a line "CALLS WRONG
 * HOW BARRIER" with CALLS doubles after it, the seconds of each call. BARRIER is the seconds
 * of an empty barrier: what it takes to hear of all ranks, the least that a call can take.
 * End of file ends the program.
 *
 * DIRECTORY/board is memory of all ranks, for the barrier and for the times. With a barrier
 * of its own, each library would be measured by how unevenly its ranks leave it. */
#define _GNU_SOURCE
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

static void *ordinary(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!p)
		die("buffer", "not enough memory");
	return p;
}

/* The contenders. */

#ifdef RINGLANE
#include <ringlane.h>

static rl_comm comm;

static void must(int32_t status, const char *what)
{
	if (status != RL_OK)
		die(what, rl_last_error());
}

static int begin(void)
{
	int32_t rank;
	must(rl_join_env(&comm), "join");
	must(rl_rank(comm, &rank), "rank");
	return rank;
}

static void version(char *text, size_t size) { snprintf(text, size, "%s", rl_version()); }

static void *buffer(size_t bytes, bool window)
{
#ifdef WINDOWS
	void *p;
	if (window) {
		must(rl_alloc(bytes, &p), "buffer");
		return p;
	}
#endif
	return window ? NULL : ordinary(bytes);
}

static void release(void *p, bool window)
{
#ifdef WINDOWS
	if (window) {
		must(rl_free(p), "free");
		return;
	}
#endif
	(void)window;
	free(p);
}

static const char *reduced_by(bool bf16)
{
	(void)bf16;
	return "native";
}

static inline void all_reduce(const void *in, void *out, size_t count, bool bf16)
{
	must(rl_all_reduce(comm, in, out, count, bf16 ? RL_BF16 : RL_F32, RL_SUM, NULL), "all-reduce");
}

static void progress(void) {}

static void end(void) { must(rl_close(comm), "close"); }

#else
#include <mpi.h>

#ifdef MPIX_BFLOAT16
#define BF16 MPIX_BFLOAT16
#define BF16_REDUCED_BY "native"
#else
#define BF16 MPI_UINT16_T
#define BF16_REDUCED_BY "user-function"

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

static int begin(void)
{
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

static const char *reduced_by(bool bf16) { return bf16 ? BF16_REDUCED_BY : "native"; }

static inline void all_reduce(const void *in, void *out, size_t count, bool bf16)
{
	if (MPI_Allreduce(in, out, (int)count, bf16 ? BF16 : MPI_FLOAT, bf16 ? bf16_sum : MPI_SUM,
			  MPI_COMM_WORLD) != MPI_SUCCESS)
		die("MPI_Allreduce", "failed");
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
static int rank, ranks;
static bool crowded; /* more ranks than CPUs: who waits must let the others run */

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

static void fill(void *in, size_t count, bool bf16)
{
	if (bf16)
		for (size_t i = 0; i < count; i++)
			((uint16_t *)in)[i] = to_bf16((float)term(rank, i));
	else
		for (size_t i = 0; i < count; i++)
			((float *)in)[i] = (float)term(rank, i);
}

static size_t wrong(const void *out, size_t count, bool bf16)
{
	size_t n = 0;
	for (size_t i = 0; i < count; i++) {
		unsigned want = 0;
		for (int r = 0; r < ranks; r++)
			want += term(r, i);
		n += bf16 ? ((const uint16_t *)out)[i] != to_bf16((float)want)
			  : ((const float *)out)[i] != (float)want;
	}
	return n;
}

/* Times calls for a while, leaves this rank's times on the board and returns how many.
 *
 * With `fresh`, each rank writes its input before each call, outside the clock, as the
 * backward pass of a training step does. Input that stays as it is would lie in the caches
 * of all ranks from the call before, where nobody finds a gradient. */
static int repeat(void *in, void *out, size_t count, bool bf16, bool fresh, double seconds)
{
	if (rank == 0)
		board->last = -1;
	barrier();
	double begun = seconds_now();
	for (int i = 0;; i++) {
		if (fresh)
			fill(in, count, bf16);
		bool enough = i + 1 >= MIN_CALLS && seconds_now() - begun > seconds;
		if (rank == 0 && (enough || i + 1 == MAX_CALLS))
			board->last = i;
		barrier();
		double from = seconds_now();
		all_reduce(in, out, count, bf16);
		board->seconds[rank][i] = seconds_now() - from;
		if (board->last == i) {
			barrier();
			return i + 1;
		}
	}
}

/* The time of one of many barriers. */
static double empty(void)
{
	enum { BARRIERS = 200 };
	barrier();
	double from = seconds_now();
	for (int i = 0; i < BARRIERS; i++)
		barrier();
	return (seconds_now() - from) / BARRIERS;
}

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

static void reply(int fd, int calls, const char *how, double idle)
{
	size_t bad = 0;
	for (int r = 0; r < ranks; r++) {
		bad += board->wrong[r];
		for (int i = 0; i < calls; i++) /* the slowest rank counts */
			if (board->seconds[0][i] < board->seconds[r][i])
				board->seconds[0][i] = board->seconds[r][i];
	}
	char line[128];
	snprintf(line, sizeof line, "%d %zu %s %.9f\n", calls, bad, how, idle);
	write_all(fd, line, strlen(line));
	write_all(fd, board->seconds[0], (size_t)calls * sizeof(double));
}

static void command(const char *line, int fd)
{
	size_t bytes;
	char dtype[8];
	double seconds;
	int fresh, window;
	if (sscanf(line, "%zu %7s %lf %d %d", &bytes, dtype, &seconds, &fresh, &window) != 5)
		die("command", line);
	bool bf16 = !strcmp(dtype, "bf16");
	size_t count = bytes / (bf16 ? 2 : 4);
	void *in = buffer(bytes, window), *out = buffer(bytes, window);
	if (!in || !out)
		die("buffer", "this library has no windows");
	fill(in, count, bf16);
	memset(out, 0, bytes);
	repeat(in, out, count, bf16, fresh, seconds / 5); /* warm */
	double idle = empty();
	int calls = repeat(in, out, count, bf16, fresh, seconds);
	board->wrong[rank] = wrong(out, count, bf16);
	barrier();
	if (rank == 0)
		reply(fd, calls, reduced_by(bf16), idle);
	release(in, window);
	release(out, window);
}

/* Keeps rank r on the r-th of the CPUs, as long as there are enough. Returns how many. */
static int pin(const char *cpus, int r)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	int n = 0;
	for (char *p = (char *)cpus; *p; p += *p == ',') {
		unsigned long cpu = strtoul(p, &p, 10);
		if (n++ == r)
			CPU_SET(cpu, &set);
	}
	if (CPU_COUNT(&set) && ranks <= n)
		sched_setaffinity(0, sizeof set, &set);
	return n;
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

int main(int argc, char **argv)
{
	if (argc != 4)
		die("arguments", "DIRECTORY RANKS CPU,...");
	ranks = atoi(argv[2]);
	if (ranks < 1 || ranks > MAX_RANKS)
		die("arguments", "too many ranks");
	rank = begin();
	crowded = pin(argv[3], rank) < ranks;

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
