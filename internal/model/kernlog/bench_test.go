package kernlog

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// quiet is a log as machines write it: hardly a line is about PCIe.
func quiet() []byte {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "[%8d.%06d] audit: type=1400 audit(1700000000.%03d:%d): apparmor=\"ALLOWED\" operation=\"open\" profile=\"snap\" pid=%d comm=\"daemon\"\n", i, i, i, i, i)
		fmt.Fprintf(&b, "[%8d.%06d] eth0: link becomes ready: 0000 00:11:22:33:44:55 and %d other words\n", i, i, i)
		fmt.Fprintf(&b, "[%8d.%06d] usb 1-%d: new high-speed USB device number %d using xhci_hcd\n", i, i, i&7, i)
		if i%100 == 0 {
			fmt.Fprintf(&b, "[%8d.%06d] pcieport 0000:00:1c.0: pciehp: Slot(%d): Link Down\n", i, i, i)
		}
	}
	return []byte(b.String())
}

// storm is a log of nothing but error records.
func storm() []byte {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "[%8d.%06d] pcieport 0000:00:1c.0: AER: Corrected error received: 0000:03:00.0\n", i, i)
		fmt.Fprintf(&b, "[%8d.%06d] nvme 0000:03:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n", i, i)
		fmt.Fprintf(&b, "[%8d.%06d] nvme 0000:03:00.0:   device [1c5c:2839] error status/mask=00000001/00002000\n", i, i)
		fmt.Fprintf(&b, "[%8d.%06d] nvme 0000:03:00.0:    [ 0] RxErr                  (First)\n", i, i)
	}
	return []byte(b.String())
}

// syslog is quiet in a longer carrier.
func syslog() []byte {
	var b strings.Builder
	for line := range strings.Lines(string(quiet())) {
		b.WriteString("Sep 19 16:18:04 host kernel: " + line)
	}
	return []byte(b.String())
}

func BenchmarkScanner(b *testing.B) {
	for _, c := range []struct {
		name string
		log  []byte
	}{
		{"quiet", quiet()}, {"syslog", syslog()}, {"storm", storm()},
		{"colons", []byte(strings.Repeat(strings.Repeat("0:", 2000)+"\n", 100))},
		{"brackets", []byte(strings.Repeat(strings.Repeat("[1.1]", 800)+"\n", 100))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.log)))
			b.ReportAllocs()
			for b.Loop() {
				s := NewScanner(func(Entry) {})
				s.Write(c.log)
				s.Flush()
			}
		})
	}
}

// TestConstantMemory reads 200 MB and looks at what stays.
func TestConstantMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 200 MB")
	}
	log := append(quiet(), storm()...)
	s := NewScanner(func(Entry) {})
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s.Write(log)
	before := heap()
	for range 200e6 / len(log) {
		s.Write(log)
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
	runtime.KeepAlive(s)
}
