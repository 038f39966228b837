package cuda_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/hardware/sys"
)

// kernel is probe_ping, one of the project's, told to wait until a word is 1 and
// then to write 1 to another one.
type kernel struct {
	*cuda.Function
	params  *cuda.Params
	one     cuda.Pointer // a word that is 1
	results cuda.Pointer
}

func load(t testing.TB, c *cuda.Context) *cuda.Module {
	t.Helper()
	image, err := kernels.PTX("probe", c.Device().Capability)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Load(image)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newKernel(t testing.TB, c *cuda.Context) *kernel {
	t.Helper()
	m := load(t, c)
	k := &kernel{}
	var err error
	if k.Function, err = m.Function("probe_ping"); err != nil {
		t.Fatal(err)
	}
	if k.params, err = cuda.NewParams(binary.Size(kernels.Probe{})); err != nil {
		t.Fatal(err)
	}
	if k.one, err = c.Alloc(8); err != nil {
		t.Fatal(err)
	}
	if k.results, err = c.Alloc(4096); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.CopyTo(k.one, []byte{1, 0, 0, 0, 0, 0, 0, 0}), c.Set(k.results, 0, 4096)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Synchronize(), c.Free(k.one), c.Free(k.results), m.Unload(), k.params.Free()); err != nil {
			t.Error(err)
		}
	})
	return k
}

// wait makes the next launch, of one warp, wait for a 1 at at, for some seconds,
// and then write one to then.
func (k *kernel) wait(at, then cuda.Pointer) {
	const flag = kernels.ProbeFlag // in a share without an area, behind the flag of the only warp
	*cuda.View[kernels.Probe](k.params) = kernels.Probe{
		Results: uint64(k.results), Deadline: 20e9, Step: 1, Count: 1, Blocks: 1, Passes: 1,
		Ways: [kernels.MaxPeers]kernels.Way{{Inbox: uint64(at) - flag, Outbox: uint64(then) - flag}},
	}
}

// store makes the next launch write 1 to at.
func (k *kernel) store(at cuda.Pointer) { k.wait(k.one, at) }

func TestLaunch(t *testing.T) {
	for _, c := range cudatest.Contexts(t) {
		f := newKernel(t, c)
		if f.MaxThreads < 32 || f.Registers < 1 {
			t.Error(f.Function)
		}
		p, err := c.Alloc(64)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Set(p, 0xee, 64); err != nil {
			t.Fatal(err)
		}
		s, err := c.NewStream(cuda.Normal)
		if err != nil {
			t.Fatal(err)
		}
		// A launch copies the parameters: they are filled again at once.
		f.store(p)
		if err := f.Launch(1, 32, 0, s, f.params); err != nil {
			t.Fatal(err)
		}
		f.store(p + 16)
		if err := c.Enter(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Launch(f.Function, 1, 32, 0, f.params), s.Synchronize(), s.Destroy()); err != nil {
			t.Fatal(err)
		}
		c.Leave()
		f.store(p + 32)
		if err := errors.Join(f.Launch(1, 32, 0, cuda.Legacy, f.params), c.Synchronize()); err != nil {
			t.Fatal(err)
		}
		out := make([]byte, 64)
		if err := errors.Join(c.CopyFrom(out, p), c.Free(p)); err != nil {
			t.Fatal(err)
		}
		for i, want := range []uint64{1, 0xeeeeeeeeeeeeeeee, 1, 0xeeeeeeeeeeeeeeee, 1, 0xeeeeeeeeeeeeeeee} {
			if got := binary.LittleEndian.Uint64(out[8*i:]); got != want {
				t.Errorf("word %d is %#x, want %#x", i, got, want)
			}
		}
		err = f.Launch(1, 1<<20, 0, 0, f.params)
		if err == nil || !strings.Contains(err.Error(), "cuLaunchKernel: CUDA_ERROR_") {
			t.Errorf("a launch of too many threads: %v", err)
		}
	}
}

// TestLaunchEarly launches a kernel early, alone and in a graph, where nothing comes
// before it that it would have to wait for.
func TestLaunchEarly(t *testing.T) {
	contexts := cudatest.Contexts(t)
	driver, err := cuda.Open()
	if err != nil {
		t.Fatal(err)
	}
	if !driver.EarlyLaunches() {
		t.Skipf("CUDA %d launches no kernel early", driver.Version())
	}
	for _, c := range contexts {
		f := newKernel(t, c)
		p, err := c.Alloc(64)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.NewStream(cuda.Normal)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Set(p, 0xee, 64), c.Enter()); err != nil {
			t.Fatal(err)
		}
		f.store(p)
		if err := errors.Join(s.LaunchEarly(f.Function, 1, 32, 0, f.params), s.Synchronize()); err != nil {
			t.Error(err)
		}
		f.store(p + 16)
		if err := s.BeginCapture(); err != nil {
			t.Fatal(err)
		}
		err = s.LaunchEarly(f.Function, 1, 32, 0, f.params)
		graph, ended := s.EndCapture()
		if err := errors.Join(err, ended); err != nil {
			t.Fatal(err)
		}
		exec, err := graph.Instantiate()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(exec.Launch(s), s.Synchronize(), exec.Destroy(), graph.Destroy()); err != nil {
			t.Error(err)
		}
		if err := s.LaunchEarly(f.Function, 1, 1<<20, 0, f.params); err == nil || !strings.Contains(err.Error(), "cuLaunchKernelEx: CUDA_ERROR_") {
			t.Errorf("an early launch of too many threads: %v", err)
		}
		if err := s.Destroy(); err != nil {
			t.Error(err)
		}
		c.Leave()
		out := make([]byte, 64)
		if err := errors.Join(c.CopyFrom(out, p), c.Free(p)); err != nil {
			t.Fatal(err)
		}
		for i, want := range []uint64{1, 0xeeeeeeeeeeeeeeee, 1, 0xeeeeeeeeeeeeeeee} {
			if got := binary.LittleEndian.Uint64(out[8*i:]); got != want {
				t.Errorf("word %d is %#x, want %#x", i, got, want)
			}
		}
	}
}

