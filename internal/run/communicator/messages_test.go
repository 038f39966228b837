package communicator

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

func TestMessagesMatchByTag(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		if c.rank == 0 {
			for tag := range 5 {
				if err := c.Send(bytes.Repeat([]byte{byte(tag)}, 1000), dtype.U8, 1, tag); err != nil {
					return err
				}
			}
			return c.Do(&Call{Collective: schedule.Barrier})
		}
		for _, tag := range []int{3, 0, 4, 2, 1} { // earlier ones must be kept and let later ones pass
			buf := make([]byte, 1000)
			from, err := c.Recv(buf, dtype.U8, 0, tag)
			if err != nil {
				return err
			}
			if from != 0 || !bytes.Equal(buf, bytes.Repeat([]byte{byte(tag)}, 1000)) {
				return fmt.Errorf("tag %d: from %d, begins with %v", tag, from, buf[:4])
			}
		}
		return c.Do(&Call{Collective: schedule.Barrier})
	})
}

func TestMessagesOfOneTagKeepTheirOrder(t *testing.T) {
	const n = 200
	together(t, 2, nil, func(c *Comm) error {
		for i := range n {
			size := i * 37 % 501 * 100
			if c.rank == 0 {
				if err := c.Send(bytes.Repeat([]byte{byte(i)}, size), dtype.U8, 1, 0); err != nil {
					return err
				}
				continue
			}
			buf := make([]byte, size)
			if _, err := c.Recv(buf, dtype.U8, 0, 0); err != nil {
				return err
			}
			if !bytes.Equal(buf, bytes.Repeat([]byte{byte(i)}, size)) {
				return fmt.Errorf("message %d is wrong", i)
			}
		}
		return nil
	})
}

// Both sides send more than any channel holds before either receives.
func TestLargeMessagesCross(t *testing.T) {
	const size = 8 << 20
	together(t, 2, nil, func(c *Comm) error {
		other := 1 - c.rank
		out := bytes.Repeat([]byte{byte(c.rank + 1)}, size)
		r, err := c.StartSend(out, dtype.U8, other, 9)
		if err != nil {
			return err
		}
		in := make([]byte, size)
		if _, err := c.Recv(in, dtype.U8, other, 9); err != nil {
			return err
		}
		if !bytes.Equal(in, bytes.Repeat([]byte{byte(other + 1)}, size)) {
			return errors.New("the data is wrong")
		}
		return r.Wait(0)
	})
}

func TestReceiveFromAnyRank(t *testing.T) {
	together(t, 4, nil, func(c *Comm) error {
		if c.rank != 2 {
			return c.Send([]byte{byte(c.rank)}, dtype.U8, 2, 5)
		}
		seen := map[int]bool{}
		for range 3 {
			buf := make([]byte, 1)
			from, err := c.Recv(buf, dtype.U8, AnySource, 5)
			if err != nil {
				return err
			}
			if int(buf[0]) != from || seen[from] {
				return fmt.Errorf("%d from rank %d, seen %v", buf[0], from, seen)
			}
			seen[from] = true
		}
		return nil
	})
}

func TestMessageOfAnotherSize(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		var err error
		if c.rank == 0 {
			if err = c.Send(make([]byte, 8), dtype.F32, 1, 0); err == nil {
				_, err = c.Recv(make([]byte, 1), dtype.U8, 1, 0)
			}
		} else {
			_, err = c.Recv(make([]byte, 4), dtype.F32, 0, 0)
		}
		if !errors.Is(err, Mismatch) {
			return fmt.Errorf("%v, want a mismatch", err)
		}
		return nil
	})
}

func TestReceiveHasADeadline(t *testing.T) {
	together(t, 2, func(cfg *Config) { cfg.Timeout = 300 * time.Millisecond }, func(c *Comm) error {
		if c.rank == 1 {
			_, err := c.Recv(make([]byte, 1), dtype.U8, 0, 0)
			if !errors.Is(err, Timeout) {
				return fmt.Errorf("rank 1: %v, want a timeout", err)
			}
			return nil
		}
		_, err := c.Recv(make([]byte, 1), dtype.U8, AnySource, 0)
		if !errors.Is(err, Timeout) {
			return fmt.Errorf("rank 0: %v, want a timeout", err)
		}
		return nil
	})
}

func TestZeroLengthMessage(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		if c.rank == 0 {
			return c.Send(nil, dtype.F32, 1, 1)
		}
		_, err := c.Recv(nil, dtype.F32, 0, 1)
		return err
	})
}
