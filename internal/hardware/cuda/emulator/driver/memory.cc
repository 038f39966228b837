// Device memory is a file without a name, so that another process can map it and
// nothing is left of it when the last process that has is gone, however it ended.
#include "memory.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "driver.h"
#include "fail.h"

namespace emulator {

// Fresh memory of a GPU holds anything. The start of a range is filled, which
// is enough for a program that takes it for zeros to be found out.
static constexpr unsigned char fresh = 0xa5;
static constexpr size_t filled = 1 << 20;

Status Memory::allocate(Context *context, size_t bytes, uintptr_t *at)
{
	if (bytes == 0)
		return invalid_value;
	size_t limit = driver().settings.memory;
	if (bytes > limit || used(context->gpu) + whole_pages(bytes) > limit)
		return out_of_memory;
	int fd = memfd_create("ringlane-emulator", MFD_CLOEXEC);
	if (fd < 0)
		return operating_system;
	size_t mapped = whole_pages(bytes);
	struct stat file;
	void *memory = MAP_FAILED;
	if (ftruncate(fd, static_cast<off_t>(mapped)) == 0 && fstat(fd, &file) == 0)
		memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		close(fd);
		return out_of_memory;
	}
	memset(memory, fresh, mapped < filled ? mapped : filled);
	*at = reinterpret_cast<uintptr_t>(memory);
	enter(*at, Range{Range::device, bytes, mapped, context, context->gpu, fd, 0, 0, file.st_ino});
	return ok;
}

void Memory::enter(uintptr_t at, Range range)
{
	range.id = ++last_id;
	ranges[at] = range;
}

void Memory::release(uintptr_t at)
{
	Range *range = exact(at);
	heal(at);
	if (range->mapped > 0)
		munmap(reinterpret_cast<void *>(at), range->mapped);
	if (range->fd >= 0)
		close(range->fd);
	ranges.erase(at);
}

std::pair<const uintptr_t, Range> *Memory::find(uintptr_t at, size_t bytes)
{
	auto next = ranges.upper_bound(at);
	if (next == ranges.begin())
		return nullptr;
	auto &entry = *--next;
	size_t offset = at - entry.first;
	if (offset >= entry.second.bytes || bytes > entry.second.bytes - offset)
		return nullptr;
	return &entry;
}

Range *Memory::exact(uintptr_t at)
{
	auto entry = ranges.find(at);
	return entry == ranges.end() ? nullptr : &entry->second;
}

bool Memory::overlaps(uintptr_t at, size_t bytes)
{
	auto next = ranges.lower_bound(at + bytes);
	if (next == ranges.begin())
		return false;
	--next;
	return next->first + next->second.bytes > at;
}

uint64_t Memory::used(int gpu) const
{
	uint64_t bytes = 0;
	for (const auto &entry : ranges)
		if (entry.second.kind == Range::device && entry.second.owner == gpu)
			bytes += entry.second.mapped;
	return bytes;
}

// What kernels ask without a lock, once corrupting is set.
bool corrupting;

namespace {

// Damage is a range in one word, since kernels look at it while it changes: the
// number of its first page, and how many pages there are. 0 is none.
constexpr int page_bits = 12, count_bits = 28;
std::atomic<uint64_t> damages[256];
std::atomic<size_t> damaged; // how many of them have been used

uint64_t first_page(uint64_t damage) { return damage >> count_bits; }
uint64_t pages(uint64_t damage) { return damage & ((1u << count_bits) - 1); }

constexpr uint64_t wrong = 0x5a;

bool is_damaged(uintptr_t at)
{
	size_t n = damaged.load(std::memory_order_acquire);
	for (size_t i = 0; i < n; i++) {
		uint64_t damage = damages[i].load(std::memory_order_relaxed);
		if ((at >> page_bits) - first_page(damage) < pages(damage))
			return true;
	}
	return false;
}

} // namespace

void damage(uintptr_t at, size_t bytes)
{
	size_t n = damaged.load(), i = 0;
	while (i < n && damages[i] != 0)
		i++;
	if (i == sizeof damages / sizeof *damages)
		fail("more than %zu ranges are open across paths that corrupt", i);
	damages[i] = (at >> page_bits) << count_bits | bytes >> page_bits;
	if (i == n)
		damaged = n + 1;
	__atomic_store_n(&corrupting, true, __ATOMIC_RELEASE);
}

void heal(uintptr_t at)
{
	for (size_t i = 0; i < damaged.load(); i++)
		if (damages[i] != 0 && first_page(damages[i]) == at >> page_bits)
			damages[i] = 0;
}

uint64_t corrupt(const void *at, uint64_t word)
{
	return is_damaged(reinterpret_cast<uintptr_t>(at)) ? (word & ~0xffull) | wrong : word;
}

void move(void *to, const void *from, size_t bytes)
{
	memmove(to, from, bytes);
	if (!__atomic_load_n(&corrupting, __ATOMIC_ACQUIRE))
		return;
	uintptr_t t = reinterpret_cast<uintptr_t>(to), f = reinterpret_cast<uintptr_t>(from);
	for (size_t i = 0; i < bytes; i++)
		if (((t + i) % 16 == 0 && is_damaged(t + i)) || ((f + i) % 16 == 0 && is_damaged(f + i)))
			static_cast<unsigned char *>(to)[i] = wrong;
}

} // namespace emulator
