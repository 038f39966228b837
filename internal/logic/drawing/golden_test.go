package drawing_test

import (
	"bytes"
	encodingjson "encoding/json"
	encodingxml "encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringlane/internal/logic/drawing"
	"ringlane/internal/model/machine"
	"ringlane/internal/model/topology"
	"ringlane/internal/model/topology/topologytest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the goldens (read them before committing)")

// machines are described beside the topology's own tests.
func machines(t *testing.T) map[string]*drawing.Sheet {
	t.Helper()
	files, err := filepath.Glob("../../model/topology/testdata/*.machine")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d machines, %v", len(files), err)
	}
	out := map[string]*drawing.Sheet{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		m, err := topologytest.Parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".machine")] = drawing.NewSheet(topology.New(m), nil)
	}
	return out
}

func golden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := difference(string(want), out.String()); d != "" {
		t.Errorf("%s %s", name, d)
	}
}

// difference is the first line in which two texts differ.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := 0; i < max(len(w), len(g)); i++ {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			return fmt.Sprintf("differs in line %d:\nwant %q\ngot  %q", i+1, strings.Join(w[min(i, len(w)):min(i+1, len(w))], ""), strings.Join(g[min(i, len(g)):min(i+1, len(g))], ""))
		}
	}
	return ""
}

func TestText(t *testing.T) {
	for name, s := range machines(t) {
		golden(t, name+".txt", func(w io.Writer) error { return s.Text(w, false) })
	}
}

// TestOtherForms keeps one machine in every form.
func TestOtherForms(t *testing.T) {
	s := machines(t)["two-sockets-eight-gpus"]
	golden(t, "two-sockets-eight-gpus.json", s.JSON)
	golden(t, "two-sockets-eight-gpus.dot", s.DOT)
	golden(t, "two-sockets-eight-gpus.svg", s.SVG)
	golden(t, "two-sockets-eight-gpus.topology.xml", s.NCCLTopology)
	golden(t, "two-sockets-eight-gpus.graph.xml", s.NCCLGraph)
}

