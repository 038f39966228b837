package main

import (
	"fmt"

	"ringlane"
)

// call is one collective and its buffers. Inputs are small integers, whose sums
// are exact in both types.
type call[T float32 | ringlane.BF16] struct {
	r      *rank
	name   string
	in     []T
	out    []T    // in itself for broadcast
	part   int    // elements, where there are parts
	terms  [512]T // of this rank: they repeat
	of     func(uint) T
	window bool
	seen   T
}

func newCall[T float32 | ringlane.BF16](r *rank, name string, elements int, of func(uint) T, window bool) (*call[T], error) {
	c := &call[T]{r: r, name: name, part: elements / r.ranks, of: of, window: window}
	for i := range c.terms {
		c.terms[i] = of(term(r.number, i))
	}
	inputs, outputs := elements, elements
	switch name {
	case "allreduce", "alltoall", "broadcast", "sendrecv":
	case "reducescatter":
		outputs = c.part
	case "allgather":
		inputs = c.part
	default:
		return nil, fmt.Errorf("%s is no collective", name)
	}
	var err error
	if c.in, err = c.buffer(inputs); err != nil || name == "broadcast" {
		c.out = c.in
		return c, err
	}
	c.out, err = c.buffer(outputs)
	clear(c.out)
	return c, err
}

func (c *call[T]) buffer(n int) ([]T, error) {
	if c.window {
		return ringlane.Alloc[T](n)
	}
	return make([]T, n), nil
}

func (c *call[T]) release() error {
	if !c.window {
		return nil
	}
	err := ringlane.Free(c.in)
	if err == nil && c.name != "broadcast" {
		err = ringlane.Free(c.out)
	}
	return err
}

func (c *call[T]) perform() error {
	switch c.name {
	case "allreduce":
		return ringlane.AllReduce(c.r.comm, c.in, c.out, ringlane.Sum)
	case "reducescatter":
		return ringlane.ReduceScatter(c.r.comm, c.in, c.out, ringlane.Sum)
	case "allgather":
		return ringlane.AllGather(c.r.comm, c.in, c.out)
	case "broadcast":
		return ringlane.Broadcast(c.r.comm, c.in, 0)
	case "alltoall":
		return ringlane.AllToAll(c.r.comm, c.in, c.out)
	}
	return c.exchange()
}

// exchange is a message to a neighbour and one back; who has none waits.
func (c *call[T]) exchange() error {
	peer := c.r.number ^ 1
	for i := 0; i < 2 && peer < c.r.ranks; i++ {
		var err error
		if (c.r.number+i)%2 == 0 {
			err = ringlane.Send(c.r.comm, c.in, peer, 0)
		} else {
			_, err = ringlane.Recv(c.r.comm, c.out, peer, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func term(r, i int) uint { return uint(i+3*r) & 7 }

func (c *call[T]) fill() {
	for at := 0; at < len(c.in); {
		at += copy(c.in[at:], c.terms[:])
	}
}

// use reads every cache line of the output.
func (c *call[T]) use() {
	for i := 0; i < len(c.out); i += 16 {
		c.seen += c.out[i]
	}
}

func (c *call[T]) wrong() int {
	n := 0
	if c.name == "sendrecv" && c.r.number^1 >= c.r.ranks {
		return 0
	}
	for i, got := range c.out {
		if got != c.of(c.want(i)) {
			n++
		}
	}
	return n
}

// want is what element i of this rank's output must be.
func (c *call[T]) want(i int) uint {
	at := c.r.number*c.part + i // in everybody's input, of a part of it
	switch c.name {
	case "reducescatter":
		return c.sumOfTerms(at)
	case "allgather":
		return term(i/c.part, i%c.part)
	case "broadcast":
		return term(0, i)
	case "alltoall":
		return term(i/c.part, c.r.number*c.part+i%c.part)
	case "sendrecv":
		return term(c.r.number^1, i)
	}
	return c.sumOfTerms(i)
}

func (c *call[T]) sumOfTerms(i int) uint {
	var sum uint
	for r := range c.r.ranks {
		sum += term(r, i)
	}
	return sum
}
