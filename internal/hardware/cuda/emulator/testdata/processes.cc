// Several processes on the memory of several GPUs.
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "check.h"

// Ranks are processes that hold a line to each other; they are forked before the
// driver is used.
struct Ranks {
	int rank, size;
	std::vector<std::vector<int>> lines; // [rank][peer]
	std::vector<pid_t> children;

	Ranks(int size, std::function<void(Ranks &)> body) : size(size), lines(size, std::vector<int>(size, -1))
	{
		for (int a = 0; a < size; a++)
			for (int b = a + 1; b < size; b++) {
				int ends[2];
				CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
				lines[a][b] = ends[0];
				lines[b][a] = ends[1];
			}
		for (rank = 0; rank < size; rank++) {
			pid_t child = fork();
			CHECK(child >= 0);
			if (child != 0) {
				children.push_back(child);
				continue;
			}
			for (int a = 0; a < size; a++)
				for (int line : lines[a])
					if (a != rank)
						close(line);
			body(*this);
			_exit(0);
		}
		for (auto &row : lines)
			for (int line : row)
				close(line);
	}

	// wait checks how each rank ended.
	void wait(std::vector<int> want)
	{
		for (int i = 0; i < size; i++) {
			int status;
			CHECK(waitpid(children[i], &status, 0) == children[i]);
			CHECK(status == want[i]);
		}
	}

	template <class T> void say(int peer, T value)
	{
		CHECK(write(lines[rank][peer], &value, sizeof value) == sizeof value);
	}
	template <class T> T hear(int peer)
	{
		T value;
		CHECK(recv(lines[rank][peer], &value, sizeof value, MSG_WAITALL) == sizeof value);
		return value;
	}
	void meet()
	{
		for (int peer = 0; peer < size; peer++)
			if (peer != rank)
				say(peer, 'x');
		for (int peer = 0; peer < size; peer++)
			if (peer != rank)
				CHECK(hear<char>(peer) == 'x');
	}
	// share gives a peer memory and returns the peer's.
	Pointer share(int peer, Pointer own)
	{
		Handle handle;
		Pointer at;
		OK(cuIpcGetMemHandle(&handle, own));
		say(peer, handle);
		OK(cuIpcOpenMemHandle_v2(&at, hear<Handle>(peer), 1));
		return at;
	}
};

struct RowsParams {
	Pointer outbox[3], inbox[3];
	Pointer sum, late;
	uint64_t first, rounds, nanoseconds;
	uint32_t count, rank;
};

// rows has all ranks send rows to each other, in several launches.
static void rows(Ranks &r, unsigned blocks, unsigned threads, uint64_t rounds, int launches)
{
	use(r.rank % 2);
	size_t bytes = 2 * blocks * threads * 16;
	RowsParams p{};
	p.sum = zeros(8 * blocks * threads);
	p.late = zeros(8);
	p.rounds = rounds;
	p.nanoseconds = 120 * second;
	p.rank = static_cast<uint32_t>(r.rank);
	uint64_t ranks = 0;
	for (int peer = 0; peer < r.size; peer++) {
		if (peer == r.rank)
			continue;
		ranks += static_cast<uint64_t>(peer);
		p.inbox[p.count] = zeros(bytes);
		p.outbox[p.count] = r.share(peer, p.inbox[p.count]);
		p.count++;
	}
	r.meet();
	for (int i = 0; i < launches; i++) {
		p.first = 1 + static_cast<uint64_t>(i) * rounds;
		launch("test_rows", blocks, threads, p);
	}
	OK(cuCtxSynchronize());
	CHECK(read<uint64_t>(p.late) == 0);
	uint64_t all = rounds * static_cast<uint64_t>(launches);
	for (unsigned t = 0; t < blocks * threads; t++)
		CHECK(read<uint64_t>(p.sum + 8 * t) == p.count * all * (all + 1) / 2 * 100 + all * ranks);
	r.meet(); // before memory that others write to is gone
	for (uint32_t i = 0; i < p.count; i++)
		OK(cuIpcCloseMemHandle(p.outbox[i]));
}

CASE(two_processes)
{
	Ranks(2, [](Ranks &r) { rows(r, 4, 128, 100, 10); }).wait({0, 0});
}

CASE(four_processes)
{
	Ranks(4, [](Ranks &r) { rows(r, 4, 128, 20, 10); }).wait({0, 0, 0, 0});
}

CASE(handles)
{
	Ranks(2, [](Ranks &r) {
		use();
		Handle handle;
		Pointer own = zeros(6000), at, again, base;
		size_t bytes;
		OK(cuIpcGetMemHandle(&handle, own + 100)); // of the whole
		WANT(201, cuIpcOpenMemHandle_v2(&at, handle, 1));
		WANT(1, cuIpcGetMemHandle(&handle, reinterpret_cast<Pointer>(&handle)));
		r.say(1 - r.rank, handle);
		Handle other = r.hear<Handle>(1 - r.rank);
		OK(cuIpcOpenMemHandle_v2(&at, other, 1));
		OK(cuIpcOpenMemHandle_v2(&again, other, 1));
		CHECK(again == at);
		WANT(1, cuIpcOpenMemHandle_v2(&again, other, 0));
		OK(cuMemGetAddressRange_v2(&base, &bytes, at + 5999));
		CHECK(base == at && bytes == 6000);
		WANT(1, cuMemFree_v2(at));
		OK(cuMemsetD32_v2(at, 7, 1500));
		r.meet();
		CHECK(read<uint32_t>(own + 4 * 1499) == 7);
		OK(cuIpcCloseMemHandle(at));
		OK(cuIpcCloseMemHandle(at));
		WANT(1, cuIpcCloseMemHandle(at));
		r.meet();
		OK(cuMemFree_v2(own));
		r.meet();
		own = zeros(6000); // may have the descriptor of the one that is gone
		r.meet();
		WANT(400, cuIpcOpenMemHandle_v2(&at, other, 1));
		memset(&other, 1, sizeof other);
		WANT(400, cuIpcOpenMemHandle_v2(&at, other, 1));
	}).wait({0, 0});
}

