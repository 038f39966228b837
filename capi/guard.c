#include "guard.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ringlane.h"

static int forked;
static _Thread_local char last_error[4096];

static void after_fork(void) { forked = 1; }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork); }

int rl_in_forked_child(void) { return forked; }

void rl_set_error(const char *text) { snprintf(last_error, sizeof last_error, "%s", text); }

int32_t rl_refuse_forked(const char *function) {
	snprintf(last_error, sizeof last_error,
	         "%s: this process was forked from the one that loaded Ringlane, and a communicator does not survive a fork "
	         "(call it in the parent, or start the child with the spawn method and join there)",
	         function);
	return RL_EFORKED;
}

const char *rl_last_error(void) { return last_error; }
