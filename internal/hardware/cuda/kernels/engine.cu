// What copy engines leave to kernels, for any element type.
#include "engine.cuh"

RL_KERNEL(engine_meet, Turn, 32) { meet(p); }
RL_KERNEL(engine_part, Turn, 32) { part(p, [] {}); }