// TestWellFormed reads back every form of every machine.
func TestWellFormed(t *testing.T) {
	wellFormed := func(text []byte) error {
		d := encodingxml.NewDecoder(bytes.NewReader(text))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	for name, s := range machines(t) {
		var svg, doc, topo, graph bytes.Buffer
		if err := s.SVG(&svg); err != nil {
			t.Fatal(err)
		}
		if err := wellFormed(svg.Bytes()); err != nil {
			t.Errorf("%s: SVG: %v", name, err)
		}
		if err := s.JSON(&doc); err != nil {
			t.Fatal(err)
		}
		var back map[string]any
		if err := encodingjson.Unmarshal(doc.Bytes(), &back); err != nil {
			t.Errorf("%s: JSON: %v", name, err)
		}
		for _, key := range []string{"gpus", "pairs", "shared_uplinks", "ring", "problems"} {
			if _, ok := back[key].([]any); !ok {
				t.Errorf("%s: JSON has no list %q", name, key)
			}
		}
		addresses := len(s.Graph.GPUs) > 0 && s.Graph.GPUs[0].Device != nil
		placed := name != "things-gone-wrong"
		if err := s.NCCLTopology(&topo); (err == nil) != (addresses && placed) {
			t.Errorf("%s: topology for NCCL: %v", name, err)
		} else if err == nil {
			if err := wellFormed(topo.Bytes()); err != nil {
				t.Errorf("%s: topology for NCCL: %v", name, err)
			}
		}
		if err := s.NCCLGraph(&graph); (err == nil) != addresses {
			t.Errorf("%s: graph for NCCL: %v", name, err)
		} else if err == nil && wellFormed(graph.Bytes()) != nil {
			t.Errorf("%s: graph for NCCL is not well-formed", name)
		}
	}
}

// TestColour is the text and nothing else once the escapes are taken out.
func TestColour(t *testing.T) {
	for name, s := range machines(t) {
		var plain, coloured bytes.Buffer
		if err := errors.Join(s.Text(&plain, false), s.Text(&coloured, true)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(plain.String(), "\x1b") || !strings.Contains(coloured.String(), "\x1b[1m") {
			t.Errorf("%s: escapes in the wrong place", name)
		}
		stripped := coloured.String()
		for _, code := range []string{"0", "1", "2", "32", "33", "36"} {
			stripped = strings.ReplaceAll(stripped, "\x1b["+code+"m", "")
		}
		if d := difference(plain.String(), stripped); d != "" {
			t.Errorf("%s: without its escapes the coloured text %s", name, d)
		}
	}
}

// TestHostile draws names that would break a format if they were not escaped.
func TestHostile(t *testing.T) {
	m, err := topologytest.Parse(`machine
numa 0
  root 0000:00:01.0 8x16
    gpu 0000:01:00.0 8x16
    nic 0000:02:00.0 8x16
`)
	if err != nil {
		t.Fatal(err)
	}
	evil := "a<b>&\"'\x00\x1b[31m\xff]]>"
	m.Host, m.Devices[1].Model.Name, m.Devices[2].Interfaces = evil, evil, []string{evil}
	m.Problems = []machine.Problem{{Input: evil, Text: evil}}
	s := drawing.NewSheet(topology.New(m), nil)
	var svg, text bytes.Buffer
	if err := errors.Join(s.SVG(&svg), s.Text(&text, false)); err != nil {
		t.Fatal(err)
	}
	d := encodingxml.NewDecoder(&svg)
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if strings.ContainsAny(text.String(), "\x00\x1b") {
		t.Errorf("the text hands a terminal what a device's name holds: %q", text.String())
	}
}

// TestPicture looks for what the picture must and must not show of machines
// that are not as they should be.
func TestPicture(t *testing.T) {
	const dead, emulated = `class="box dead"`, `class="link emulated"`
	for _, c := range []struct {
		name, text string
		has, lacks []string
	}{
		{"healthy", "machine host=box product=Example\nnuma 0\n  root 0000:00:01.0 16x16\n    gpu 0000:01:00.0 16x16\n",
			[]string{`class="box gpu"`, ">box Example: 1 GPU", ">GPU</text>", ">32 GB/s</text>"},
			[]string{dead, emulated, "does not answer", ">NIC</text>", ">NVMe</text>", ">ring</text>", ">GPUs of one switch</text>", ">devices below"}},
		{"dead", "machine\nnuma 0\n  root 0000:00:01.0 16x16\n    gpu 0000:01:00.0 lost=yes name=\"AD102GL [L40S]\"\n",
			[]string{dead, "does not answer (NVIDIA L40S)", ">does not answer</text>"},
			[]string{`class="box gpu"`, ">GPU</text>", "speed not known", ">32 GB/s</text>"}},
		{"emulated", "machine hypervisor=QEMU\nnuma 0\n  root 0000:00:02.0 2.5x1 vendor=1b36 device=000c\n    gpu 0000:01:00.0 2.5x1/16x16\n",
			[]string{emulated + ` stroke-width="4.3"`, ">emulated port</text>", ">the card: 16GT/s x16</text>", "virtual machine (QEMU)"},
			[]string{">16GT/s x16</text>", dead}},
		{"emulated, card unknown", "machine hypervisor=QEMU\nnuma 0\n  root 0000:00:02.0 2.5x1 vendor=1b36 device=000c\n    nic 0000:01:00.0 2.5x1\n",
			[]string{">emulated</text>", ">NIC</text>"}, []string{"speed not known", ">GPU</text>"}},
	} {
		m, err := topologytest.Parse(c.text)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var svg bytes.Buffer
		if err := drawing.NewSheet(topology.New(m), nil).SVG(&svg); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.has {
			if !strings.Contains(svg.String(), s) {
				t.Errorf("%s: no %s", c.name, s)
			}
		}
		for _, s := range c.lacks {
			if strings.Contains(svg.String(), s) {
				t.Errorf("%s: %s", c.name, s)
			}
		}
	}
}

// TestRingBesideWords keeps the ring off the words between two panels, also
// where GPUs stand at the left edge.
func TestRingBesideWords(t *testing.T) {
	m, err := topologytest.Parse("machine\nnuma 0\n  gpu 0000:01:00.0\nnuma 1\n  gpu 0000:81:00.0\n")
	if err != nil {
		t.Fatal(err)
	}
	var svg bytes.Buffer
	if err := drawing.NewSheet(topology.New(m), nil).SVG(&svg); err != nil {
		t.Fatal(err)
	}
	_, arc, found := strings.Cut(svg.String(), `class="ring" marker-end="url(#tip)" d="M`)
	var left float64
	if _, err := fmt.Sscanf(arc, "%f", &left); err != nil || !found {
		t.Fatalf("no ring: %v", err)
	}
	words := "interconnect between NUMA nodes"
	before, _, found := strings.Cut(svg.String(), ">"+words)
	var x, y float64
	if _, err := fmt.Sscanf(before[strings.LastIndex(before, "x="):], `x="%f" y="%f"`, &x, &y); err != nil || !found {
		t.Fatalf("no words: %v", err)
	}
	if end := x + 6*float64(len(words)); left < end {
		t.Errorf("the ring begins at %.0f, and the words end at %.0f", left, end)
	}
}
