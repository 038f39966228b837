/* The contender "bare": AllReduce by loops over shared memory that check nothing, wait for
 * ever and name nobody. What they take is what the machine takes; a library cannot be much
 * faster with the same copies, and should not be much slower.
 *
 * Each size is tried in every way that there is, and timed by the fastest. Ordinary buffers
 * go by one-shot (all write their input, all reduce all) or direct (each reduces its chunk,
 * sends before and copies after run a segment ahead and behind). Readers may claim lines,
 * take hold of them as if to write, which spares the next writer the way to them; or writers
 * may go past the caches; or sums may be answers, which go back in the slots that brought
 * the inputs. Buffers in a window are read and written where they lie. */
#pragma once
#include <stdint.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define BARE_MEMORY ((size_t)1 << 20) /* of a rank's slots for each other rank, and of its own */

enum { PIECE = 8 << 10, SLOTS = 4, BUFFER_MIB = 256, WAYS = 11 };
enum { PLAIN, CLAIMED, PAST, ANSWERS };

static const struct way { const char *name; bool oneshot; int lines; size_t segment; } ways[WAYS] = {
	{"oneshot", true, PLAIN, 64 << 10},	   {"oneshot-claimed", true, CLAIMED, 64 << 10},
	{"oneshot-past", true, PAST, 64 << 10},	   {"direct-64K", false, PLAIN, 64 << 10},
	{"direct-64K-claimed", false, CLAIMED, 64 << 10}, {"direct-64K-past", false, PAST, 64 << 10},
	{"direct-256K", false, PLAIN, 256 << 10},  {"direct-256K-claimed", false, CLAIMED, 256 << 10},
	{"direct-256K-past", false, PAST, 256 << 10},	  {"direct-64K-answers", false, ANSWERS, 64 << 10},
	{"direct-256K-answers", false, ANSWERS, 256 << 10},
};

struct flag { _Alignas(128) _Atomic uint64_t count; };

/* Counts since the start: segments that a rank has sent each other one, and shown to all. */
static struct { struct flag sent[MAX_RANKS][MAX_RANKS], shown[MAX_RANKS]; } *flags;

static char *memory;
static int handed; /* buffers in a window */
static uint64_t segments;
static const struct way *way = ways;

static size_t slots_bytes(void) { return BARE_MEMORY * (size_t)ranks; }
static size_t area_bytes(void) { return slots_bytes() + ((size_t)2 * BUFFER_MIB << 20); }

/* The slot of segment g from one rank for another, or with reader = writer for all. */
static char *slot(int writer, int reader, uint64_t g)
{
	return memory + area_bytes() * (size_t)writer + BARE_MEMORY * (size_t)reader + BARE_MEMORY / SLOTS * (g % SLOTS);
}

static char *window(int r, bool out)
{
	return memory + area_bytes() * (size_t)r + slots_bytes() + (out ? (size_t)BUFFER_MIB << 20 : 0);
}

static int begin(const char *directory)
{
	const char *own = getenv("RINGLANE_RANK");
	int r = own ? atoi(own) : 0, fd = named(directory, "bare", O_RDWR | O_CREAT);
	size_t all = area_bytes() * (size_t)ranks;
	if (ftruncate(fd, (off_t)(all + sizeof *flags)))
		die("memory", "cannot be had");
	memory = mmap(NULL, all + sizeof *flags, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (memory == MAP_FAILED)
		die("memory", "cannot be mapped");
	flags = (void *)(memory + all);
	return r;
}

static void version(char *text, size_t size) { snprintf(text, size, "gcc %s", __VERSION__); }

static void *buffer(size_t bytes, bool in_window)
{
	if (!in_window)
		return ordinary(bytes);
	if (bytes > (size_t)BUFFER_MIB << 20)
		die("buffer", "windows of this size are not prepared");
	return window(rank, handed++ % 2);
}

static void release(void *p, bool in_window)
{
	if (!in_window)
		free(p);
}

static const char *how(bool bf16)
{
	(void)bf16;
	return way->name;
}

static void progress(void) {}

static void end(void) {}

static inline void tell(struct flag *f, uint64_t count) { atomic_store_explicit(&f->count, count, memory_order_release); }

/* A look takes the line away from who is about to write to it, so the first is not at once. */
static inline void hear(struct flag *f, uint64_t count)
{
	do {
#ifdef __x86_64__
		__builtin_ia32_pause();
#endif
		if (crowded)
			sched_yield();
	} while (atomic_load_explicit(&f->count, memory_order_acquire) < count);
}

static inline void claim(const char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 64) {
#ifdef __AVX512F__
		/* A store with an empty mask, and whether it is that is not for the compiler to see. */
		unsigned short none = 0;
		__asm__ volatile("kmovw %k0, %%k1\n\tvmovdqu32 %%zmm0, (%1)%{%%k1%}" ::"r"((unsigned)none), "r"(p + i) : "k1", "memory");
#else
		__builtin_prefetch(p + i, 1);
#endif
	}
}

