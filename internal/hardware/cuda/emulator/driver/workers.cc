#include "workers.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "fail.h"

namespace emulator {

static void *run(void *argument)
{
	std::function<void()> *work = static_cast<std::function<void()> *>(argument);
	(*work)();
	delete work;
	return nullptr;
}

void start(std::function<void()> work)
{
	sigset_t blocked, before;
	sigfillset(&blocked);
	for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
		sigdelset(&blocked, own);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_t thread;
	if (pthread_create(&thread, &attributes, run, new std::function<void()>(std::move(work))) != 0)
		fail("no thread can be started");
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

namespace {

struct Pool {
	std::mutex mutex;
	std::condition_variable more;
	std::deque<std::function<void()>> queue;
	size_t idle = 0;

	void serve()
	{
		std::unique_lock<std::mutex> lock(mutex);
		for (;;) {
			while (queue.empty()) {
				idle++;
				more.wait(lock);
				idle--;
			}
			std::function<void()> work = std::move(queue.front());
			queue.pop_front();
			lock.unlock();
			work();
			lock.lock();
		}
	}
};

} // namespace

void lend(std::function<void()> work)
{
	static Pool *pool = new Pool; // never destroyed: its threads outlive static objects
	std::lock_guard<std::mutex> lock(pool->mutex);
	pool->queue.push_back(std::move(work));
	if (pool->queue.size() > pool->idle)
		start([] { pool->serve(); });
	else
		pool->more.notify_one();
}

} // namespace emulator
