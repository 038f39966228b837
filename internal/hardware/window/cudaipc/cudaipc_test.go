package cudaipc_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/cudatest"
	"ringlane/internal/hardware/window/cudaipc"
)

const size = 3<<20 + 5

// peer names the environment variable that makes this program a peer: it has
// the handle of a window.
const peer = "RINGLANE_TEST_PEER"

func TestMain(m *testing.M) {
	text := os.Getenv(peer)
	if text == "" {
		os.Exit(m.Run())
	}
	var h cudaipc.Handle
	if _, err := hex.Decode(h[:], []byte(text)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := use(h); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// use is what a peer does with a window: from each GPU it verifies what is there
// and leaves the GPU's number.
func use(h cudaipc.Handle) error {
	d, err := cuda.Open()
	if err != nil {
		return err
	}
	for i, device := range d.Devices() {
		c, err := device.Retain()
		if err != nil {
			return err
		}
		w, err := cudaipc.Import(c, h)
		if err != nil {
			return err
		}
		twice, err := cudaipc.Import(c, h)
		if err != nil {
			return err
		}
		if w.Size() != size || w.Handle() != h {
			return fmt.Errorf("a window of %d bytes was imported as one of %d", size, w.Size())
		}
		got := make([]byte, size)
		if err := c.CopyFrom(got, w.Pointer()); err != nil {
			return err
		}
		want := bytes.Repeat([]byte{7}, size)
		for j := range i {
			want[j] = byte(j + 1)
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("GPU %d does not see what the window holds: it begins with % x", i, got[:8])
		}
		if err := twice.Close(); err != nil {
			return err
		}
		if err := c.CopyTo(w.Pointer()+cuda.Pointer(i), []byte{byte(i + 1)}); err != nil {
			return err
		}
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			return err
		}
		if a, err := c.Attributes(w.Pointer()); a.Type != cuda.Unknown || err != nil {
			return fmt.Errorf("a window that is closed is still mapped: %+v, %v", a, err)
		}
		if err := c.Release(); err != nil {
			return err
		}
	}
	return nil
}

// reachable says whether all GPUs reach the memory of the first.
func reachable(t *testing.T) bool {
	devices := cudatest.Open(t).Devices()
	for _, d := range devices {
		if ok, err := d.CanAccess(devices[0]); !ok || err != nil {
			t.Logf("%v cannot reach %v: %v", d, devices[0], err)
			return false
		}
	}
	return true
}

// Another process uses the window from all GPUs, and this one sees what it left.
func TestBetweenProcesses(t *testing.T) {
	contexts := cudatest.Contexts(t)
	if !reachable(t) {
		t.Skip("not all GPUs reach each other")
	}
	c := contexts[0]
	w, err := cudaipc.Create(c, size)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Set(w.Pointer(), 7, size); err != nil {
		t.Fatal(err)
	}
	h := w.Handle()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), peer+"="+hex.EncodeToString(h[:]))
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("the peer: %v: %s", err, out)
	}
	got := make([]byte, len(contexts)+1)
	if err := c.CopyFrom(got, w.Pointer()); err != nil {
		t.Fatal(err)
	}
	for i := range contexts {
		if got[i] != byte(i+1) {
			t.Errorf("what the peer left from GPU %d is %d", i, got[i])
		}
	}
	if got[len(contexts)] != 7 {
		t.Errorf("the peer wrote where it should not: % x", got)
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), peer+"="+hex.EncodeToString(h[:]))
	if out, err := child.CombinedOutput(); err == nil || !strings.Contains(string(out), "import a window of 3145733 bytes") {
		t.Errorf("a window that is closed was imported: %v: %s", err, out)
	}
}

// In one process a window is its memory, and its bytes are zero at first.
func TestInOneProcess(t *testing.T) {
	contexts := cudatest.Contexts(t)
	if !reachable(t) {
		t.Skip("not all GPUs reach each other")
	}
	w, err := cudaipc.Create(contexts[0], size)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, size)
	if err := contexts[0].CopyFrom(got, w.Pointer()); err != nil || !bytes.Equal(got, make([]byte, size)) {
		t.Errorf("a new window is not zero: %v", err)
	}
	for _, c := range contexts {
		for range 2 {
			in, err := cudaipc.Import(c, w.Handle())
			if err != nil {
				t.Fatal(err)
			}
			if in.Pointer() != w.Pointer() || in.Size() != size {
				t.Errorf("%v sees %d bytes at %x, not %d at %x", c.Device(), in.Size(), in.Pointer(), size, w.Pointer())
			}
			if err := in.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := cudaipc.Import(contexts[0], w.Handle()); err == nil || !strings.Contains(err.Error(), "was closed in this process") {
		t.Errorf("a window that is closed was imported: %v", err)
	}
}

func TestTooMuch(t *testing.T) {
	c := cudatest.Contexts(t)[0]
	_, err := cudaipc.Create(c, 1<<45)
	if err == nil || cuda.StatusOf(err) != cuda.StatusOutOfMemory || !strings.HasPrefix(err.Error(), "make a window of 35184372088832 bytes on GPU 0 (") {
		t.Error(err)
	}
}