/* Writes to a slot, or to a peer's window. */
static inline void put(char *to, const char *from, size_t bytes)
{
	size_t at = 0;
#ifdef __AVX512F__
	if (way->lines == PAST && (uintptr_t)to % 64 == 0)
		for (; at + 64 <= bytes; at += 64)
			_mm512_stream_si512((void *)(to + at), _mm512_loadu_si512(from + at));
#endif
	memcpy(to + at, from + at, bytes - at);
}

/* What was put is there before what follows. */
static inline void settled(void)
{
#ifdef __AVX512F__
	if (way->lines == PAST)
		_mm_sfence();
#endif
}

/* Adds terms of one piece, in their order. */
static void add(const struct call *c, char *restrict out, const char *const *terms, size_t bytes)
{
	size_t n = bytes / (c->bf16 ? 2 : 4);
	if (!c->bf16) {
		float *restrict o = (float *)out;
		const float *a = (const float *)terms[0], *b = (const float *)terms[1];
		for (size_t i = 0; i < n; i++)
			o[i] = a[i] + b[i];
		for (int t = 2; t < ranks; t++)
			for (size_t i = 0; i < n; i++)
				o[i] += ((const float *)terms[t])[i];
		return;
	}
	static float sum[PIECE / 2];
	for (int t = 0; t < ranks; t++)
		for (size_t i = 0; i < n; i++) {
			union { uint32_t bits; float value; } x = {(uint32_t)((const uint16_t *)terms[t])[i] << 16};
			sum[i] = t ? sum[i] + x.value : x.value;
		}
	for (size_t i = 0; i < n; i++) {
		union { float value; uint32_t bits; } x = {sum[i]};
		((uint16_t *)out)[i] = (uint16_t)((x.bits + 0x7fff + (x.bits >> 16 & 1)) >> 16);
	}
}

/* Adds what each rank has at its place, a piece at a time, to out and to copies. */
static void reduce(const struct call *c, char *out, const char *const *from, size_t bytes, uint64_t claimed, char *const *copies)
{
	const char *terms[MAX_RANKS];
	for (size_t at = 0; at < bytes; at += PIECE) {
		size_t n = bytes - at < PIECE ? bytes - at : PIECE;
		for (int r = 0; r < ranks; r++) {
			terms[r] = from[r] + at;
			if (claimed >> r & 1)
				claim(terms[r], n);
		}
		add(c, out + at, terms, n);
		for (char *const *to = copies; *to; to++)
			put(*to + at, out + at, n);
	}
	settled();
}

static void copy(char *out, const char *in, size_t bytes, bool claims)
{
	for (size_t at = 0; at < bytes; at += PIECE) {
		size_t n = bytes - at < PIECE ? bytes - at : PIECE;
		if (claims)
			claim(in + at, n);
		memcpy(out + at, in + at, n);
	}
}

static void oneshot(const struct call *c, size_t bytes)
{
	char *none[] = {NULL};
	for (size_t at = 0; at < bytes; at += way->segment) {
		size_t n = bytes - at < way->segment ? bytes - at : way->segment;
		const char *from[MAX_RANKS];
		uint64_t g = segments++;
		put(slot(rank, rank, g), (char *)c->in + at, n);
		settled();
		tell(&flags->shown[rank], g + 1);
		for (int r = 0; r < ranks; r++) {
			from[r] = r == rank ? (char *)c->in + at : slot(r, r, g);
			hear(&flags->shown[r], g + 1);
		}
		reduce(c, (char *)c->out + at, from, n, way->lines == CLAIMED && ranks == 2 ? 1u << (1 - rank) : 0, none);
	}
}

