// Package communicator joins ranks on one machine and runs collectives among
// them: it carries out schedules over channels, waits with deadlines, and says
// who is to blame when a wait ends badly.
package communicator

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/bytesize"
	"ringlane/internal/run/tuning"
)

// Defaults of Config.
const (
	DefaultTimeout = 60 * time.Second
	DefaultStaging = 16 << 20
)

// Config says who a rank is and how it meets the others.
type Config struct {
	Rank, Size int

	// Job is a string that all ranks of this communicator share and no other
	// communicator of the machine does.
	Job string
	// Rendezvous is a directory, private to the user (mode 0700), in which the
	// ranks meet. If empty, rank 0 makes one below the temporary directory,
	// named after Job, and removes it as soon as all ranks have joined.
	Rendezvous string
	// Timeout is the deadline of joining and of every collective; 0 is
	// DefaultTimeout.
	Timeout time.Duration
	// Staging bounds the shared memory that this rank contributes, in bytes; 0
	// is DefaultStaging. It must be the same on all ranks.
	Staging int
	// Algorithm and Protocol override the choice for every collective that has
	// one of that name; "" and "auto" leave it to the size.
	Algorithm, Protocol string
	// Tune is a table of rules that come before those of this machine, as
	// collective.ParseTable reads them, or "default" for the built-in ones alone.
	// That of rank 0 holds for all.
	Tune string
	// Reduce names the reduction kernels: "" and "auto" are the fastest that this
	// machine runs. All compute the same bits.
	Reduce string

	table *collective.Table // of the communicator that this one is a group of
}

// Variable is an environment variable that Ringlane reads.
type Variable struct{ Name, Meaning string }

// Environment lists every variable that FromEnvironment reads.
var Environment = []Variable{
	{"RINGLANE_RANK", "this rank, from 0 (else RANK)"},
	{"RINGLANE_SIZE", "number of ranks (else WORLD_SIZE)"},
	{"RINGLANE_JOB", "name that the ranks of one job share (else made from MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID and TORCHELASTIC_RESTART_COUNT)"},
	{"RINGLANE_RENDEZVOUS", "private directory in which the ranks meet (else one below the temporary directory)"},
	{"RINGLANE_TIMEOUT", "deadline of joining and of every collective, such as 90s or 2m (default 60s)"},
	{"RINGLANE_STAGING", "shared memory a rank gives to a communicator, such as 4M (default 16M)"},
	{"RINGLANE_WINDOW", "address space for buffers in a window, such as 64G; 0 does without (default the machine's memory)"},
	{"RINGLANE_ALGO", "algorithm where the collective has it: ring, tree, oneshot, direct (default auto)"},
	{"RINGLANE_PROTOCOL", "protocol: ll or simple (default auto)"},
	{"RINGLANE_TUNE", "rules that choose algorithm, protocol and segment before those of this machine, as `ringlane bench --table` prints them; rank 0's hold (default: what `ringlane bench --tune` measured, else built in)"},
	{"RINGLANE_REDUCE", "reduction kernels: avx512, avx2, neon or go (default auto)"},
}

// FromEnvironment reads a Config from the variables in Environment, which
// `ringlane run` sets, or from those that torchrun sets.
func FromEnvironment(lookup func(string) (string, bool)) (Config, error) {
	first := func(names ...string) string {
		for _, n := range names {
			if v, ok := lookup(n); ok && v != "" {
				return v
			}
		}
		return ""
	}
	var cfg Config
	var err error
	number := func(what string, names ...string) int {
		text := first(names...)
		if text == "" {
			if err == nil {
				err = failf(Argument, "join: the environment does not say the %s: none of %s is set (start the program with `ringlane run` or torchrun)", what, strings.Join(names, ", "))
			}
			return 0
		}
		n, e := strconv.Atoi(text)
		if e != nil && err == nil {
			err = failf(Argument, "join: the %s %q is not a number (it comes from %s)", what, text, strings.Join(names, " or "))
		}
		return n
	}
	cfg.Rank = number("rank", "RINGLANE_RANK", "RANK")
	cfg.Size = number("number of ranks", "RINGLANE_SIZE", "WORLD_SIZE")
	if err != nil {
		return Config{}, err
	}
	cfg.Rendezvous = first("RINGLANE_RENDEZVOUS")
	cfg.Job = first("RINGLANE_JOB")
	if cfg.Job == "" {
		parts := []string{"env"}
		for _, n := range []string{"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"} {
			parts = append(parts, first(n))
		}
		if parts[2] == "" {
			return Config{}, failf(Argument, "join: the environment does not name the job: neither RINGLANE_JOB nor MASTER_PORT is set (start the program with `ringlane run` or torchrun)")
		}
		cfg.Job = strings.Join(parts, "|")
	}
	return cfg, cfg.tune(func(name string) string { return first(name) })
}

// Overrides reads from the environment of this process what tunes a
// communicator, for a caller that names rank and job itself. Variables win over
// what cfg holds.
func Overrides(cfg *Config) error { return cfg.tune(os.Getenv) }

func (cfg *Config) tune(get func(string) string) (err error) {
	if text := get("RINGLANE_TIMEOUT"); text != "" {
		if cfg.Timeout, err = ParseTimeout(text); err != nil {
			return failf(Argument, "join: RINGLANE_TIMEOUT: %v", err)
		}
	}
	if text := get("RINGLANE_STAGING"); text != "" {
		if cfg.Staging, err = bytesize.Parse(text); err != nil {
			return failf(Argument, "join: RINGLANE_STAGING: %v", err)
		}
	}
	if a := get("RINGLANE_ALGO"); a != "" {
		cfg.Algorithm = a
	}
	if t := get(tuning.Variable); t != "" {
		cfg.Tune = t
	}
	if r := get("RINGLANE_REDUCE"); r != "" {
		cfg.Reduce = r
	}
	if p := get("RINGLANE_PROTOCOL"); p != "" {
		cfg.Protocol = p
	}
	return nil
}

// FromProcess is FromEnvironment with the environment of this process.
func FromProcess() (Config, error) { return FromEnvironment(os.LookupEnv) }

// ParseTimeout reads a positive duration such as 90s or 2m; a bare number is
// in seconds.
func ParseTimeout(text string) (time.Duration, error) {
	if s, err := strconv.ParseFloat(text, 64); err == nil && s > 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a positive duration (write it like 90s or 2m)", text)
	}
	return d, nil
}

func (cfg *Config) complete() error {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Staging == 0 {
		cfg.Staging = DefaultStaging
	}
	switch {
	case cfg.Size < 1:
		return failf(Argument, "join: a communicator of %d ranks is not possible (the size is at least 1)", cfg.Size)
	case cfg.Size > MaxRanks:
		return failf(Argument, "join: %d ranks are too many for one machine (at most %d)", cfg.Size, MaxRanks)
	case cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		return failf(Argument, "join: rank %d is outside 0 to %d (RINGLANE_RANK and RINGLANE_SIZE, or RANK and WORLD_SIZE, do not fit each other)", cfg.Rank, cfg.Size-1)
	case cfg.Timeout < 0:
		return failf(Argument, "join: the deadline %v is not positive", cfg.Timeout)
	case cfg.Job == "":
		return failf(Argument, "join: the job has no name (set RINGLANE_JOB, the same on all ranks)")
	}
	return nil
}
