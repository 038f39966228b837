#include <sys/prctl.h>

/* The Go runtime has a thread that looks around: every 20 us for 5 ms once it has found
 * something to do, such as to interrupt a goroutine that has run for 10 ms, which is what a
 * caller from C looks like. On a core that a rank has to itself each look costs the rank a
 * change of threads. So the threads of the runtime, which inherit it from the one that loads
 * the library, may sleep up to so much longer than they ask for; those of the program keep
 * what they have. A waiting rank is woken by its peers and not by a clock, and what must
 * look again soon naps on the caller's thread (sys.Nap). */
enum { SLACK_NS = 5000000 };

static int before;

/* Constructors with a number come before all without, of which one starts the runtime. */
__attribute__((constructor(101))) static void loosen(void) {
	before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	if (before > 0 && before < SLACK_NS)
		prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
}

__attribute__((constructor)) static void tighten(void) {
	if (before > 0 && before < SLACK_NS)
		prctl(PR_SET_TIMERSLACK, before, 0, 0, 0);
}
