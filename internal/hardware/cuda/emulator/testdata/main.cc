#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

void fail(const char *file, int line, const std::string &what)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
	_exit(1);
}

std::map<std::string, void (*)()> &Case::all()
{
	static std::map<std::string, void (*)()> cases;
	return cases;
}

void use(int device)
{
	void *context;
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
}

void *function(const char *name)
{
	static void *module;
	void *found;
	if (!module)
		OK(cuModuleLoadData(&module, "text"));
	OK(cuModuleGetFunction(&found, module, name));
	return found;
}

Pointer zeros(size_t bytes)
{
	Pointer at;
	OK(cuMemAlloc_v2(&at, bytes));
	OK(cuMemsetD8_v2(at, 0, bytes));
	return at;
}

// main lists its cases, or runs one.
int main(int count, char **arguments)
{
	if (count == 1) {
		for (auto &entry : Case::all())
			puts(entry.first.c_str());
		return 0;
	}
	auto found = Case::all().find(arguments[1]);
	if (found == Case::all().end()) {
		fprintf(stderr, "no case %s\n", arguments[1]);
		return 2;
	}
	found->second();
	return 0;
}
