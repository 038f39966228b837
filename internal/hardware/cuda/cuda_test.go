package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
)

// TestMain lets this program be the child that only opens the driver, and says
// what it found.
func TestMain(m *testing.M) {
	if os.Getenv("RINGLANE_TEST_OPEN") != "" {
		d, err := cuda.Open()
		_, again := cuda.Open()
		if err != nil {
			fmt.Println(err, errors.Is(err, cuda.ErrNone), err == again)
			return
		}
		for _, x := range d.Devices() {
			fmt.Printf("%s, MIG %v, UUID %x\n", x.Name, x.MIG, x.UUID)
		}
		return
	}
	os.Exit(m.Run())
}

// Whatever is missing, Open says that there is no GPU, and why.
func TestNone(t *testing.T) {
	cudatest.Open(t) // its driver is that of the children below
	for _, c := range []struct{ setting, want string }{
		{cuda.Variable + "=off", "RINGLANE_CUDA_DRIVER is off"},
		{cuda.Variable + "=/nowhere/libcuda.so.1", "/nowhere/libcuda.so.1: cannot open shared object file: No such file or directory (install the NVIDIA driver"},
		{cuda.Variable + "=libc.so.6", "libc.so.6 has no cuInit"},
		{"CUDA_VISIBLE_DEVICES=", "cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected (does CUDA_VISIBLE_DEVICES hide it"},
	} {
		got := opened(t, c.setting)
		if !strings.HasPrefix(got, "no usable NVIDIA GPU: ") || !strings.Contains(got, c.want) || !strings.HasSuffix(got, " true true") {
			t.Errorf("%s: %s\nwant %s", c.setting, got, c.want)
		}
	}
}

// opened is what a process finds that has these settings.
func opened(t *testing.T, settings ...string) string {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(append(os.Environ(), "RINGLANE_TEST_OPEN=1"), settings...)
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", settings, err, out)
	}
	return strings.TrimSpace(string(out))
}

