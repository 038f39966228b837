package sys

// counterName is what the kernel calls a clock source that counter reads.
const counterName = "arch_sys_counter"

// counter is the processor's virtual counter.
func counter() uint64
