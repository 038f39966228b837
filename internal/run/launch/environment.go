package launch

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// environment is what the ranks of one attempt are told; they differ only in
// their number.
type environment struct {
	base        []string // what the launcher was given
	ranks       int
	port        int    // for torch's own store, which rank 0 serves
	run         string // unique to this launch
	job         string // unique to this attempt
	rendezvous  string // private directory of this attempt
	restart     int    // attempts before this one
	maxRestarts int
	timeout     time.Duration // 0: not set by the launcher
	threads     int           // that each rank has cores for
}

// of returns the environment of one rank: that of torchrun on a single node,
// and RINGLANE_*.
func (e environment) of(rank int) []string {
	number, size := strconv.Itoa(rank), strconv.Itoa(e.ranks)
	env := slices.Clone(e.base)
	set := func(name, value string) { env = append(env, name+"="+value) } // the last one counts
	setDefault := func(name, value string) {
		if !slices.ContainsFunc(e.base, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			set(name, value)
		}
	}

	set("RANK", number)
	set("LOCAL_RANK", number)
	set("ROLE_RANK", number)
	set("GROUP_RANK", "0")
	set("WORLD_SIZE", size)
	set("LOCAL_WORLD_SIZE", size)
	set("ROLE_WORLD_SIZE", size)
	set("GROUP_WORLD_SIZE", "1")
	set("ROLE_NAME", "default")
	set("MASTER_ADDR", "127.0.0.1")
	set("MASTER_PORT", strconv.Itoa(e.port))
	set("TORCHELASTIC_RESTART_COUNT", strconv.Itoa(e.restart))
	set("TORCHELASTIC_MAX_RESTARTS", strconv.Itoa(e.maxRestarts))
	set("TORCHELASTIC_RUN_ID", e.run)
	// Rank 0 serves the store, whatever a launcher around this one does.
	set("TORCHELASTIC_USE_AGENT_STORE", "False")

	set("RINGLANE_RANK", number)
	set("RINGLANE_SIZE", size)
	set("RINGLANE_RENDEZVOUS", e.rendezvous)
	set("RINGLANE_JOB", e.job)
	if e.timeout > 0 {
		set("RINGLANE_TIMEOUT", strconv.FormatFloat(e.timeout.Seconds(), 'f', -1, 64)+"s")
	}

	setDefault("OMP_NUM_THREADS", strconv.Itoa(e.threads))
	if e.ranks > 1 {
		// Ranks write into pipes, where Python keeps its output back by the
		// block and loses it with a rank that is killed.
		setDefault("PYTHONUNBUFFERED", "1")
	}
	return env
}
