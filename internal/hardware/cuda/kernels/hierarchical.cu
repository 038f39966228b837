// Kernels that go through islands, for the element type that RL_TYPE names.
#include "hierarchical.cuh"

RL_KERNEL(RL_NAME(allreduce_hierarchical), Exchange, 768) { hierarchical<RL_TYPE>(p); }