// A process has one MIG instance, which is known as one.
func TestMIG(t *testing.T) {
	if name := cudatest.Open(t).Devices()[0].Name; name != "Ringlane Emulated GPU" {
		t.Skipf("%s cannot be divided by a test: this is for the emulator", name)
	}
	got := opened(t, "RINGLANE_EMULATOR=gpus=2,mig=on", "CUDA_VISIBLE_DEVICES=1,0")
	if want := "Ringlane Emulated GPU MIG 1g.10gb, MIG true, UUID " + fmt.Sprintf("%x", "ringlane emulat\x01"); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestDevices(t *testing.T) {
	d := cudatest.Open(t)
	if d.Version() < 11000 || d.Version() > 99999 {
		t.Errorf("version %d", d.Version())
	}
	seen := map[string]bool{}
	for i, x := range d.Devices() {
		t.Logf("%v: %+v", x, *x)
		if x.Ordinal != i || x.Name == "" || x.UUID == [16]byte{} || x.Memory == 0 || x.Multiprocessors < 1 ||
			x.MaxThreads < 32 || x.Capability[0] < 5 || x.Address.Bus == 0 && x.Address.Device == 0 {
			t.Errorf("GPU %d: %+v", i, *x)
		}
		if id := fmt.Sprintf("%x", x.UUID); seen[id] {
			t.Errorf("two GPUs have the UUID %s", id)
		} else {
			seen[id] = true
		}
		if ok, err := x.CanAccess(x); !ok || err != nil {
			t.Errorf("%v cannot reach itself: %v", x, err)
		}
		for _, y := range d.Devices() {
			if x == y {
				continue
			}
			access, err := x.CanAccess(y)
			if err != nil {
				t.Error(err)
			}
			link, err := x.Link(y)
			if err != nil || link.Access != access {
				t.Errorf("%v to %v: %+v, %v; access %v", x, y, link, err, access)
			}
		}
	}
}

func TestMemory(t *testing.T) {
	for _, c := range cudatest.Contexts(t) {
		const size = 1 << 20
		p, err := c.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		in, out := bytes.Repeat([]byte{1, 2, 3, 4, 5}, size/8), make([]byte, size)
		if err := errors.Join(c.Set(p, 7, size), c.CopyTo(p+100, in), c.CopyFrom(out, p)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out[100:][:len(in)], in) || out[99] != 7 || out[100+len(in)] != 7 || out[size-1] != 7 {
			t.Error("memory holds something else than what was copied to it")
		}
		a, err := c.Attributes(p + 1)
		if a.Type != cuda.DeviceMemory || a.Device != c.Device().Ordinal || err != nil {
			t.Errorf("attributes of GPU memory: %+v, %v", a, err)
		}
		if a, err := c.Attributes(0x1234); a.Type != cuda.Unknown || a.Device != -1 || err != nil {
			t.Errorf("attributes of nothing: %+v, %v", a, err)
		}
		free, total, err := c.MemoryInfo()
		if free == 0 || free > total || err != nil {
			t.Errorf("%d of %d bytes are free, %v", free, total, err)
		}
		if err := c.Free(p); err != nil {
			t.Error(err)
		}
		p, err = c.Alloc(1 << 46)
		want := "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory (nvidia-smi says who holds the GPU's memory)"
		if p != 0 || cuda.StatusOf(err) != cuda.StatusOutOfMemory || err.Error() != want || errors.Is(err, cuda.ErrLost) {
			t.Errorf("too much memory: %v\nwant %s", err, want)
		}
	}
}

func mapped(t *testing.T, size int) []byte {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

func TestHostMemory(t *testing.T) {
	c := cudatest.Contexts(t)[0]
	mem := mapped(t, 1<<16)
	p, err := c.HostRegister(mem)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := c.Attributes(p); a.Type != cuda.HostMemory || err != nil {
		t.Errorf("attributes of host memory: %+v, %v", a, err)
	}
	if err := c.Set(p+8, 5, 8); err != nil || mem[7] != 0 || mem[8] != 5 || mem[15] != 5 || mem[16] != 0 {
		t.Errorf("the GPU did not write to host memory: % x, %v", mem[:24], err)
	}
	if _, err := c.HostRegister(mem); err == nil || !strings.Contains(err.Error(), "serves the whole process") {
		t.Errorf("registered twice: %v", err)
	}
	if err := c.HostUnregister(mem); err != nil {
		t.Error(err)
	}
	if err := c.HostUnregister(mem); err == nil {
		t.Error("unregistered twice")
	}
	if _, err := c.HostRegister(nil); err == nil {
		t.Error("registered nothing")
	}
}

func TestEvents(t *testing.T) {
	c := cudatest.Contexts(t)[0]
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const size = 2 << 20
	p, err := c.Alloc(size)
	must(err)
	defer c.Free(p)
	a, err := c.NewStream(cuda.Normal)
	must(err)
	b, err := c.NewStream(cuda.High)
	must(err)
	start, err := c.NewEvent(true)
	must(err)
	end, err := c.NewEvent(true)
	must(err)
	must(c.Enter())
	defer c.Leave()
	if done, err := end.Query(); !done || err != nil {
		t.Errorf("an event that was never recorded: %v, %v", done, err)
	}
	must(a.Record(start))
	for range 20 {
		must(a.Set(p, 1, size))
	}
	must(a.Set(p, 2, size))
	must(a.Record(end))
	must(b.WaitEvent(end))
	must(b.Copy(p, p+size/2, size/4))
	must(b.Set(p+size/2, 3, size/4))
	must(b.Synchronize())
	if done, err := end.Query(); !done || err != nil {
		t.Errorf("the event that was waited for: %v, %v", done, err)
	}
	must(a.Synchronize())
	if done, err := a.Query(); !done || err != nil {
		t.Errorf("a stream with nothing to do: %v, %v", done, err)
	}
	out := make([]byte, size)
	must(c.CopyFrom(out, p))
	for i, v := range out {
		want := byte(2)
		if i >= size/2 && i < size/4*3 {
			want = 3
		}
		if v != want {
			t.Fatalf("byte %d is %d, want %d", i, v, want)
		}
	}
	if took, err := end.Since(start); took < 0 || err != nil {
		t.Errorf("took %v, %v", took, err)
	}
	must(errors.Join(start.Destroy(), end.Destroy(), a.Destroy(), b.Destroy()))
}

// Work is captured once and replayed; what is prepared meanwhile, by the same
// thread too, neither gets into the graph nor spoils it.
func TestCapture(t *testing.T) {
	c := cudatest.Contexts(t)[0]
	p, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free(p)
	s, err := c.NewStream(cuda.Normal)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Enter(); err != nil {
		t.Fatal(err)
	}
	defer c.Leave()
	if yes, _, err := s.Capturing(); yes || err != nil {
		t.Errorf("capturing before it began: %v, %v", yes, err)
	}
	if err := c.Set(p, 1, 4096); err != nil {
		t.Fatal(err)
	}
	var ids [2]uint64
	for i := range ids {
		if err := s.BeginCapture(); err != nil {
			t.Fatal(err)
		}
		yes, id, err := s.Capturing()
		if !yes || err != nil {
			t.Errorf("capturing: %v, %v", yes, err)
		}
		ids[i] = id
		if yes, _, err := cuda.Legacy.Capturing(); yes || err != nil {
			t.Errorf("the legacy stream captures: %v, %v", yes, err)
		}
		if err := s.Set(p, byte(10+i), 4096); err != nil {
			t.Fatal(err)
		}
		if a, err := c.Attributes(p); a.Type != cuda.DeviceMemory || err != nil {
			t.Errorf("attributes while capturing: %+v, %v", a, err)
		}
		q, err := c.Alloc(4096)
		if err := errors.Join(err, c.CopyTo(q, []byte{1}), c.Free(q)); err != nil {
			t.Fatalf("to prepare while capturing: %v", err)
		}
		graph, err := s.EndCapture()
		if err != nil {
			t.Fatal(err)
		}
		exec, err := graph.Instantiate()
		if err != nil {
			t.Fatal(err)
		}
		if err := graph.Destroy(); err != nil {
			t.Error(err)
		}
		out := make([]byte, 4096)
		if err := c.CopyFrom(out, p); err != nil || out[0] == byte(10+i) {
			t.Errorf("captured work was done: %d, %v", out[0], err)
		}
		for range 3 {
			err := errors.Join(c.Set(p, 1, 4096), exec.Launch(s), s.Synchronize(), c.CopyFrom(out, p))
			if err != nil || out[0] != byte(10+i) || out[4095] != byte(10+i) {
				t.Errorf("the graph left %d, %v", out[0], err)
			}
		}
		if err := exec.Destroy(); err != nil {
			t.Error(err)
		}
	}
	if ids[0] == ids[1] {
		t.Errorf("two captures have the number %d", ids[0])
	}
}

// What may not be done in a capture is an error then, of which the stream tells.
func TestSpoiledCapture(t *testing.T) {
	c := cudatest.Contexts(t)[0]
	s, err := c.NewStream(cuda.Normal)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Enter(); err != nil {
		t.Fatal(err)
	}
	defer c.Leave()
	if err := s.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	if err := s.Synchronize(); err == nil || !strings.Contains(err.Error(), "(a CUDA graph is being captured") {
		t.Errorf("synchronised while capturing: %v", err)
	}
	if yes, _, err := s.Capturing(); !yes || cuda.StatusOf(err) != cuda.StatusInvalidated {
		t.Errorf("a spoiled capture: %v, %v", yes, err)
	}
	if _, err := s.EndCapture(); err == nil {
		t.Error("a spoiled capture became a graph")
	}
	if yes, _, err := s.Capturing(); yes || err != nil {
		t.Errorf("after the capture: %v, %v", yes, err)
	}
	if err := s.Destroy(); err != nil {
		t.Error(err)
	}
}

// Goroutines that use all GPUs at once do not get in each other's way.
func TestConcurrent(t *testing.T) {
	gpus := cudatest.Contexts(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				c := gpus[(g+i)%len(gpus)]
				in := bytes.Repeat([]byte{byte(g), byte(i)}, 512)
				p, err := c.Alloc(1024)
				if err != nil {
					t.Error(err)
					return
				}
				out := make([]byte, 1024)
				if err := errors.Join(c.CopyTo(p, in), c.CopyFrom(out, p)); err != nil || !bytes.Equal(in, out) {
					t.Errorf("goroutine %d, turn %d: %v", g, i, err)
				}
				if a, err := c.Attributes(p); a.Device != c.Device().Ordinal || err != nil {
					t.Errorf("goroutine %d, turn %d: memory of GPU %d on GPU %d, %v", g, i, c.Device().Ordinal, a.Device, err)
				}
				if err := c.Free(p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
