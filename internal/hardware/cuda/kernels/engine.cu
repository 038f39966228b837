// What copy engines leave to kernels, for any element type.
#include "engine.cuh"

RL_KERNEL(engine_wait, Turn, 32) { wait_turn(p); }
