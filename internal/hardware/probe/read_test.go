package probe

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/sys/unix"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// report is an nvidia-bug-report with a section of each kind.
const report = `____________________________________________

Start of NVIDIA bug report log file.  Please include this file.

nvidia-bug-report.sh Version: 1

____________________________________________

/usr/bin/lspci -d "10de:*" -v -xxx

3b:00.0 3D controller: NVIDIA Corporation Device 26b9 (rev a1)
	Flags: bus master, fast devsel, latency 0, IRQ 24
	Kernel driver in use: nvidia

____________________________________________

/usr/bin/lspci -t

-[0000:3a]---01.0-[3b]----00.0

____________________________________________

*** /sys/devices/system/node/has_memory
*** ls: -r--r--r-- 1 root root 4096 2026-01-01 00:00:00 +0000 /sys/devices/system/node/has_memory
0-1

____________________________________________
*** /sys/bus/pci/devices/0000:3b:00.0/numa_node
*** ls: -rw-r--r-- 1 root root 4096 2026-01-01 00:00:00 +0000 /sys/bus/pci/devices/0000:3b:00.0/numa_node
1

____________________________________________

dmesg:

[    0.000000] Linux version 6.18.0 (user-at-host)
[   52.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
____________________________________________

*** /proc/cmdline
*** ls: -r--r--r-- 1 root root 0 2026-01-01 00:00:00 +0000 /proc/cmdline
BOOT_IMAGE=/vmlinuz ro quiet

____________________________________________

*** /proc/driver/nvidia/./gpus/0000:3b:00.0/information
*** ls: -r--r--r-- 1 root root 0 2026-01-01 00:00:00 +0000 /proc/driver/nvidia/./gpus/0000:3b:00.0/information
Model: 		 NVIDIA L40S
GPU UUID: 	 GPU-11111111-2222-3333-4444-555555555555
Video BIOS: 	 ??.??.??.??.??

____________________________________________

/usr/bin/nvidia-smi --query
` + query

func TestBugReport(t *testing.T) {
	check := func(name string, m *machine.Machine) {
		t.Helper()
		d := m.Device(pcie.MustParseBDF("3b:00.0"))
		if len(m.Problems) != 0 || d == nil {
			t.Fatalf("%s: problems %v", name, m.Problems)
		}
		if *d.NUMA != 1 || d.Parent == nil || d.Parent.String() != "0000:3a:01.0" || d.GPU.Name != "NVIDIA L40S" || d.GPU.VBIOS != "" || d.Driver != "nvidia" {
			t.Errorf("%s: device %s", name, asJSON(d))
		}
		if m.CommandLine != "BOOT_IMAGE=/vmlinuz ro quiet" || len(m.NUMANodes) != 2 || m.Driver.Version != "580.10" || len(m.Log) != 2 {
			t.Errorf("%s: %q, %v, %v, %d entries", name, m.CommandLine, m.NUMANodes, m.Driver, len(m.Log))
		}
		for _, k := range []machine.Kind{machine.KindBugReport, machine.KindLspci, machine.KindLspciTree, machine.KindQuery, machine.KindKernelLog, machine.KindCmdline} {
			if !m.Saw(k) {
				t.Errorf("%s: %s was not recognised", name, k)
			}
		}
	}
	check("plain", read(report))
	check("crlf", read(strings.ReplaceAll(report, "\n", "\r\n")))
	check("gz", Text("x", bytes.NewReader(zip(report))))
	check("utf-16", Text("x", bytes.NewReader(wide(report))))

	// Cut short, the compressed file still tells what it held so far.
	z := zip(strings.Repeat(report, 20))
	cut := Text("x", bytes.NewReader(z[:len(z)-40]))
	if len(cut.Devices) != 3 || len(cut.Problems) == 0 {
		t.Errorf("cut: %d devices, %v", len(cut.Devices), cut.Problems)
	}
}

func zip(s string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, s)
	if err := errors.Join(err, z.Close()); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func wide(s string) []byte {
	out := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(s)) {
		out = binary.LittleEndian.AppendUint16(out, u)
	}
	return out
}