static int files_of_shared_memory()
{
	DIR *folder = opendir("/dev/shm");
	if (!folder)
		return 0;
	int found = 0;
	while (dirent *entry = readdir(folder))
		found += strstr(entry->d_name, "ringlane-emulator") != nullptr;
	closedir(folder);
	return found;
}

// One of two processes is killed while a kernel of the other waits for it: the
// wait ends, the memory is still there, and then nothing is left.
CASE(killed)
{
	Ranks(2, [](Ranks &r) {
		use(r.rank);
		int peer = 1 - r.rank;
		Pointer own = zeros(1 << 20), done = zeros(8);
		Handle handle;
		OK(cuIpcGetMemHandle(&handle, own));
		r.say(peer, handle);
		Handle other = r.hear<Handle>(peer);
		Pointer at;
		OK(cuIpcOpenMemHandle_v2(&at, other, 1));
		r.say(peer, getpid());
		pid_t process = r.hear<pid_t>(peer);
		if (r.rank == 1) {
			launch("test_wait", 2, 64, WaitParams{own, done, 1, 1000 * second});
			r.hear<char>(peer); // never
		}
		launch("test_wait", 2, 64, WaitParams{at, done, 1, second / 10});
		kill(process, SIGKILL);
		char byte;
		CHECK(recv(r.lines[0][1], &byte, 1, 0) <= 0); // it is gone
		OK(cuCtxSynchronize());
		CHECK(read<uint64_t>(done) == 0);
		OK(cuMemsetD8_v2(at, 9, 1 << 20));
		CHECK(read<uint32_t>(at + 4096) == 0x09090909);
		OK(cuIpcCloseMemHandle(at));
		// The parent may not have waited for it: its descriptors are closed all the same.
		WANT(400, cuIpcOpenMemHandle_v2(&at, other, 1));
		CHECK(files_of_shared_memory() == 0);
	}).wait({0, SIGKILL});
}

// fault has GPU 0 write into the memory of GPU 1, and GPU 1 into that of 0, over
// a path that is good; both look at what came.
static void fault(const char *p2p, std::function<void(Ranks &, Pointer own, Pointer at)> look)
{
	setenv("RINGLANE_EMULATOR", p2p, 1);
	Ranks(2, [&](Ranks &r) {
		use(r.rank);
		Pointer own = zeros(8192), at = r.share(1 - r.rank, own);
		r.meet();
		look(r, own, at);
		r.meet();
	}).wait({0, 0});
}

static void write(Pointer to, uint64_t value)
{
	uint64_t words[4] = {value, value, value, value};
	OK(cuMemcpyHtoD_v2(to, words, sizeof words));
}

CASE(path_that_drops)
{
	fault("p2p=drop:0>1", [](Ranks &r, Pointer own, Pointer at) {
		write(own + 4096, 3);
		r.meet();
		CHECK(read<uint64_t>(at + 4096) == 3); // loads go through
		write(at, 5);
		r.meet();
		CHECK(read<uint64_t>(own) == (r.rank == 1 ? 0 : 5));
	});
}

CASE(path_that_hangs)
{
	fault("p2p=hang:0>1", [](Ranks &r, Pointer own, Pointer at) {
		write(own + 4096, 3);
		r.meet();
		CHECK(read<uint64_t>(at + 4096) == (r.rank == 0 ? 0 : 3));
		write(at, 5);
		r.meet();
		CHECK(read<uint64_t>(own) == (r.rank == 1 ? 0 : 5));
	});
}

CASE(path_that_corrupts)
{
	fault("p2p=corrupt:0>1", [](Ranks &r, Pointer own, Pointer at) {
		for (int i = 0; i < 300; i++) { // as a process does that joins again and again
			OK(cuIpcCloseMemHandle(at));
			at = r.share(1 - r.rank, own);
		}
		write(at, 5);
		// Kernels as well as copies.
		RowsParams p{};
		p.outbox[0] = at + 4096;
		p.inbox[0] = own + 4096;
		p.sum = zeros(8 * 32);
		p.late = zeros(8);
		p.first = p.rounds = p.count = 1;
		p.nanoseconds = 30 * second;
		launch("test_rows", 1, 32, p);
		OK(cuCtxSynchronize());
		r.meet();
		CHECK(read<uint64_t>(p.late) == 0); // what waits for a flag is not corrupted
		CHECK(read<uint64_t>(own) == (r.rank == 1 ? 0x5a : 5));
		CHECK(read<uint64_t>(own + 8) == 5);
		CHECK(read<uint64_t>(p.sum) == (r.rank == 1 ? 0x5a : 100));
	});
}

CASE(path_that_is_off)
{
	setenv("RINGLANE_EMULATOR", "p2p=off:0>1", 1);
	Ranks(2, [](Ranks &r) {
		use(r.rank);
		Handle handle;
		Pointer at;
		OK(cuIpcGetMemHandle(&handle, zeros(8)));
		r.say(1 - r.rank, handle);
		WANT(r.rank == 0 ? 217 : 0, cuIpcOpenMemHandle_v2(&at, r.hear<Handle>(1 - r.rank), 1));
		r.meet();
	}).wait({0, 0});
}
