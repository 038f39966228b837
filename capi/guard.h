/* What entry_gen.c and the Go side share. */
#ifndef RINGLANE_GUARD_H
#define RINGLANE_GUARD_H

#include <stdint.h>

/* An address that only a GPU may follow, or a stream: void * in ringlane.h. */
typedef uintptr_t rl_address;

/* Keeps text for rl_last_error of the calling thread. */
void rl_set_error(const char *text);

/* Whether this process was forked from the one that loaded the library. */
int rl_in_forked_child(void);

/* Sets the error text that goes with it and returns RL_EFORKED. */
int32_t rl_refuse_forked(const char *function);

#endif
