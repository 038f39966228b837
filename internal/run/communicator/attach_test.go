package communicator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestEndings has what hangs on a communicator end before it, the latest first,
// but for what was withdrawn.
func TestEndings(t *testing.T) {
	together(t, 1, nil, func(c *Comm) error {
		var order []string
		ending := func(name string, err error) *Ending {
			return c.BeforeClose(func() error {
				order = append(order, name)
				return errors.Join(err, c.usable())
			})
		}
		ending("first", nil)
		second := ending("second", nil)
		ending("third", errors.New("third fails"))
		c.Withdraw(second)
		err := c.Close()
		if got := strings.Join(order, " "); got != "third first" {
			return fmt.Errorf("%q ended", got)
		}
		if err == nil || err.Error() != "third fails" {
			return fmt.Errorf("%v, want that the third failed and the communicator was in use still", err)
		}
		return c.Close()
	})
}

// TestCheck finds the failure of a peer without a call, and memory of a peer
// where that says it lies.
func TestCheck(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		b, err := Alloc(100)
		if err != nil {
			return err
		}
		defer Free(b)
		at, ok := c.Offset(b)
		if !ok || !c.Lends() {
			return errors.New("memory of Alloc has no place in the arena")
		}
		if peer := c.PeerMemory(1-c.rank, at, len(b)); len(peer) != len(b) {
			return fmt.Errorf("%d bytes of a peer where this rank has %d: ranks are one process here", len(peer), len(b))
		}
		if c.PeerMemory(1-c.rank, 1<<62, 8) != nil || c.PeerMemory(1-c.rank, -8, 8) != nil || c.PeerMemory(c.rank, at, 8) != nil {
			return errors.New("memory where there is none")
		}
		if c.rank == 0 {
			c.Fail(Timeout, "a kernel waits")
		}
		for err = c.Check(); err == nil; err = c.Check() {
		}
		if !errors.Is(err, Timeout) || !strings.HasSuffix(err.Error(), "a kernel waits") {
			return fmt.Errorf("%v, want what rank 0 said", err)
		}
		return nil
	})
}
