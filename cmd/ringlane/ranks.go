package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
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
	err = eachLine(from, read)
	return errors.Join(<-done, err)
}

// eachLine hands each line to read, of any length and whatever read says of those
// before: who writes them must not find the pipe full.
func eachLine(from io.Reader, read func(line []byte) error) (all error) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			all = errors.Join(all, read(bytes.TrimSuffix(line, []byte{'\n'})))
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return errors.Join(all, err)
		}
	}
}
