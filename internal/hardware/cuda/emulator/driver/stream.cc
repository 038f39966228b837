#include "stream.h"

#include "lane.h"
#include "workers.h"

namespace emulator {

void Stream::enqueue(Work work)
{
	std::lock_guard<std::mutex> lock(mutex);
	queue.push_back(std::move(work));
	put++;
	if (!started) {
		started = true;
		start([self = shared_from_this()] { self->serve(); });
	}
	changed.notify_all();
}

void Stream::serve()
{
	std::unique_lock<std::mutex> lock(mutex);
	for (;;) {
		changed.wait(lock, [this] { return !queue.empty() || closed; });
		if (queue.empty())
			return;
		{
			Work work = std::move(queue.front());
			queue.pop_front();
			lock.unlock();
			work();
		}
		lock.lock();
		done++;
		changed.notify_all();
	}
}

void Stream::wait()
{
	std::unique_lock<std::mutex> lock(mutex);
	uint64_t target = put;
	changed.wait(lock, [&] { return done >= target; });
}

bool Stream::idle()
{
	std::lock_guard<std::mutex> lock(mutex);
	return done == put;
}

void Stream::close()
{
	std::lock_guard<std::mutex> lock(mutex);
	closed = true;
	changed.notify_all();
}

uint64_t Event::record()
{
	std::lock_guard<std::mutex> lock(mutex);
	pending.insert(++recorded);
	return recorded;
}

void Event::complete(uint64_t recording)
{
	std::lock_guard<std::mutex> lock(mutex);
	pending.erase(recording);
	if (recording == recorded)
		time = now();
	changed.notify_all();
}

void Event::wait(uint64_t recording)
{
	std::unique_lock<std::mutex> lock(mutex);
	changed.wait(lock, [&] { return !pending.count(recording); });
}

uint64_t Event::latest()
{
	std::lock_guard<std::mutex> lock(mutex);
	return recorded;
}

bool Event::query()
{
	std::lock_guard<std::mutex> lock(mutex);
	return !pending.count(recorded);
}

uint64_t Event::when()
{
	std::lock_guard<std::mutex> lock(mutex);
	return time;
}

} // namespace emulator
