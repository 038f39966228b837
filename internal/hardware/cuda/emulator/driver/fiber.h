// Fibers: stacks, and the switch from one to another on one OS thread.
#pragma once

#include <stddef.h>

#include <vector>

namespace emulator {

// switch_stack stores the callee-saved registers on the stack that is left,
// its pointer at *from, and goes on where to was left.
extern "C" void emulator_switch_stack(void **from, void *to);

// Stack is memory for one fiber, above a page that faults.
class Stack {
public:
	Stack();
	~Stack();
	Stack(const Stack &) = delete;
	Stack &operator=(const Stack &) = delete;

	// prepare returns what to switch to so that entry runs. It must not return.
	void *prepare(void (*entry)());

private:
	char *memory;
};

// Stacks hands out stacks, the one that came back last first.
class Stacks {
public:
	Stack *take();
	void give(Stack *stack) { idle.push_back(stack); }
	~Stacks();

private:
	std::vector<Stack *> idle;
};

} // namespace emulator
