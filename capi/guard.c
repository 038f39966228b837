#include "guard.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ringlane.h"

enum { TEXT = 4096 };

static int forked;

/* The texts hang on a key, not on _Thread_local: with the Go runtime in it this
 * library takes its thread-local memory from the few hundred bytes that the
 * loader keeps for libraries loaded late, and torch has used most of them. */
static pthread_key_t last_error;

static void after_fork(void) { forked = 1; }

__attribute__((constructor)) static void set_up(void) {
	pthread_key_create(&last_error, free);
	pthread_atfork(NULL, NULL, after_fork);
}

int rl_in_forked_child(void) { return forked; }

static void set_error(const char *format, ...) {
	char *text = pthread_getspecific(last_error);
	if (text == NULL) {
		text = malloc(TEXT);
		if (text == NULL || pthread_setspecific(last_error, text) != 0) {
			free(text);
			return;
		}
	}
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, TEXT, format, arguments);
	va_end(arguments);
}

void rl_set_error(const char *text) { set_error("%s", text); }

int32_t rl_refuse_forked(const char *function) {
	set_error("%s: this process was forked from the one that loaded Ringlane, and a communicator does not survive a fork "
	          "(call it in the parent, or start the child with the spawn method and join there)",
	          function);
	return RL_EFORKED;
}

const char *rl_last_error(void) {
	const char *text = pthread_getspecific(last_error);
	return text != NULL ? text : "";
}
