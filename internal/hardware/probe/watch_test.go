package probe

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The kernel is asked to announce a PCI device once more; a watcher hears it.
func TestWatcherHearsTheKernel(t *testing.T) {
	w, problem, err := NewWatcher()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	defer w.Close()
	if problem != nil {
		t.Logf("without the kernel log: %v", problem)
	}
	devices, _ := filepath.Glob("/sys/bus/pci/devices/*/uevent")
	if len(devices) == 0 {
		t.Skip("SKIPPED: this machine has no PCI device")
	}
	if err := os.WriteFile(devices[0], []byte("change"), 0); err != nil {
		t.Skipf("SKIPPED: the kernel takes no order to announce a device: %v", err)
	}
	if !w.Wait(30 * time.Second) {
		t.Error("the announcement was not heard")
	}
}

func TestWatcherGivesUpWaiting(t *testing.T) {
	w, _, err := NewWatcher()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	defer w.Close()
	if w.Wait(0) {
		t.Error("something happened in no time")
	}
	w.Wait(20 * time.Millisecond) // whatever happens
}
