package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"time"

	"ringlane/internal/run/launch"
)

// startSelf runs a hidden command of this program as the ranks of a job, and
// hands each line that they write to read.
func startSelf(spec launch.Spec, read func(line []byte) error, command ...string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program to start it as ranks: %w", err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer from.Close()
	spec.Command = append([]string{self}, command...)
	spec.Unmarked, spec.Stdout, spec.Stderr, spec.Grace = true, to, os.Stderr, 5*time.Second
	done := make(chan error, 1)
	go func() {
		defer to.Close()
		done <- launch.Run(spec)
	}()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20) // paths of many ranks
	for lines.Scan() {
		err = errors.Join(err, read(lines.Bytes()))
	}
	return errors.Join(<-done, err, lines.Err())
}
