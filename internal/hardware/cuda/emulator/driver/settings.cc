#include "settings.h"

#include <stdlib.h>

namespace emulator {

// Blocks of a multiprocessor hold twice the threads that one block may have.
int Settings::resident(uint32_t threads_a_block) const
{
	int blocks = 2 * threads / static_cast<int>(threads_a_block);
	return multiprocessors * (blocks > 0 ? blocks : 1);
}

static std::vector<std::string> split(const std::string &text, char at)
{
	std::vector<std::string> parts;
	size_t from = 0;
	for (size_t to; (to = text.find(at, from)) != std::string::npos; from = to + 1)
		parts.push_back(text.substr(from, to - from));
	parts.push_back(text.substr(from));
	return parts;
}

// number reads digits and, if scale is set, K, M or G behind them.
static bool number(const std::string &text, bool scale, uint64_t least, uint64_t most, uint64_t *value)
{
	size_t digits = text.find_first_not_of("0123456789");
	std::string unit = digits == std::string::npos ? "" : text.substr(digits);
	if (digits == 0 || text.empty() || text.size() - unit.size() > 15)
		return false;
	*value = strtoull(text.c_str(), nullptr, 10);
	if (scale && unit == "K")
		*value <<= 10;
	else if (scale && unit == "M")
		*value <<= 20;
	else if (scale && unit == "G")
		*value <<= 30;
	else if (!unit.empty())
		return false;
	return *value >= least && *value <= most;
}

static bool path(const std::string &text, Settings *settings)
{
	std::string kind = text.substr(0, text.find(':'));
	Path path;
	if (kind == "on")
		path = Path::good;
	else if (kind == "off")
		path = Path::off;
	else if (kind == "drop")
		path = Path::drop;
	else if (kind == "hang")
		path = Path::hang;
	else if (kind == "corrupt")
		path = Path::corrupt;
	else
		return false;
	if (kind.size() == text.size()) {
		for (auto &row : settings->paths)
			for (Path &p : row)
				p = path;
		return true;
	}
	std::vector<std::string> ends = split(text.substr(kind.size() + 1), '>');
	uint64_t of, into, last = static_cast<uint64_t>(settings->gpus) - 1;
	if (ends.size() != 2 || !number(ends[0], false, 0, last, &of) || !number(ends[1], false, 0, last, &into))
		return false;
	settings->paths[of][into] = path;
	return true;
}

// see reads a list of GPUs. As the driver does, it stops at the first that is not there.
static void see(const char *text, Settings *settings)
{
	if (!text) {
		for (int gpu = 0; gpu < settings->gpus; gpu++)
			settings->visible.push_back(gpu);
		return;
	}
	for (const std::string &part : split(text, ',')) {
		uint64_t gpu;
		if (settings->gpus == 0 || !number(part, false, 0, static_cast<uint64_t>(settings->gpus) - 1, &gpu))
			return;
		settings->visible.push_back(static_cast<int>(gpu));
	}
}

std::string parse(const char *text, const char *visible, Settings *settings)
{
	std::vector<std::string> paths;
	for (const std::string &item : split(text && *text ? text : "p2p=on", ',')) {
		size_t equals = item.find('=');
		std::string key = item.substr(0, equals), value = equals == std::string::npos ? "" : item.substr(equals + 1);
		uint64_t n;
		if (key == "gpus" && number(value, false, 0, 16, &n))
			settings->gpus = static_cast<int>(n);
		else if (key == "sms" && number(value, false, 1, 256, &n))
			settings->multiprocessors = static_cast<int>(n);
		else if (key == "threads" && number(value, false, 32, 1024, &n) && n % 32 == 0)
			settings->threads = static_cast<int>(n);
		else if (key == "memory" && number(value, true, 1 << 20, 1ull << 40, &n))
			settings->memory = n;
		else if (key == "mig" && (value == "on" || value == "off"))
			settings->mig = value == "on";
		else if (key == "p2p")
			paths.push_back(value);
		else
			return "\"" + item + "\" is none of gpus=0..16, sms=1..256, threads=32..1024 in whole warps, "
			       "memory=1M.., mig=on|off and p2p=on|off|drop|hang|corrupt[:0>1]";
	}
	settings->paths.assign(settings->gpus, std::vector<Path>(settings->gpus, Path::good));
	if (settings->mig)
		paths = {"off"};
	for (const std::string &value : paths)
		if (!path(value, settings))
			return "\"p2p=" + value + "\" is none of on, off, drop, hang and corrupt, for all pairs or, "
			       "as in drop:0>1, for what GPU 0 does in the memory of GPU 1";
	see(visible, settings);
	if (settings->mig && settings->visible.size() > 1)
		settings->visible.resize(1);
	return "";
}

} // namespace emulator