// Files, directories and standard input in one machine.
func TestReadMix(t *testing.T) {
	dir := t.TempDir()
	write := func(name, s string) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	write("all/a.dat", topology) // names mean nothing
	write("all/below/b.xml", matrix)
	line := write("boot", "pci=realloc,hpbussize=0x33\n")
	gone := filepath.Join(dir, "gone")
	m, err := Read([]string{filepath.Join(dir, "all"), line, gone, newSysTree(t).root, "-"}, strings.NewReader(query))
	if err != nil {
		t.Fatal(err)
	}
	if !m.Saw(machine.KindNCCLXML) || !m.Saw(machine.KindTopo) || !m.Saw(machine.KindSysfs) || !m.Saw(machine.KindQuery) || len(m.Inputs) != 6 {
		t.Errorf("inputs %+v", m.Inputs)
	}
	if m.CommandLine != "pci=realloc,hpbussize=0x33" {
		t.Errorf("command line %q", m.CommandLine)
	}
	classes := map[machine.ProblemClass]int{}
	for _, p := range m.Problems {
		classes[p.Class]++
	}
	want := map[machine.ProblemClass]int{machine.Unreadable: 1, machine.Contradiction: 1, machine.Denied: 1}
	if !reflect.DeepEqual(classes, want) {
		t.Errorf("problems %v", m.Problems)
	}
	d := m.Device(pcie.MustParseBDF("3b:00.0"))
	if d.GPU == nil || d.Driver != "nvidia" || len(d.Sources) != 2 {
		t.Errorf("device of two sources %s", asJSON(d))
	}
}

// Registers beat text, text beats XML; what disagrees is said.
func TestContradictions(t *testing.T) {
	lspci := "42:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n\tNUMA node: 1\n\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n\t\tLnkCap: Port #0, Speed 32GT/s, Width x16\n\t\tLnkSta: Speed 32GT/s, Width x16\n\n"
	for _, in := range []string{topology + lspci, lspci + topology} {
		m := read(in)
		d := m.Device(pcie.MustParseBDF("42:00.0"))
		if d.Model.Code != 0x2330 || *d.NUMA != 1 {
			t.Errorf("XML won: model %04x, node %d", d.Model.Code, *d.NUMA)
		}
		n := 0
		for _, p := range m.Problems {
			if p.Class == machine.Contradiction && strings.Contains(p.Text, "42:00.0") && p.Line > 0 {
				n++
			}
		}
		if n != 2 {
			t.Errorf("problems %v", m.Problems)
		}
	}
	twice := read(lspci + strings.ReplaceAll(lspci, "LnkSta: Speed 32GT/s, Width x16", "LnkSta: Speed 8GT/s, Width x4"))
	if l, _ := twice.Devices[0].Current(); l != (pcie.Link{Speed: pcie.Gen3, Width: 4}) || len(twice.Problems) != 1 {
		t.Errorf("the later of two equal sources does not count: %v, %v", l, twice.Problems)
	}
}

// What the bytes said stands against words that come later.
func TestRegistersBeatText(t *testing.T) {
	config := make([]byte, 128)
	copy(config, []byte{0xde, 0x10, 0x30, 0x23, 6, 0, 0x10, 0, 0xa1, 0, 2, 3})
	config[0x34] = 0x40
	copy(config[0x40:], []byte{0x10, 0, 2, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0, 0, 0, 5, 1}) // Gen5 x16
	var dump strings.Builder
	for i := 0; i < len(config); i += 16 {
		fmt.Fprintf(&dump, "%02x: % x\n", i, config[i:i+16])
	}
	header := "42:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n"
	m := read(header + dump.String() + "\n" + header + "\tCapabilities: [40] Express (v2) Endpoint, MSI 00\n\t\tLnkSta: Speed 8GT/s, Width x4\n")
	if l, _ := m.Devices[0].Current(); l != (pcie.Link{Speed: pcie.Gen5, Width: 16}) || len(m.Problems) != 1 {
		t.Errorf("link %v, problems %v", l, m.Problems)
	}
}

func TestReadLine(t *testing.T) {
	in := bufio.NewReaderSize(strings.NewReader("short\n\n"+strings.Repeat("x", maxLine+10)+"\n"+strings.Repeat("y", 1<<20)+"\nend"), 256<<10)
	for i, want := range []struct {
		length int
		cut    bool
		err    error
	}{{5, false, nil}, {0, false, nil}, {maxLine, true, nil}, {maxLine, true, nil}, {3, false, io.EOF}} {
		line, cut, err := readLine(in)
		if len(line) != want.length || cut != want.cut || err != want.err {
			t.Errorf("line %d: %d bytes, cut %v, %v", i, len(line), cut, err)
		}
	}
}

