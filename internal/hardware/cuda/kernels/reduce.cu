// Kernels that reduce, for the element type that RL_TYPE names: F32, BF16 ...
#include "reduce_line.cuh"
#include "reduce_slot.cuh"
#include "ring.cuh"

RL_KERNEL(RL_NAME(reduce_line16), Exchange, 512) { reduce_lines<RL_TYPE, 16>(p); }
RL_KERNEL(RL_NAME(reduce_line64), Exchange, 512) { reduce_lines<RL_TYPE, 64>(p); }
RL_KERNEL(RL_NAME(reduce_line128), Exchange, 512) { reduce_lines<RL_TYPE, 128>(p); }
RL_KERNEL(RL_NAME(reduce_slot), Exchange, 640) { reduce_slots<RL_TYPE>(p); }
RL_KERNEL(RL_NAME(allreduce_ring), Exchange, 512) { ring<RL_TYPE, true, true>(p); }
RL_KERNEL(RL_NAME(reducescatter_ring), Exchange, 512) { ring<RL_TYPE, true, false>(p); }
