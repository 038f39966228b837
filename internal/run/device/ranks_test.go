package device

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
	"ringlane/internal/run/communicator"
)

func uniqueJob() string {
	var b [8]byte
	rand.Read(b[:])
	return "test-" + hex.EncodeToString(b[:])
}

// rank is one rank of a test, with memory of its GPU and a stream of its own.
type rank struct {
	*Comm
	host   *communicator.Comm
	stream cuda.Stream
	t      testing.TB
	memory []cuda.Pointer
	buffer cuda.Pointer

	abandoned bool // the communicator has failed, as it should
}

// alloc is memory of the rank's GPU until the test ends for it.
func (r *rank) alloc(bytes int) cuda.Pointer {
	p, err := r.Context().Alloc(uint64(max(bytes, 1)))
	r.must(err)
	r.memory = append(r.memory, p)
	return p
}

func (r *rank) must(err error) {
	r.t.Helper()
	if err != nil {
		panic(err)
	}
}

func (r *rank) set(p cuda.Pointer, data []byte) {
	if len(data) > 0 {
		r.must(r.Context().CopyTo(p, data))
	}
}

func (r *rank) get(p cuda.Pointer, bytes int) []byte {
	data := make([]byte, bytes)
	if bytes > 0 {
		r.must(r.Context().CopyFrom(data, p))
	}
	return data
}

// recorded captures what is put into the rank's stream, and into those that join it.
func (r *rank) recorded(put func()) (exec *cuda.Exec) {
	r.t.Helper()
	r.within(func() error {
		r.must(r.stream.BeginCapture())
		put()
		graph, err := r.stream.EndCapture()
		r.must(err)
		defer graph.Destroy()
		exec, err = graph.Instantiate()
		return err
	})
	return exec
}

// within runs do with the rank's context current.
func (r *rank) within(do func() error) {
	r.t.Helper()
	r.must(r.Context().Enter())
	defer r.Context().Leave()
	r.must(do())
}

// window is small, so that messages take several passes and rings wrap.
const window = "256K"

// emulated reports whether the driver is the emulator.
func emulated(driver *cuda.Driver) bool {
	return strings.Contains(driver.Devices()[0].Name, "Emulated")
}

// atMost is n, or what together can run on this machine's GPUs if that is less.
func atMost(t *testing.T, n int) int {
	t.Helper()
	driver := cudatest.Open(t)
	if emulated(driver) {
		return n
	}
	return max(2, min(n, len(driver.Devices())))
}

// together runs body on n ranks, as goroutines of this process, on the GPUs that
// there are, in turn. The emulator's may be shared; of one process on a real
// GPU, what loads a module or frees memory waits for kernels that run there, and
// these for other ranks. Faults that need processes of their own are in
// fault_test.go.
func together(t *testing.T, n int, body func(r *rank) error) {
	t.Helper()
	driver := cudatest.Open(t)
	gpus := len(driver.Devices())
	if n > gpus && !emulated(driver) {
		t.Skipf("ranks of one process need a GPU each, and there are %d", gpus)
	}
	if os.Getenv("RINGLANE_DEVICE_WINDOW") == "" {
		t.Setenv("RINGLANE_DEVICE_WINDOW", window)
	}
	cfg := communicator.Config{Size: n, Job: uniqueJob(), Rendezvous: t.TempDir(), Timeout: 20 * time.Second}
	if err := os.Chmod(cfg.Rendezvous, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := communicator.Overrides(&cfg); err != nil {
		t.Fatal(err)
	}
	// What GPUs compute is compared with the processor's, which for a long Reduce
	// would take a tree, and so another order of terms.
	if cfg.Algorithm == "" {
		cfg.Algorithm = "direct"
	}
	var wg sync.WaitGroup
	for me := range n {
		wg.Go(func() {
			cfg := cfg
			cfg.Rank = me
			if err := participate(t, cfg, me%gpus, body); err != nil {
				t.Errorf("rank %d: %v", me, err)
			}
		})
	}
	wg.Wait()
}

func participate(t testing.TB, cfg communicator.Config, gpu int, body func(r *rank) error) (err error) {
	c, err := communicator.Join(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	d, err := Join(c, gpu)
	if err != nil {
		return err
	}
	r := &rank{Comm: d, host: c, t: t}
	defer func() {
		if v := recover(); v != nil {
			failure, ok := v.(error)
			if !ok {
				panic(v)
			}
			err = errors.Join(err, failure)
			d.Abort(failure.Error())
		}
		if e := d.Synchronize(r.stream); !r.abandoned {
			err = errors.Join(err, e)
		}
		for _, p := range r.memory {
			err = errors.Join(err, d.Context().Free(p))
		}
		if r.stream != 0 {
			r.within(r.stream.Destroy)
		}
		err = errors.Join(err, d.Close())
	}()
	if r.stream, err = d.Context().NewStream(cuda.Normal); err != nil {
		return err
	}
	return body(r)
}
