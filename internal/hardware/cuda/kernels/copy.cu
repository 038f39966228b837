// Kernels that move bytes.
#include "copy_line.cuh"
#include "copy_slot.cuh"
#include "ring.cuh"

RL_KERNEL(copy_line16, Exchange, 512) { copy_lines<16>(p); }
RL_KERNEL(copy_line64, Exchange, 512) { copy_lines<64>(p); }
RL_KERNEL(copy_line128, Exchange, 512) { copy_lines<128>(p); }
RL_KERNEL(copy_slot, Exchange, 768) { copy_slots(p); }
RL_KERNEL(allgather_ring, Exchange, 512) { ring<U8, false, true>(p); }
