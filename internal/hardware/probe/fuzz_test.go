package probe

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ringlane/internal/model/machine"
)

// sound checks what holds of every machine, whatever it was made from.
func sound(t *testing.T, m *machine.Machine) {
	if !slices.IsSortedFunc(m.Devices, func(a, b *machine.Device) int { return a.BDF.Compare(b.BDF) }) {
		t.Error("devices are out of order")
	}
	for i, d := range m.Devices {
		if i > 0 && m.Devices[i-1].BDF == d.BDF {
			t.Errorf("%v is there twice", d.BDF)
		}
		_, _ = d.Current()
		_, _ = d.Max()
		_, _, _ = d.IsGPU(), d.Name(), d.Emulated()
	}
	for _, p := range m.Problems {
		if p.Text == "" || p.Class == "" {
			t.Errorf("problem %+v says nothing", p)
		}
	}
	var doc bytes.Buffer
	if err := m.Save(&doc); err != nil {
		t.Fatal(err)
	}
	again, err := machine.Load(&doc)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Devices) != len(m.Devices) {
		t.Errorf("%d devices were saved, %d read", len(m.Devices), len(again.Devices))
	}
}

func fuzz(f *testing.F, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) { sound(t, Text("fuzz", bytes.NewReader(in))) })
}

func FuzzLspci(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := randomRegisters(rng)
	fuzz(f,
		render(style{indent: "\t", eol: "\n"}, "0000:3b:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20f1] (rev a1)", r),
		render(style{indent: " ", eol: "\r\n", old: true, quote: "> "}, "3b:00.0 PCI bridge: PLX Technology, Inc. PEX 8747", r),
		"05:00.0 3D controller: NVIDIA Corporation Device 20b0 (rev ff) (prog-if ff)\n\t!!! Unknown header type 7f\n00: ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff\n",
		"3b:00.0 0302: 10de:2330\n\tRegion 1: Memory at <unassigned> (64-bit, prefetchable) [disabled] [size=128G]\n\tCapabilities: [134 v1] Physical Resizable BAR\n\t\tBAR 2: current size: 128GB, supported: 64MB 128GB 8EB\n",
		"Slot:\t3b:00.0\nClass:\t3D controller [0302]\nSVendor:\tDell [1028]\n")
}

func FuzzLspciTree(f *testing.F) {
	fuzz(f, tree, "-[00]-+-00.0\n      \\-01.0-[01]--\n", "-+-[10000:e0]---01.0-[e1]----00.0  x\n \\-[0000:00]-\n", " +-00.0\n")
}

func FuzzTopo(f *testing.F) {
	fuzz(f, matrix, "\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n", "GPU0 CPU Affinity\nGPU0 X 0-7\n")
}

func FuzzQuery(f *testing.F) { fuzz(f, query, "GPU 00000000:01:00.0\n    PCI\n  x : y\n") }

func FuzzNCCLXML(f *testing.F) {
	fuzz(f, topology, `<system version="1"><cpu numaid="x"><pci busid="0000:01:00.0"><pci busid="0000:01:00.0"/></pci></cpu></system>`, "<system><!DOCTYPE a [<!ENTITY b 'c'>]>&b;</system>")
}

func FuzzNCCLLog(f *testing.F) {
	fuzz(f, "h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 3b000 commId 0x2 - Init START\n",
		"h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\nh:1:2 [0] NCCL INFO Channel 00/02 : 0 1\nx NCCL WARN y\n",
		"#  Rank  0 Group  0 Pid 1 on host device  0 [0000:3b:00] NVIDIA L40S\n")
}

func FuzzBugReport(f *testing.F) { fuzz(f, report, strings.ReplaceAll(report, "\n", "\r\n")) }

func FuzzCapture(f *testing.F) {
	var doc bytes.Buffer
	if err := read(report + topology).Save(&doc); err != nil {
		f.Fatal(err)
	}
	fuzz(f, doc.String(), `{"version":1,"devices":[{"bdf":"0000:00:00.0"}],"kernel_log":[{"input":"x","lines":["[ 1.0] a"]}]}`)
}

// FuzzRead takes everything at once, compressed too.
func FuzzRead(f *testing.F) {
	fuzz(f, report+topology+tree+matrix, string(zip(report)), string(wide(query)), "BOOT_IMAGE=/vmlinuz ro\n", "\x1b[1m> > \u00a0\ufeff\r\n")
}

func FuzzSysfs(f *testing.F) {
	f.Add("RxErr 0\nBad TLP 12\nTOTAL_ERR_COR 12\n", "0x00000000f8000000 0x00000000f8ffffff 0x0000000000040200\n", "0-1,3")
	f.Fuzz(func(t *testing.T, aer, resource, nodes string) {
		b := newBuilder()
		b.begin("fuzz")
		d := b.device(read(tree).Devices[0].BDF, machine.KindSysfs)
		b.sysResources(d, resource)
		counters(aer)
		b.setNodes(nodes)
		b.finish()
		sound(t, b.m)
	})
}