func TestFunctionMissing(t *testing.T) {
	c := cudatest.Contexts(t)[0]
	m := load(t, c)
	defer m.Unload()
	_, err := m.Function("nothing")
	want := "kernel nothing: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500): named symbol not found"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// What the driver's compiler has to say is part of the error.
func TestLoadFails(t *testing.T) {
	c := cudatest.Contexts(t)[0]
	_, err := c.Load(nil)
	if err == nil || !strings.HasPrefix(err.Error(), "cuModuleLoadDataEx: CUDA_ERROR_") {
		t.Fatalf("to load nothing: %v", err)
	}
	if c.Device().Name == "Ringlane Emulated GPU" && !strings.HasSuffix(err.Error(), ": fatal: the image is empty") {
		t.Errorf("%v\ndoes not end with what the compiler said", err)
	}
}

// A launch returns at once, and what waits for it is not done until it is.
func TestQuery(t *testing.T) {
	c := cudatest.Contexts(t)[0]
	f := newKernel(t, c)
	mem := mapped(t, 4096)
	host, err := c.HostRegister(mem)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewStream(cuda.High)
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.NewEvent(false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Enter(); err != nil {
		t.Fatal(err)
	}
	defer c.Leave()
	f.wait(host, host+8)
	if err := errors.Join(s.Launch(f.Function, 1, 32, 0, f.params), s.Record(e)); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Query(); done || err != nil {
		t.Errorf("the stream of a kernel that waits: %v, %v", done, err)
	}
	if done, err := e.Query(); done || err != nil {
		t.Errorf("the event behind a kernel that waits: %v, %v", done, err)
	}
	sys.Word64(mem, 0).Store(1)
	if err := e.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if got := sys.Word64(mem, 8).Load(); got != 1 {
		t.Errorf("the kernel wrote %d to host memory", got)
	}
	if done, err := e.Query(); !done || err != nil {
		t.Errorf("the event behind a kernel that is done: %v, %v", done, err)
	}
	if err := errors.Join(s.Destroy(), e.Destroy(), c.HostUnregister(mem)); err != nil {
		t.Error(err)
	}
}

// What a collective does with a stream allocates nothing.
func TestHotCallsAllocateNothing(t *testing.T) {
	if race {
		t.Skip("the race detector has pools forget what is put into them")
	}
	c := cudatest.Contexts(t)[0]
	f := newKernel(t, c)
	p, err := c.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free(p)
	s, err := c.NewStream(cuda.Normal)
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.NewEvent(false)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if n := testing.AllocsPerRun(200, func() {
		f.store(p)
		if err := f.Launch(1, 32, 0, s, f.params); err != nil {
			t.Fatal(err)
		}
		if err := c.Enter(); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Capturing()
		if err != nil || s.Record(e) != nil || s.WaitEvent(e) != nil || s.Launch(f.Function, 1, 32, 0, f.params) != nil ||
			s.Copy(p+32, p, 16) != nil || s.Set(p+48, 1, 16) != nil || s.Synchronize() != nil {
			t.Fatal("a call failed")
		}
		c.Leave()
		if _, err := c.Attributes(p); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Launches from several goroutines, each with its own parameters, do what each
// asked for.
func TestConcurrentLaunches(t *testing.T) {
	gpus := cudatest.Contexts(t)
	var wg sync.WaitGroup
	for g := range 6 {
		c := gpus[g%len(gpus)]
		f := newKernel(t, c)
		p, err := c.Alloc(8 * 50)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.NewStream(cuda.Normal)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for i := range 50 {
				f.store(p + cuda.Pointer(8*i))
				if err := f.Launch(1, 32, 0, s, f.params); err != nil {
					t.Error(err)
				}
			}
			out := make([]byte, 8*50)
			if err := errors.Join(c.Enter(), s.Synchronize(), c.CopyFrom(out, p), c.Free(p)); err != nil {
				t.Error(err)
			}
			c.Leave()
			for i := range 50 {
				if got := binary.LittleEndian.Uint64(out[8*i:]); got != 1 {
					t.Errorf("goroutine %d, launch %d wrote %d", g, i, got)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkLaunch(b *testing.B) {
	c := cudatest.Contexts(b)[0]
	f := newKernel(b, c)
	p, err := c.Alloc(64)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Free(p)
	f.store(p)
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Launch(1, 32, 0, 0, f.params); err != nil {
			b.Fatal(err)
		}
	}
	if err := c.Synchronize(); err != nil {
		b.Fatal(err)
	}
}
