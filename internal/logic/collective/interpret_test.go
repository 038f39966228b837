package collective

import (
	"errors"
	"fmt"
	"slices"

	"ringlane/internal/model/schedule"
)

// job runs programs on real vectors. It is the deliberately dumb twin of the
// prover and of the executor: queues of copied segments, one for each reader
// also of a shared channel, one step of a rank at a time, and no check but that
// lengths agree. Buffers are by rank and chunk, nil where a rank has none.
type job struct {
	programs []schedule.Program
	input    [][][]int64
	output   [][][]int64
	segment  int // elements
	slots    int

	queues  map[string][][]int64
	partial [][]int64
}

// run does the programs as often as the longest chunk needs; pick chooses the
// next of several ranks to try.
func (j *job) run(longest int, pick func(n int) int) error {
	n := len(j.programs)
	rounds := (longest + j.segment - 1) / j.segment
	j.queues = map[string][][]int64{}
	j.partial = make([][]int64, n)
	at := make([]int, n)
	blocked := map[int]bool{}
	for {
		var ready []int
		for r := range n {
			if at[r] < rounds*len(j.programs[r]) && !blocked[r] {
				ready = append(ready, r)
			}
		}
		if len(ready) == 0 {
			break
		}
		r := ready[pick(len(ready))]
		ok, err := j.step(r, at[r]/len(j.programs[r]), j.programs[r][at[r]%len(j.programs[r])])
		if err != nil {
			return err
		}
		if ok {
			at[r]++
			clear(blocked)
		} else {
			blocked[r] = true
		}
	}
	if len(blocked) > 0 {
		return errors.New("stuck")
	}
	for name, q := range j.queues {
		if len(q) > 0 {
			return fmt.Errorf("%d segments left in %s", len(q), name)
		}
	}
	return nil
}

func (j *job) step(r, round int, step schedule.Step) (bool, error) {
	cut := func(buffer []int64) []int64 {
		return buffer[min(round*j.segment, len(buffer)):min((round+1)*j.segment, len(buffer))]
	}
	queue := func(writer int, shared bool, reader int) string {
		return fmt.Sprintf("%d to %d shared %v", writer, reader, shared)
	}
	local := func(v schedule.Value) []int64 {
		switch v {
		case schedule.Input:
			return cut(j.input[r][step.Chunk])
		case schedule.Partial:
			return j.partial[r]
		}
		return cut(j.output[r][step.Chunk])
	}
	store := func(v []int64) error {
		out := cut(j.output[r][step.Chunk])
		if len(out) != len(v) {
			return fmt.Errorf("%d elements where %d fit", len(v), len(out))
		}
		copy(out, v)
		return nil
	}
	switch step.Kind {
	case schedule.Send:
		readers := []int{step.Peer}
		if step.Peer == schedule.Everyone {
			readers = nil
			for reader := range j.programs {
				if reader != r {
					readers = append(readers, reader)
				}
			}
		}
		for _, reader := range readers {
			if len(j.queues[queue(r, step.Peer == schedule.Everyone, reader)]) == j.slots {
				return false, nil
			}
		}
		for _, reader := range readers {
			name := queue(r, step.Peer == schedule.Everyone, reader)
			j.queues[name] = append(j.queues[name], slices.Clone(local(step.Value)))
		}
		return true, nil
	case schedule.Recv:
		name := queue(step.Peer, step.Shared, r)
		if len(j.queues[name]) == 0 {
			return false, nil
		}
		got := j.queues[name][0]
		j.queues[name] = j.queues[name][1:]
		return true, store(got)
	case schedule.Reduce:
		for _, from := range step.From {
			if from.Rank != r && len(j.queues[queue(from.Rank, from.Shared, r)]) == 0 {
				return false, nil
			}
		}
		var sum []int64
		for i, from := range step.From {
			var term []int64
			if from.Rank == r {
				term = local(from.Value)
			} else {
				name := queue(from.Rank, from.Shared, r)
				term = j.queues[name][0]
				j.queues[name] = j.queues[name][1:]
			}
			if i == 0 {
				sum = make([]int64, len(term))
			}
			if len(term) != len(sum) {
				return false, fmt.Errorf("terms of %d and %d elements", len(sum), len(term))
			}
			for k := range sum {
				sum[k] += term[k]
			}
		}
		if step.Value == schedule.Partial {
			j.partial[r] = sum
			return true, nil
		}
		return true, store(sum)
	}
	return true, store(local(schedule.Input))
}
