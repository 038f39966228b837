// Kernels that try the ways between GPUs.
#include "probe.cuh"

RL_KERNEL(probe_offer, Probe, 256) { offer(p); }
RL_KERNEL(probe_check, Probe, 256) { check(p); }
RL_KERNEL(probe_stress, Probe, 256) { stress(p); }
RL_KERNEL(probe_ping, Probe, 256) { ping(p); }
RL_KERNEL(probe_push, Probe, 512) { push(p); }
RL_KERNEL(probe_pull, Probe, 512) { pull(p); }
