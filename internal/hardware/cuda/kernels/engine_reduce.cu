// What copy engines leave to kernels in reductions, for the element type that
// RL_TYPE names.
#include "engine.cuh"

RL_KERNEL(RL_NAME(engine_reduce), Turn, 512) { reduce_turn<RL_TYPE>(p); }
