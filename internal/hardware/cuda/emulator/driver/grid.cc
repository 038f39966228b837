#include "grid.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "block.h"
#include "workers.h"

namespace emulator {

void run_grid(const Grid &grid, uint32_t resident)
{
	std::atomic<uint32_t> next{0};
	auto blocks = [&] {
		for (uint32_t b; (b = next.fetch_add(1, std::memory_order_relaxed)) < grid.blocks;)
			run_block(grid, b);
	};
	std::mutex mutex;
	std::condition_variable done;
	uint32_t lent = (grid.blocks < resident ? grid.blocks : resident) - 1, left = lent;
	for (uint32_t i = 0; i < lent; i++)
		lend([&] {
			blocks();
			std::lock_guard<std::mutex> lock(mutex);
			if (--left == 0)
				done.notify_one();
		});
	blocks();
	std::unique_lock<std::mutex> lock(mutex);
	done.wait(lock, [&] { return left == 0; });
}

} // namespace emulator