// A tool that runs lspci on many hosts names the host on each line.
func TestHostPrefix(t *testing.T) {
	out := render(style{indent: "\t", eol: "\n", quote: "node1: "}, "3b:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)", randomRegisters(rand.New(rand.NewPCG(2, 2))))
	want := read(strings.ReplaceAll(out, "node1: ", ""))
	m := read(out)
	if len(m.Problems) != 0 || !reflect.DeepEqual(m.Devices, want.Devices) {
		t.Errorf("problems %v:\n%s", m.Problems, differences(want.Devices, m.Devices))
	}
	two := read(out + strings.ReplaceAll(strings.ReplaceAll(out, "node1", "node2"), "+", "-"))
	if len(two.Problems) != 1 || !reflect.DeepEqual(two.Devices, want.Devices) {
		t.Errorf("two hosts: problems %v:\n%s", two.Problems, differences(want.Devices, two.Devices))
	}
}

// A pipe without a writer is empty; it is not waited for.
func TestPipe(t *testing.T) {
	p := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(p, 0o600); err != nil {
		t.Skipf("no named pipes here: %v", err)
	}
	if m, err := Read([]string{p}, nil); err == nil || len(m.Problems) != 1 {
		t.Errorf("an empty pipe: %v, %v", err, m.Problems)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(w, query)
		w.Close()
	}()
	defer r.Close()
	if m, err := Read([]string{fmt.Sprintf("/dev/fd/%d", r.Fd())}, nil); err != nil || len(m.GPUs()) != 2 {
		t.Errorf("a pipe: %v, %v", err, m.Problems)
	}
}

// The matrix numbers GPUs in the order of their addresses.
func TestMatrixNames(t *testing.T) {
	m := read(matrix + "5e:00.0 3D controller: NVIDIA Corporation Device 26b9\n\n3b:00.0 3D controller: NVIDIA Corporation Device 26b9\n\n")
	d := m.Device(pcie.MustParseBDF("5e:00.0"))
	if d.GPU == nil || *d.GPU.Index != 1 || d.NUMA == nil || *d.NUMA != 1 {
		t.Errorf("second GPU %s", asJSON(d))
	}
}

// A listing without end is cut.
func TestTooManyDevices(t *testing.T) {
	var out strings.Builder
	for i := range maxDevices + 100 {
		fmt.Fprintf(&out, "%04x:%02x:%02x.0 3D controller: NVIDIA Corporation Device 2330\n\tNUMA node: 1\n", i>>13, i>>5&0xff, i&31)
	}
	m := read(out.String())
	if len(m.Devices) != maxDevices || len(m.Problems) == 0 {
		t.Errorf("%d devices, %d problems", len(m.Devices), len(m.Problems))
	}
}

// A saved document reads back as the machine it was.
func TestCapture(t *testing.T) {
	first := read(report + topology)
	var doc bytes.Buffer
	if err := first.Save(&doc); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"plain": doc.Bytes(), "gz": zip(doc.String())} {
		m := Text("x", bytes.NewReader(data))
		if !m.Saw(machine.KindCapture) || len(m.Problems) != len(first.Problems) {
			t.Fatalf("%s: %v", name, m.Problems)
		}
		if !reflect.DeepEqual(m.Devices, first.Devices) || !reflect.DeepEqual(m.NCCL, first.NCCL) || m.CommandLine != first.CommandLine {
			t.Errorf("%s:\n%s", name, differences(first, m))
		}
		if len(m.Log) != len(first.Log) || m.Log[1].Event != first.Log[1].Event || m.Log[1].Section != first.Log[1].Section {
			t.Errorf("%s: log %+v, was %+v", name, m.Log, first.Log)
		}
		if changes := machine.Diff(first, m); len(changes) != 0 {
			t.Errorf("%s: %v", name, changes)
		}
	}
	// Together with another input, in either order.
	capture := filepath.Join(t.TempDir(), "c")
	if err := os.WriteFile(capture, doc.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, paths := range [][]string{{capture, "-"}, {"-", capture}} {
		m, err := Read(paths, strings.NewReader(matrix))
		if err != nil || m.Matrix == nil || len(m.Devices) != len(first.Devices) || len(m.Log) != len(first.Log) {
			t.Errorf("%v: %v, %d devices, %d entries", paths, err, len(m.Devices), len(m.Log))
		}
	}
	// Other JSON, and newer versions, are said to be such.
	for _, in := range []string{`{"a":1}`, `{"version":99}`, `{`, `{"version":1,"devices":[null]}`} {
		m := read(in)
		if bad := in != `{"version":1,"devices":[null]}`; (len(m.Problems) == 1) != bad {
			t.Errorf("%s: %v", in, m.Problems)
		}
	}
}

