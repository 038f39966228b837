// Package probe reads a computer, or what people have of one, into a machine
// document: the live /sys or a copy of it, lspci, kernel logs,
// nvidia-bug-report, nvidia-smi, NCCL's topology file and log, the kernel
// command line, captures. Content decides what an input is, never its name.
//
// Nothing that an input holds makes reading fail: what can be read is used,
// and what cannot is listed in the document's Problems.
package probe

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ringlane/internal/model/machine"
)

// Read reads any mix of files and directories; "-" is stdin. A directory is a
// /sys tree or the root of one, or else every file in it is read. The machine
// is never nil; the error says that nothing at all was recognised.
func Read(paths []string, stdin io.Reader) (*machine.Machine, error) {
	b := newBuilder()
	for _, p := range paths {
		b.path(p, stdin)
	}
	b.finish()
	for i := range b.m.Inputs {
		if len(b.m.Inputs[i].Kinds) > 0 {
			return b.m, nil
		}
	}
	return b.m, nothing(paths)
}

// Live reads the machine whose file system is at root: "/" is this one.
func Live(root string) (*machine.Machine, error) {
	b := newBuilder()
	b.begin(root)
	if !b.root(root) {
		b.finish()
		return b.m, fmt.Errorf("read %s: there is no PCI bus in it (is /sys mounted?)", filepath.Join(root, "sys/bus/pci/devices"))
	}
	b.finish()
	return b.m, nil
}

// Text reads one stream of unknown kind, named for problems.
func Text(name string, r io.Reader) *machine.Machine {
	b := newBuilder()
	b.begin(name)
	b.stream(r)
	b.finish()
	return b.m
}

// begin opens an input.
func (b *builder) begin(name string) {
	b.m.Inputs = append(b.m.Inputs, machine.Input{Name: name})
	b.input = &b.m.Inputs[len(b.m.Inputs)-1]
}

func (b *builder) path(p string, stdin io.Reader) {
	if p == "-" {
		b.begin("-")
		b.stream(stdin)
		return
	}
	info, err := os.Stat(p)
	if err != nil {
		b.begin(p)
		b.problem(0, machine.Unreadable, "%v", reason(err))
		return
	}
	if info.IsDir() {
		b.begin(p)
		if b.root(p) || b.sys(p) {
			return
		}
		b.m.Inputs = b.m.Inputs[:len(b.m.Inputs)-1]
		b.directory(p)
		return
	}
	b.file(p, info)
}

// reason drops the path from an error: the problem names the input already.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (b *builder) file(p string, info fs.FileInfo) {
	b.begin(p)
	// A device or a socket may never end.
	if mode := info.Mode(); mode&(fs.ModeDevice|fs.ModeSocket|fs.ModeIrregular) != 0 {
		b.problem(0, machine.Unreadable, "it is no regular file")
		return
	}
	// A pipe that nobody writes to is empty; opening it must not wait.
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		b.problem(0, machine.Unreadable, "%v", reason(err))
		return
	}
	defer f.Close()
	b.stream(f)
}

// maxFiles bounds a directory that was named by mistake.
const maxFiles = 200

// directory reads the regular files in a directory and below it.
func (b *builder) directory(p string) {
	n := 0
	err := filepath.WalkDir(p, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			b.begin(path)
			b.problem(0, machine.Unreadable, "%v", reason(err))
			return nil
		}
		if !e.Type().IsRegular() {
			return nil
		}
		if n++; n > maxFiles {
			b.begin(p)
			b.problem(0, machine.Unreadable, "it holds more than %d files (the rest was not read)", maxFiles)
			return fs.SkipAll
		}
		info, err := e.Info()
		if err == nil {
			b.file(path, info)
		}
		return nil
	})
	if err != nil || n == 0 {
		b.begin(p)
		b.problem(0, machine.Unrecognised, "the directory holds no file to read and no /sys tree")
	}
}

// adopt merges a loaded document into the machine.
func (b *builder) adopt(m *machine.Machine) {
	if len(b.m.Devices) == 0 && len(b.m.Log) == 0 && b.m.CommandLine == "" && b.m.NCCL == nil && b.m.Matrix == nil {
		m.Problems = append(b.m.Problems, m.Problems...)
		m.Inputs = b.m.Inputs
		*b.m = *m
		b.input = &b.m.Inputs[len(b.m.Inputs)-1]
		for _, d := range m.Devices {
			b.ranks[d.BDF] = documentRanks(d)
		}
		return
	}
	b.merge(m)
}

