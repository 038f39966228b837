// Reductions without flags, for the float type that RL_TYPE names.
#include "sentinel.cuh"

RL_KERNEL(RL_NAME(reduce_sentinel), Exchange, 512) { reduce_sentinels<RL_TYPE>(p); }
