// AllReduce of short messages, for the element type that RL_TYPE names: for two
// ranks, and for more.
#include "fast_line.cuh"

RL_KERNEL(RL_NAME(fast_pair), Exchange, 512) { fast_lines<RL_TYPE, 16, 1, 2>(p); }
RL_KERNEL(RL_NAME(fast_pair_wide), Exchange, 512) { fast_lines<RL_TYPE, 128, 2, 2>(p); }
RL_KERNEL(RL_NAME(fast_line16), Exchange, 512) { fast_lines<RL_TYPE, 16, 1, 4>(p); }
RL_KERNEL(RL_NAME(fast_line128), Exchange, 512) { fast_lines<RL_TYPE, 128, 2, 4>(p); }