// What is no input says so, and nothing else happens.
func TestJunk(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	zeros := make([]byte, 1<<20)
	for name, in := range map[string][]byte{
		"empty": nil, "blank": []byte("\n\n\n"), "noise": noise, "zeros": zeros, "prose": []byte("Dear all,\n\nmy machine is slow.\n"),
		"one long line": bytes.Repeat([]byte("x"), 1<<21), "gzip magic": {0x1f, 0x8b}, "gzip of noise": zip(string(noise)),
		"elf": []byte("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 4000)), "bom": {0xff, 0xfe}, "gzip of gzip": zip(string(zip("a"))),
		"xml": []byte("<html><body>no</body></html>"), "lone escape": []byte("\x1b"),
	} {
		m := Text(name, bytes.NewReader(in))
		if len(m.Devices) != 0 || len(m.Problems) == 0 {
			t.Errorf("%s: %d devices, problems %v", name, len(m.Devices), m.Problems)
		}
		for _, p := range m.Problems {
			if p.Input != name {
				t.Errorf("%s: problem of input %q", name, p.Input)
			}
		}
	}
	if _, err := Read([]string{os.DevNull, t.TempDir()}, nil); err == nil || !errors.Is(err, errNothing) {
		t.Errorf("nothing was read, but: %v", err)
	}
	// Problems are bounded: junk has many lines.
	m := read("00:00.0 Host bridge: x\n" + strings.Repeat("\tBus: primary=zz\n", 1000))
	if len(m.Problems) > maxProblems {
		t.Errorf("%d problems", len(m.Problems))
	}
}

type failing struct{ r io.Reader }

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == io.EOF {
		err = errors.New("the disk is gone")
	}
	return n, err
}

func TestReadError(t *testing.T) {
	m := Text("x", failing{strings.NewReader("3b:00.0 3D controller: NVIDIA Corporation Device 2330\n")})
	if len(m.Devices) != 1 || len(m.Problems) != 1 || m.Problems[0].Class != machine.Truncated {
		t.Errorf("%d devices, %v", len(m.Devices), m.Problems)
	}
}

// storm yields a kernel log of any size without holding it.
type storm struct {
	left int
	n    int
	buf  []byte
}

func (s *storm) Read(p []byte) (int, error) {
	for len(s.buf) < len(p) && s.left > 0 {
		s.n++
		line := fmt.Appendf(nil, "[%5d.%06d] pcieport 0000:3a:01.0: AER: Corrected error received: 0000:3b:00.0\n", s.n/1000, s.n%1000*1000)
		s.buf = append(s.buf, line...)
		s.left -= len(line)
	}
	if len(s.buf) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.buf)
	s.buf = append(s.buf[:0], s.buf[n:]...)
	return n, nil
}

// Memory does not grow with a log that repeats one line for ever.
func TestStormMemory(t *testing.T) {
	heap := func(size int) uint64 {
		m := Text("x", &storm{left: size})
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		if len(m.Log) == 0 || len(m.Log) > maxEntriesDevice {
			t.Fatalf("%d entries", len(m.Log))
		}
		runtime.KeepAlive(m)
		return s.HeapAlloc
	}
	small, large := heap(4<<20), heap(24<<20)
	if large > small+8<<20 {
		t.Errorf("%d MiB are held of a log six times as long as one that takes %d", large>>20, small>>20)
	}
}

// lspci16k is lspci -vvv of 500 functions, about 16,000 lines.
func lspci16k() string {
	rng := rand.New(rand.NewPCG(16, 16))
	var out strings.Builder
	for i := range 500 {
		header := fmt.Sprintf("%02x:%02x.%d PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])", i/8/2+1, i/8%2, i%8)
		out.WriteString(render(style{indent: "\t", eol: "\n"}, header, randomRegisters(rng)))
	}
	return out.String()
}

func BenchmarkLspci(b *testing.B) {
	in := lspci16k()
	b.SetBytes(int64(len(in)))
	b.ReportMetric(float64(strings.Count(in, "\n")), "lines")
	b.ReportAllocs()
	for b.Loop() {
		if m := read(in); len(m.Devices) != 500 {
			b.Fatalf("%d devices", len(m.Devices))
		}
	}
}

func BenchmarkStorm(b *testing.B) {
	const size = 32 << 20
	b.SetBytes(size)
	for b.Loop() {
		Text("x", &storm{left: size})
	}
}

// quietLog is a log of lines that are none of our business.
type quietLog struct{ left int }

func (q *quietLog) Read(p []byte) (int, error) {
	const line = "[  123.456789] systemd[1]: Started session-c1.scope - Session c1 of User example, and so on and on.\n"
	n := 0
	for n+len(line) <= len(p) && q.left > 0 {
		n += copy(p[n:], line)
		q.left -= len(line)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func BenchmarkQuietLog(b *testing.B) {
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		Text("x", &quietLog{left: size})
	}
}