// documentRanks says how good the facts of a saved device are.
func documentRanks(d *machine.Device) *ranks {
	from := fromXML
	for _, k := range d.Sources {
		switch k {
		case machine.KindSysfs:
			from = max(from, fromRegisters)
		case machine.KindNCCLXML:
		default:
			from = max(from, fromText)
		}
	}
	return &ranks{vendor: from, model: from, subsystem: from, class: from, parent: from, numa: from, registers: from}
}

// merge adds the facts of another document of the same machine.
func (b *builder) merge(m *machine.Machine) {
	for _, o := range m.Devices {
		if b.m.Device(o.BDF) == nil {
			d := b.m.Add(o.BDF)
			*d = *o
			b.ranks[o.BDF] = documentRanks(o)
			continue
		}
		b.mergeDevice(o)
	}
	fill(&b.m.Host, m.Host)
	fill(&b.m.Kernel, m.Kernel)
	fill(&b.m.Product, m.Product)
	fill(&b.m.Driver.Version, m.Driver.Version)
	fill(&b.m.Driver.CUDA, m.Driver.CUDA)
	fill(&b.m.Virtual.Hypervisor, m.Virtual.Hypervisor)
	b.setCommandLine(0, m.CommandLine)
	if b.m.UptimeSeconds == nil {
		b.m.UptimeSeconds = m.UptimeSeconds
	}
	if b.m.Matrix == nil {
		b.m.Matrix = m.Matrix
	}
	if b.m.NCCL == nil {
		b.m.NCCL = m.NCCL
	}
	if len(b.m.NUMANodes) == 0 {
		b.m.NUMANodes = m.NUMANodes
	}
	if !b.m.IOMMU.UnitsSeen {
		b.m.IOMMU = m.IOMMU
	}
	for _, h := range m.Virtual.Hints {
		addName(&b.m.Virtual.Hints, h)
	}
	for _, t := range m.LogText {
		b.m.AddLog(t.LogPart, t.Lines)
	}
	b.m.Problems = append(b.m.Problems, m.Problems...)
}

func fill(to *string, v string) {
	if *to == "" {
		*to = v
	}
}

// mergeDevice adds the facts of a saved device to the one at its address.
func (b *builder) mergeDevice(o *machine.Device) {
	r := documentRanks(o)
	d := b.m.Add(o.BDF)
	if o.Vendor.Known {
		b.setVendor(d, 0, o.Vendor.Code, r.vendor)
	}
	if o.Model.Known {
		b.setModel(d, 0, o.Model.Code, r.model)
	}
	if o.Class.Known {
		b.setClass(d, 0, o.Class.Code, r.class)
	}
	if o.NUMA != nil {
		b.setNUMA(d, 0, *o.NUMA, r.numa)
	}
	if o.ParentKnown {
		b.setParent(d, 0, o.Parent, r.parent)
	}
	b.addRegisters(d, 0, &o.Registers, r.registers)
	fill(&d.Vendor.Name, o.Vendor.Name)
	fill(&d.Model.Name, o.Model.Name)
	fill(&d.Driver, o.Driver)
	fill(&d.Slot, o.Slot)
	fill(&d.Label, o.Label)
	fill(&d.IOMMUDomain, o.IOMMUDomain)
	fill(&d.PowerState, o.PowerState)
	keep(&d.IOMMUGroup, o.IOMMUGroup)
	keep(&d.Link, o.Link)
	keep(&d.NCCLLink, o.NCCLLink)
	keep(&d.Counters, o.Counters)
	keep(&d.GPU, o.GPU)
	keep(&d.PhysicalFunction, o.PhysicalFunction)
	if len(d.Resources) == 0 {
		d.Resources = o.Resources
	}
	for _, n := range o.Interfaces {
		addName(&d.Interfaces, n)
	}
	for _, k := range o.Sources {
		b.device(o.BDF, k)
	}
	d.Lost = d.Lost || o.Lost
}

func keep[T any](to **T, v *T) {
	if *to == nil {
		*to = v
	}
}
