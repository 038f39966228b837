package communicator

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"testing"
	"time"
)

// uniqueJob is a job name that no other test uses.
func uniqueJob() string {
	var b [8]byte
	rand.Read(b[:])
	return "test-" + hex.EncodeToString(b[:])
}

// together runs body on n ranks of one communicator, as goroutines of this
// process, and closes the communicator on each. Faults that need processes of
// their own are in fault_test.go.
func together(t *testing.T, n int, change func(*Config), body func(c *Comm) error) {
	t.Helper()
	cfg := Config{Size: n, Job: uniqueJob(), Rendezvous: t.TempDir(), Timeout: 30 * time.Second}
	private(t, cfg.Rendezvous)
	if change != nil {
		change(&cfg)
	}
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() {
			cfg := cfg
			cfg.Rank = rank
			c, err := Join(cfg)
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			defer c.Close()
			if err := body(c); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
}
