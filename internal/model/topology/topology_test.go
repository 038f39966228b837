package topology_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
	"ringlane/internal/model/topology"
	"ringlane/internal/model/topology/topologytest"
)

func load(t *testing.T, name string) *topology.Graph {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".machine")
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func parse(t *testing.T, text string) *topology.Graph {
	t.Helper()
	m, err := topologytest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return topology.New(m)
}

func gpu(t *testing.T, g *topology.Graph, id string) *topology.Node {
	t.Helper()
	for _, n := range g.GPUs {
		if n.ID == id {
			return n
		}
	}
	t.Fatalf("no GPU %s", id)
	return nil
}

func ids(nodes []*topology.Node) string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.ID)
	}
	return strings.Join(out, " ")
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.01 }

// uplinks are the shared uplinks as "component GB/s: GPUs | others".
func uplinks(g *topology.Graph) []string {
	var out []string
	for _, u := range g.SharedUplinks() {
		line := fmt.Sprintf("%s %.2f: %s", u.Component(), u.GBs(), ids(u.GPUs))
		if len(u.Others) > 0 {
			line += " | " + ids(u.Others)
		}
		out = append(out, line)
	}
	return out
}

func TestSharedUplinks(t *testing.T) {
	for name, want := range map[string][]string{
		"two-sockets-eight-gpus": {
			"0000:00:01.1<->0000:01:00.0 63.02: 0000:03:00.0 0000:04:00.0",
			"0000:40:01.1<->0000:41:00.0 63.02: 0000:43:00.0 0000:44:00.0",
			"0000:80:01.1<->0000:81:00.0 63.02: 0000:83:00.0 0000:84:00.0 | 0000:85:00.0",
			"0000:c0:01.1<->0000:c1:00.0 63.02: 0000:c3:00.0 0000:c4:00.0 | 0000:c5:00.0",
		},
		"two-levels-of-switches": {
			"0000:10:01.0<->0000:11:00.0 31.51: 0000:22:00.0 0000:32:00.0 0000:2a:00.0 0000:3a:00.0 | 0000:23:00.0 0000:2b:00.0",
			"0000:12:00.0<->0000:20:00.0 63.02: 0000:22:00.0 0000:32:00.0 | 0000:23:00.0",
			"0000:12:01.0<->0000:28:00.0 63.02: 0000:2a:00.0 0000:3a:00.0 | 0000:2b:00.0",
		},
		"cards-with-switches": {"0000:00:01.0<->0000:01:00.0 31.51: 0000:05:00.0 0000:08:00.0 0000:0b:00.0"},
		"bridges-that-do-not-exist": {
			"ffff:ff:01.0 31.51: 0003:00:00.0 0004:00:00.0 | 0103:00:00.0",
			"ffff:ff:02.0 31.51: 0001:00:00.0 0002:00:00.0",
			"ffff:ff:03.0 31.51: 000d:00:00.0 10e00:00:00.0",
			"ffff:ff:04.0 31.51: 000b:00:00.0 000c:00:00.0",
		},
		"matrix-alone":      {"GPU2<->GPU3<->NIC0 0.00: GPU2 GPU3 | NIC0"},
		"virtual-machine":   nil,
		"things-gone-wrong": nil,
		"no-gpu":            nil,
	} {
		g := load(t, name)
		got := uplinks(g)
		for i, line := range got { // the order of the devices is that of the tree
			if name == "matrix-alone" {
				break
			}
			got[i] = strings.TrimSpace(line)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %s\nwant %s", name, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
}

func TestOversubscription(t *testing.T) {
	g := load(t, "two-levels-of-switches")
	u := g.SharedUplinks()
	if !near(u[0].Oversubscription(), (4*31.508+2*63.015)/31.508) || u[0].Inside != nil {
		t.Errorf("outer uplink: %v to 1, inside %v", u[0].Oversubscription(), u[0].Inside)
	}
	if !near(u[1].Oversubscription(), 2) || u[1].Inside != u[0] || u[2].Inside != u[0] {
		t.Errorf("inner uplink: %v to 1, inside %v", u[1].Oversubscription(), u[1].Inside)
	}
}

// TestNotShared keeps an uplink with one GPU and nothing else from the list.
func TestNotShared(t *testing.T) {
	g := parse(t, `machine
numa 0
  root 0000:00:01.0 16x16
    up 0000:01:00.0 16x16
      down 0000:02:00.0 16x16
        gpu 0000:03:00.0 16x16
      down 0000:02:01.0 16x16
        usb 0000:04:00.0 5x1
`)
	if got := uplinks(g); len(got) > 0 {
		t.Errorf("shared: %s", got)
	}
}

// TestOldMatrix reads the words of drivers before 2017.
func TestOldMatrix(t *testing.T) {
	g := parse(t, "machine\nnames GPU0 GPU1 GPU2\nrow GPU0 X PSB SOC\nrow GPU1 PSB X SOC\nrow GPU2 SOC SOC X\n")
	for pair, want := range map[[2]string]topology.PathKind{{"GPU0", "GPU1"}: "PIX", {"GPU0", "GPU2"}: "SYS"} {
		if k := g.Path(gpu(t, g, pair[0]), gpu(t, g, pair[1])).Kind; k != want {
			t.Errorf("%s: %q, want %s", pair, k, want)
		}
	}
}

// TestLinks checks which figure a link counts with, and what is said of it.
func TestLinks(t *testing.T) {
	for _, c := range []struct {
		machine, gpu string
		gbs          float64
		idle         bool
		note         string
	}{
		{"two-sockets-eight-gpus", "0000:03:00.0", 63.02, true, ""},
		{"two-sockets-eight-gpus", "0000:83:00.0", 63.02, false, ""},
		{"cards-with-switches", "0000:05:00.0", 31.51, false, ""},
		{"cards-with-switches", "0000:08:00.0", 31.51, true, ""},
		{"cards-with-switches", "0000:0b:00.0", 15.75, false, ""},
		{"cards-with-switches", "0000:12:00.0", 31.51, false, ""}, // not the 2.5GT/s x1 inside the card
		{"virtual-machine", "0000:01:00.0", 63.02, false, "emulated"},
		{"things-gone-wrong", "0000:01:00.0", 0, false, "does not answer"},
		{"things-gone-wrong", "0000:02:00.0", 15.75, false, "Target Link Speed"},
		{"things-gone-wrong", "0000:03:00.0", 15.75, true, ""}, // full speed, but only 8 lanes
		{"things-gone-wrong", "0000:41:00.0", 31.51, false, ""},
		{"bridges-that-do-not-exist", "10e00:00:00.0", 31.51, false, ""},
	} {
		l := gpu(t, load(t, c.machine), c.gpu).Up
		if !near(l.GBs(), c.gbs) || l.Idle != c.idle || !strings.Contains(l.Note, c.note) || c.note == "" && l.Note != "" {
			t.Errorf("%s %s: %.2f GB/s, idle %v, %q; want %+v", c.machine, c.gpu, l.GBs(), l.Idle, l.Note, c)
		}
	}
}

func TestPaths(t *testing.T) {
	for _, c := range []struct {
		machine, a, b string
		kind          topology.PathKind
		verdict       topology.Verdict
		via           string
	}{
		{"two-sockets-eight-gpus", "0000:03:00.0", "0000:04:00.0", "PIX", "likely", "0000:02:00.0 0000:02:01.0"},
		{"two-sockets-eight-gpus", "0000:43:00.0", "0000:44:00.0", "PIX", "detour", "0000:42:00.0 0000:42:01.0"},
		{"two-sockets-eight-gpus", "0000:03:00.0", "0000:43:00.0", "NODE", "likely",
			"0000:02:00.0 0000:01:00.0 0000:00:01.1 0000:00 numa0 0000:40 0000:40:01.1 0000:41:00.0 0000:42:00.0"},
		{"two-sockets-eight-gpus", "0000:03:00.0", "0000:c4:00.0", "SYS", "doubtful",
			"0000:02:00.0 0000:01:00.0 0000:00:01.1 0000:00 numa0 numa1 0000:c0 0000:c0:01.1 0000:c1:00.0 0000:c2:01.0"},
		{"two-levels-of-switches", "0000:22:00.0", "0000:32:00.0", "PIX", "likely", "0000:21:00.0 0000:21:01.0"},
		{"two-levels-of-switches", "0000:22:00.0", "0000:2a:00.0", "PXB", "likely",
			"0000:21:00.0 0000:20:00.0 0000:12:00.0 0000:12:01.0 0000:28:00.0 0000:29:00.0"},
		{"cards-with-switches", "0000:05:00.0", "0000:08:00.0", "PIX", "likely", "0000:02:00.0 0000:02:01.0"},
		{"cards-with-switches", "0000:05:00.0", "0000:12:00.0", "PHB", "no", ""},
		{"bridges-that-do-not-exist", "0003:00:00.0", "0004:00:00.0", "PIX", "doubtful", ""},
		{"bridges-that-do-not-exist", "0001:00:00.0", "0003:00:00.0", "SYS", "doubtful", "ffff:ff:02.0 numa1 numa0 ffff:ff:01.0"},
		{"matrix-alone", "GPU0", "GPU1", "", "yes", ""},
		{"matrix-alone", "GPU2", "GPU3", "PIX", "yes", ""},
		{"matrix-alone", "GPU4", "GPU5", "PHB", "no", ""},
		{"matrix-alone", "GPU1", "GPU4", "SYS", "no", ""},
		{"virtual-machine", "0000:01:00.0", "0000:02:00.0", "PHB", "doubtful", "0000:00:02.0 0000:00 0000:00:02.1"},
		{"things-gone-wrong", "0000:02:00.0", "0000:03:00.0", "PHB", "no", ""},
		{"things-gone-wrong", "0000:02:00.0", "0000:41:00.0", "", "no", ""},
	} {
		g := load(t, c.machine)
		p := g.Path(gpu(t, g, c.a), gpu(t, g, c.b))
		if p.Kind != c.kind || p.Peer.Verdict != c.verdict || c.via != "" && strings.Join(p.Via, " ") != c.via {
			t.Errorf("%s: %s to %s: %q, %s (%s), via %v", c.machine, c.a, c.b, p.Kind, p.Peer.Verdict, p.Peer.Reason, p.Via)
		}
		back := g.Path(p.B, p.A)
		slices.Reverse(back.Via)
		if back.Kind != p.Kind || back.GBs != p.GBs || !slices.Equal(back.Via, p.Via) {
			t.Errorf("%s: %s to %s is not the way back", c.machine, c.b, c.a)
		}
	}
}

// TestPeerReasons changes one fact at a time on the way of a good pair.
func TestPeerReasons(t *testing.T) {
	for _, c := range []struct {
		why     string
		change  func(*machine.Machine)
		verdict topology.Verdict
		reason  string
	}{
		{"nothing", func(*machine.Machine) {}, "likely", "inside the switch"},
		{"IOMMU", func(m *machine.Machine) { device(m, "0000:03:00.0").IOMMUDomain = "DMA-FQ" }, "detour", "IOMMU"},
		{"identity", func(m *machine.Machine) { device(m, "0000:03:00.0").IOMMUDomain = "identity" }, "likely", ""},
		{"MIG", func(m *machine.Machine) {
			on := true
			device(m, "0000:04:00.0").GPU = &machine.GPU{MIG: &on}
		}, "no", "MIG"},
		{"GeForce", func(m *machine.Machine) { device(m, "0000:04:00.0").Model.Name = "AD102 [GeForce RTX 4090]" }, "no", "GeForce"},
		{"old GeForce", func(m *machine.Machine) { device(m, "0000:04:00.0").Model.Name = "GP102 [GeForce GTX 1080 Ti]" }, "likely", ""},
		{"gone", func(m *machine.Machine) { device(m, "0000:04:00.0").Registers.AllOnes = true }, "no", "does not answer"},
		{"NCCL used it", func(m *machine.Machine) { m.NCCL = transport("P2P/IPC") }, "yes", "P2P/IPC"},
		{"NCCL staged", func(m *machine.Machine) { m.NCCL = transport("SHM/direct/direct") }, "doubtful", "host memory"},
		{"unreadable", func(m *machine.Machine) {
			p := device(m, "0000:02:00.0")
			p.Registers.ACS, p.Registers.CapabilitiesDenied = nil, true
		}, "likely", "not readable"},
		{"only redirect at the root port", func(m *machine.Machine) {
			device(m, "0000:00:01.1").Registers.ACS.Enabled = pcie.ACSRedirect
		}, "likely", "inside the switch"},
	} {
		text, err := os.ReadFile("testdata/two-sockets-eight-gpus.machine")
		if err != nil {
			t.Fatal(err)
		}
		m, err := topologytest.Parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		c.change(m)
		g := topology.New(m)
		p := g.Path(gpu(t, g, "0000:03:00.0"), gpu(t, g, "0000:04:00.0"))
		if p.Peer.Verdict != c.verdict || !strings.Contains(p.Peer.Reason, c.reason) {
			t.Errorf("%s: %s, %q; want %s, %q", c.why, p.Peer.Verdict, p.Peer.Reason, c.verdict, c.reason)
		}
	}
}

func device(m *machine.Machine, at string) *machine.Device { return m.Device(pcie.MustParseBDF(at)) }

func transport(via string) *machine.NCCL {
	a, b := pcie.MustParseBDF("0000:03:00.0"), pcie.MustParseBDF("0000:04:00.0")
	return &machine.NCCL{
		Ranks:      []machine.NCCLRank{{Rank: 0, BDF: &a}, {Rank: 1, BDF: &b}},
		Transports: []machine.NCCLTransport{{From: 1, To: 0, Via: via}},
	}
}

// TestNUMA finds the node of GPUs by every way there is.
func TestNUMA(t *testing.T) {
	tree := `
  root 0000:01:01.0 16x16
    gpu 0000:02:00.0 16x16
  root 0000:41:01.0 16x16
    gpu 0000:42:00.0 16x16
`
	for why, c := range map[string]struct{ text, want string }{
		"devices say":       {"machine\nnuma 0\n root 0000:01:01.0 16x16\n  gpu 0000:02:00.0 16x16\nnuma 1\n root 0000:41:01.0 16x16\n  gpu 0000:42:00.0 16x16\n", "0 1"},
		"nothing says":      {"machine\nnuma" + tree, "? ?"},
		"one node is known": {"machine\nnuma 3\nnuma" + tree, "3 3"},
		"matrix says":       {"machine\nnuma" + tree + "names GPU0 GPU1\nrow GPU0 X SYS numa=1\nrow GPU1 SYS X numa=0\n", "1 0"},
		"affinity says":     {"machine\nnuma 4 cpus=8-15\nnuma 6 cpus=0-7\nnuma" + tree + "names GPU0 GPU1\nrow GPU0 X SYS cpus=0-7\nrow GPU1 SYS X cpus=8-15\n", "6 4"},
		"cells say":         {"machine\nnuma" + tree + "names GPU0 GPU1\nrow GPU0 X SYS\nrow GPU1 SYS X\n", "0 1"},
	} {
		var got []string
		for _, n := range parse(t, c.text).GPUs {
			if n.Node == nil {
				got = append(got, "?")
			} else {
				got = append(got, fmt.Sprint(*n.Node))
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s", why, s, c.want)
		}
	}
}

// TestDeviceCounts keeps functions, virtual functions and audio from being
// devices of their own.
func TestDeviceCounts(t *testing.T) {
	count := map[topology.Kind]int{}
	g := load(t, "two-sockets-eight-gpus")
	for _, e := range g.Root.Endpoints() {
		count[e.Kind]++
	}
	if count[topology.GPU] != 8 || count[topology.NIC] != 1 || count[topology.NVMe] != 1 || count[topology.Other] != 0 {
		t.Errorf("endpoints: %v", count)
	}
}

// TestNoTree draws what has no tree in it: it must end, with every GPU there.
func TestNoTree(t *testing.T) {
	circle := parse(t, "machine\nnuma 0\nroot 0000:01:00.0 16x16\nroot 0000:02:00.0 16x16\ngpu 0000:03:00.0 16x16\n").Machine
	a, b := circle.Devices[0], circle.Devices[1]
	a.Parent, b.Parent, circle.Devices[2].Parent = &b.BDF, &a.BDF, &a.BDF
	for name, m := range map[string]*machine.Machine{"circle": circle, "empty": {}} {
		g := topology.New(m)
		if len(g.GPUs) != len(m.GPUs()) {
			t.Errorf("%s: %d GPUs in the tree, %d in the machine", name, len(g.GPUs), len(m.GPUs()))
		}
		if name == "circle" && len(g.Problems) == 0 {
			t.Error("circle: no problem is listed")
		}
		g.Ring(nil)
		g.Paths()
	}
	for _, n := range []string{"", "machine", "machine\nnuma x", "machine\ngpu", "machine\ngpu 1 2"} {
		if _, err := topologytest.Parse(n); (err == nil) != (n == "machine") {
			t.Errorf("%q: %v", n, err)
		}
	}
}

// A host bridge on another node shows that there is more than one, and tells
// the node of what is on its root bus.
func TestUnknownNode(t *testing.T) {
	for _, c := range []struct {
		name, bridge string
		want         string // "" for unknown
	}{
		{"no other node", "", "0"},
		{"another node", "0000:c0:00.0", ""},
		{"the GPU's root bus", "0000:80:00.0", "1"},
	} {
		m, err := topologytest.Parse("machine\nnuma 0 listed=no\n  root 0000:00:01.0 16x16\n    gpu 0000:01:00.0 16x16\n" +
			"numa\n  root 0000:80:01.0 16x16\n    gpu 0000:81:00.0 16x16\n")
		if err != nil {
			t.Fatal(err)
		}
		if c.bridge != "" {
			one := 1
			d := m.Add(pcie.MustParseBDF(c.bridge))
			d.NUMA, d.Class = &one, machine.Class{Code: 0x060000, Known: true}
		}
		g := topology.New(m)
		got := ""
		if n := gpu(t, g, "0000:81:00.0").Node; n != nil {
			got = fmt.Sprint(*n)
		}
		if got != c.want {
			t.Errorf("%s: node %q, want %q", c.name, got, c.want)
		}
	}
}