/* The part of segment s of a rank's chunk. */
struct part { size_t at, bytes; };

static struct part part(size_t bytes, int r, size_t s)
{
	size_t chunk = (bytes / (size_t)ranks + 63) / 64 * 64, first = chunk * (size_t)r + s * way->segment;
	size_t last = chunk * (size_t)(r + 1) < bytes ? chunk * (size_t)(r + 1) : bytes;
	if (first >= last)
		return (struct part){first, 0};
	return (struct part){first, last - first < way->segment ? last - first : way->segment};
}

static void direct(const struct call *c, size_t bytes)
{
	size_t all = ((bytes / (size_t)ranks + 63) / 64 * 64 + way->segment - 1) / way->segment, sent = 0;
	uint64_t first = segments, claimed = way->lines == CLAIMED ? ~(1ull << rank) : 0;
	segments += all;
	for (size_t s = 0; s <= all; s++) {
		for (; sent < all && sent <= s + 1; sent++)
			for (int k = 1; k < ranks; k++) {
				int r = (rank + k) % ranks;
				struct part p = part(bytes, r, sent);
				put(slot(rank, r, first + sent), (char *)c->in + p.at, p.bytes);
				settled();
				tell(&flags->sent[rank][r], first + sent + 1);
			}
		if (s < all) {
			struct part p = part(bytes, rank, s);
			const char *from[MAX_RANKS];
			char *copies[MAX_RANKS + 1] = {slot(rank, rank, first + s), NULL}, **to = copies;
			for (int r = 0; r < ranks; r++) {
				if (r != rank && way->lines == ANSWERS) {
					*to++ = slot(r, rank, first + s);
					*to = NULL;
				}
				from[r] = r == rank ? (char *)c->in + p.at : slot(r, rank, first + s);
				if (r != rank)
					hear(&flags->sent[r][rank], first + s + 1);
			}
			reduce(c, (char *)c->out + p.at, from, p.bytes, claimed, copies);
			tell(&flags->shown[rank], first + s + 1);
		}
		for (int k = 1; k < ranks && s > 0; k++) {
			int r = (rank + k) % ranks;
			struct part p = part(bytes, r, s - 1);
			hear(&flags->shown[r], first + s);
			copy((char *)c->out + p.at, slot(way->lines == ANSWERS ? rank : r, r, first + s - 1), p.bytes, way->lines == CLAIMED && ranks == 2);
		}
	}
}

/* All are here; each reduces its chunk into everyone's output; all are done. */
static void in_windows(const struct call *c, size_t bytes)
{
	uint64_t g = segments;
	segments += 2;
	tell(&flags->shown[rank], g + 1);
	size_t chunk = (bytes / (size_t)ranks + 63) / 64 * 64, at = chunk * (size_t)rank;
	size_t n = at >= bytes ? 0 : bytes - at < chunk ? bytes - at : chunk;
	const char *from[MAX_RANKS];
	char *copies[MAX_RANKS];
	int others = 0;
	for (int r = 0; r < ranks; r++) {
		from[r] = window(r, false) + at;
		if (r != rank)
			copies[others++] = window(r, true) + at;
		hear(&flags->shown[r], g + 1);
	}
	copies[others] = NULL;
	reduce(c, (char *)c->out + at, from, n, way->lines == CLAIMED ? ~(1ull << rank) : 0, copies);
	tell(&flags->shown[rank], g + 2);
	for (int r = 0; r < ranks; r++)
		hear(&flags->shown[r], g + 2);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void perform(const struct call *c)
{
	size_t bytes = c->count * (c->bf16 ? 2 : 4);
	if (c->collective != ALL_REDUCE)
		die(names[c->collective], "is not there");
	if (c->in == window(rank, false) && !way->oneshot)
		in_windows(c, bytes);
	else if (way->oneshot)
		oneshot(c, bytes);
	else
		direct(c, bytes);
}
