package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ringlane/internal/hardware/probe"
	"ringlane/internal/logic/diagnose"
	"ringlane/internal/model/machine"
)

// watchInterval is how long counters may change unnoticed where the kernel says
// nothing; watchPause keeps a storm of messages from being read one by one.
const (
	watchInterval = 10 * time.Second
	watchPause    = time.Second
)

// watch is doctor --watch: the findings of this machine, then what changes.
type watch struct {
	limits diagnose.Thresholds
	json   bool
	out    io.Writer
	look   func() (*machine.Machine, error)
	wait   func(time.Duration) // until something happened, or that long
	now    func() time.Time
}

// watchMachine watches this machine until it is interrupted, and returns the
// status of what it saw last.
func watchMachine(limits diagnose.Thresholds, asJSON bool, out, errors io.Writer) (int, error) {
	w, problem, err := probe.NewWatcher()
	if err != nil {
		return 0, err
	}
	defer w.Close()
	if problem != nil {
		fmt.Fprintf(errors, "not watched: %v (run it as root)\n", problem)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return watch{
		limits: limits, json: asJSON, out: out, now: time.Now,
		look: func() (*machine.Machine, error) { m, _, err := liveMachine(); return m, err },
		wait: func(limit time.Duration) {
			time.Sleep(watchPause)
			for end := time.Now().Add(limit); ctx.Err() == nil && time.Now().Before(end); {
				// In short turns, so that Ctrl-C is heard at once.
				if w.Wait(min(time.Until(end), watchPause/4)) {
					return
				}
			}
		},
	}.run(ctx)
}

func (w watch) run(ctx context.Context) (status int, err error) {
	var known []diagnose.Finding
	for first := true; ctx.Err() == nil; first = false {
		m, err := w.look()
		if err != nil {
			return status, blindError{err}
		}
		report := diagnose.Run(m, w.limits)
		status = report.Status
		if first && !w.json {
			if _, err := doctorText(w.out, m, report); err != nil {
				return status, err
			}
			fmt.Fprintf(w.out, "\nWatching for changes; Ctrl-C ends it.\n")
		} else {
			for _, c := range diagnose.Changes(known, report.Findings) {
				if err := w.tell(c); err != nil {
					return status, err
				}
			}
		}
		known = report.Findings
		w.wait(watchInterval)
	}
	return status, nil
}

// tell writes one change: an object a line, or a few lines for people.
func (w watch) tell(c diagnose.Change) error {
	at := w.now()
	if w.json {
		e := json.NewEncoder(w.out)
		e.SetEscapeHTML(false)
		return e.Encode(struct {
			Time string `json:"time"`
			diagnose.Change
		}{at.Format(time.RFC3339), c})
	}
	f := c.Finding
	_, err := fmt.Fprintf(w.out, "%s  %-6s  %s  %s  %s\n", at.Format(time.TimeOnly), c.Kind, f.Severity, f.Code, f.Component)
	if err != nil || c.Kind == diagnose.Gone {
		return err
	}
	if n := len(f.Evidence); n > 0 {
		fmt.Fprintf(w.out, "          | %s\n", f.Evidence[n-1])
	}
	if c.Kind == diagnose.New && f.Remedy != "" {
		_, err = fmt.Fprintf(w.out, "          %s\n", f.Remedy)
	}
	return err
}
