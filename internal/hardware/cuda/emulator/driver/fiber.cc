#include "fiber.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fail.h"

namespace emulator {

#if defined(__x86_64__)
asm(R"(
	.text
	.globl emulator_switch_stack
	.hidden emulator_switch_stack
	.type emulator_switch_stack, @function
emulator_switch_stack:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size emulator_switch_stack, . - emulator_switch_stack
)");
constexpr int saved = 8;    // six registers, where to return to, and a word that aligns
constexpr int return_to = 6; // where in them
#elif defined(__aarch64__)
asm(R"(
	.text
	.globl emulator_switch_stack
	.hidden emulator_switch_stack
	.type emulator_switch_stack, %function
emulator_switch_stack:
	stp x29, x30, [sp, #-160]!
	stp x19, x20, [sp, #16]
	stp x21, x22, [sp, #32]
	stp x23, x24, [sp, #48]
	stp x25, x26, [sp, #64]
	stp x27, x28, [sp, #80]
	stp d8, d9, [sp, #96]
	stp d10, d11, [sp, #112]
	stp d12, d13, [sp, #128]
	stp d14, d15, [sp, #144]
	mov x9, sp
	str x9, [x0]
	mov sp, x1
	ldp x19, x20, [sp, #16]
	ldp x21, x22, [sp, #32]
	ldp x23, x24, [sp, #48]
	ldp x25, x26, [sp, #64]
	ldp x27, x28, [sp, #80]
	ldp d8, d9, [sp, #96]
	ldp d10, d11, [sp, #112]
	ldp d12, d13, [sp, #128]
	ldp d14, d15, [sp, #144]
	ldp x29, x30, [sp], #160
	ret
	.size emulator_switch_stack, . - emulator_switch_stack
)");
constexpr int saved = 20;
constexpr int return_to = 1;
#else
#error "the emulator switches stacks on x86-64 and aarch64"
#endif

static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
static const size_t stack_size = 64 << 10;

Stack::Stack()
{
	void *at = mmap(nullptr, page + stack_size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (at == MAP_FAILED || mprotect(at, page, PROT_NONE) != 0)
		fail("no memory for the stack of a thread");
	memory = static_cast<char *>(at);
}

Stack::~Stack() { munmap(memory, page + stack_size); }

void *Stack::prepare(void (*entry)())
{
	// Tops of stacks at the same place of their pages would share few lines of
	// the cache.
	size_t colour = reinterpret_cast<uintptr_t>(memory) / (page + stack_size) % 16 * 192;
	uintptr_t *top = reinterpret_cast<uintptr_t *>(memory + page + stack_size - colour);
	uintptr_t *frame = top - saved;
	for (int i = 0; i < saved; i++)
		frame[i] = 0;
	frame[return_to] = reinterpret_cast<uintptr_t>(entry);
	return frame;
}

Stack *Stacks::take()
{
	if (idle.empty())
		return new Stack;
	Stack *stack = idle.back();
	idle.pop_back();
	return stack;
}

Stacks::~Stacks()
{
	for (Stack *stack : idle)
		delete stack;
}

} // namespace emulator
