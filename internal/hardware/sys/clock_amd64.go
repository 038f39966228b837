package sys

// counterName is what the kernel calls a clock source that counter reads.
const counterName = "tsc"

// counter is the processor's time-stamp counter.
func counter() uint64
