package shm

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWindowIsShared(t *testing.T) {
	a, err := Create("shm test", 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	fd, err := unix.Dup(a.FD())
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(fd, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if len(a.Bytes) != 1<<20 || len(b.Bytes) != 1<<20 {
		t.Fatalf("%d and %d bytes", len(a.Bytes), len(b.Bytes))
	}
	a.Bytes[12345] = 7
	if b.Bytes[12345] != 7 || b.Bytes[12344] != 0 {
		t.Error("a store on one side is not seen on the other")
	}
	// Nobody can take memory away from under the other's feet.
	if err := unix.Ftruncate(b.FD(), 0); err == nil {
		t.Error("the window could be shrunk")
	}
}

func TestOpenRefuses(t *testing.T) {
	short, err := Create("shm test", 4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	fd, _ := unix.Dup(short.FD())
	if _, err := Open(fd, 4<<20); err == nil || !strings.Contains(err.Error(), "4194304") {
		t.Errorf("a window that is too small: %v", err)
	}
	open, err := unix.MemfdCreate("shm test", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(open, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(open, 4096); err == nil || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("a window that can shrink: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(open), unix.F_GETFD, 0); err == nil {
		t.Error("a refused descriptor stays open")
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, _ = unix.Dup(int(file.Fd()))
	if _, err := Open(fd, 4096); err == nil {
		t.Error("a file on disk passes for a window")
	}
}

func TestCreateFailsWithItsSize(t *testing.T) {
	if _, err := Create("shm test", 1<<62, 0); err == nil {
		t.Error("4 EiB were granted")
	}
}

// Huge pages are used where the machine has set some aside; elsewhere the
// window is the same on small ones.
func TestHugePages(t *testing.T) {
	w, err := Create("shm test", hugePage+1, 2*hugePage)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if len(w.Bytes) != hugePage+1 {
		t.Errorf("%d bytes", len(w.Bytes))
	}
	w.Bytes[hugePage] = 1
	if !w.Huge {
		t.Log("SKIPPED: this machine has no huge pages set aside (vm.nr_hugepages); small ones were used")
	}
}
