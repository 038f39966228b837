// Threads, barriers, votes, shared memory.
#include <math.h>
#include <string.h>

#include <vector>

#include "check.h"

CASE(barriers_and_shared_memory)
{
	use();
	struct {
		Pointer out;
		uint32_t rounds;
	} p{zeros(16 * 8), 20};
	// More blocks than run at the same time.
	launch("test_sums", 16, 96, p);
	for (uint64_t block = 0; block < 16; block++) {
		uint64_t want = 0;
		for (uint64_t round = 0; round < 20; round++)
			for (uint64_t t = 0; t < 96; t++)
				want += block * 1000 + t + round;
		CHECK(read<uint64_t>(p.out + 8 * block) == want);
	}
}

CASE(votes)
{
	use();
	Pointer out = zeros(96 * 4);
	launch("test_votes", 1, 96, out);
	for (uint32_t t = 0; t < 96; t++)
		CHECK(read<uint32_t>(out + 4 * t) == 5u + 32 + (t % 2 == 0));
}

CASE(roles_with_barriers_of_their_own)
{
	use();
	struct {
		Pointer out;
		uint32_t slots;
	} p{zeros(64 * 8), 50};
	launch("test_roles", 1, 128, p);
	for (uint64_t i = 0; i < 64; i++)
		CHECK(read<uint64_t>(p.out + 8 * i) == i * 50 * 51 / 2);
}

CASE(threads_run_in_order)
{
	use();
	constexpr uint32_t n = 96;
	Pointer log = zeros(4 * n * 4);
	launch("test_order", 1, n, log);
	for (uint32_t part = 0; part < 4; part++)
		for (uint32_t t = 0; t < n; t++) {
			uint32_t seen = read<uint32_t>(log + 4 * (part * n + t));
			if (part == 2) // warps in any order, lanes in theirs
				CHECK(seen % 32 == t % 32);
			else
				CHECK(seen == t);
		}
}

CASE(blocks_are_resident)
{
	use();
	struct {
		Pointer came;
		uint64_t rounds;
	} p{zeros(8 * 8), 200};
	launch("test_meet", 8, 64, p);
	CHECK(read<uint64_t>(p.came + 8 * 7) == 200);
}

CASE(compare_and_swap)
{
	use();
	struct {
		Pointer lock, count;
	} p{zeros(4), zeros(4)};
	launch("test_lock", 4, 128, p);
	CHECK(read<uint32_t>(p.count) == 512);
}

CASE(pairs)
{
	use();
	void *stores, *loads;
	OK(cuStreamCreate(&stores, 1));
	OK(cuStreamCreate(&loads, 1));
	struct {
		Pointer at, old;
		uint64_t last;
		uint32_t stores;
	} p{zeros(16), zeros(8), 30000000, 0};
	launch("test_pairs", 1, 1, p, loads);
	p.stores = 1;
	launch("test_pairs", 1, 1, p, stores);
	OK(cuCtxSynchronize());
	CHECK(read<uint64_t>(p.old) == 0);
}

// as_f16 rounds by the arithmetic of doubles.
static uint16_t as_f16(float v)
{
	uint16_t sign = signbit(v) ? 0x8000 : 0;
	double size = fabs(static_cast<double>(v));
	int exponent = size == 0 ? -14 : ilogb(size) < -14 ? -14 : ilogb(size);
	double fraction = nearbyint(ldexp(size, 10 - exponent)); // in units of the last place, ties to even
	double rounded = ldexp(fraction, exponent - 10);
	if (rounded > 65504)
		return sign | 0x7c00;
	if (fraction < 1024)
		return static_cast<uint16_t>(sign | static_cast<int>(fraction));
	if (fraction == 2048) {
		fraction = 1024;
		exponent++;
	}
	return static_cast<uint16_t>(sign | (exponent + 15) << 10 | (static_cast<int>(fraction) - 1024));
}

CASE(f16)
{
	use();
	std::vector<float> in;
	for (uint32_t h = 0; h < 0x7c00; h++) { // every f16, the middle to the next, and beside it
		double v = h < 1024 ? ldexp(h, -24) : ldexp(1024 + h % 1024, static_cast<int>(h / 1024) - 25);
		double next = ldexp(1, (h < 1024 ? 0 : static_cast<int>(h / 1024) - 1) - 25);
		for (double at : {v, v + next})
			for (float f : {static_cast<float>(at), nextafterf(static_cast<float>(at), 0),
					nextafterf(static_cast<float>(at), INFINITY)}) {
				in.push_back(f);
				in.push_back(-f);
			}
	}
	in.push_back(INFINITY);
	in.push_back(1e30f);
	uint32_t n = static_cast<uint32_t>(in.size());
	struct {
		Pointer in, wide, narrow;
		uint32_t count;
	} p{zeros(4 * n), zeros(4 * n), zeros(2 * n), n};
	OK(cuMemcpyHtoD_v2(p.in, in.data(), 4 * n));
	launch("test_convert", 4, 128, p);
	std::vector<uint16_t> narrow(n);
	std::vector<float> wide(n);
	OK(cuMemcpyDtoH_v2(narrow.data(), p.narrow, 2 * n));
	OK(cuMemcpyDtoH_v2(wide.data(), p.wide, 4 * n));
	for (uint32_t i = 0; i < n; i++) {
		CHECK(narrow[i] == (isinf(in[i]) ? 0x7c00 : as_f16(in[i])));
		if (narrow[i] % 0x8000 < 0x7c00)
			CHECK(as_f16(wide[i]) == narrow[i] && fabsf(wide[i] - in[i]) <= 16);
		else
			CHECK(isinf(wide[i]));
	}
}

// Where a GPU would hang, the emulator ends with a message.
CASE(barrier_that_is_never_complete)
{
	use();
	uint32_t count = 64;
	launch("test_forever", 1, 64, count);
	cuCtxSynchronize();
	CHECK(!"it went on");
}

CASE(launches_that_are_refused)
{
	use();
	AddParams add{zeros(8), 0};
	void *params[] = {&add};
	void *f = function("test_add"), *none;
	WANT(1, cuLaunchKernel(f, 0, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
	WANT(1, cuLaunchKernel(f, 1, 1, 1, 129, 1, 1, 0, nullptr, params, nullptr));
	WANT(1, cuLaunchKernel(f, 1, 2, 1, 32, 1, 1, 0, nullptr, params, nullptr));
	WANT(400, cuLaunchKernel(&none, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
	size_t bytes = sizeof add;
	void *extra[] = {reinterpret_cast<void *>(1), &add, reinterpret_cast<void *>(2), &bytes, nullptr};
	OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra));
	bytes--;
	WANT(1, cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra));

	void *module;
	OK(cuModuleLoadData(&module, ".visible .entry test_add(\n.param .b64 p)"));
	OK(cuModuleGetFunction(&f, module, "test_add"));
	WANT(500, cuModuleGetFunction(&f, module, "test_wait")); // in the emulator, not in the module
	WANT(500, cuModuleGetFunction(&f, module, "test_none"));
	OK(cuModuleUnload(module));
	WANT(400, cuModuleUnload(module));
}
