package drawing

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"ringlane/internal/model/topology"
)

// DOT writes the tree and the ring for Graphviz.
func (s *Sheet) DOT(w io.Writer) error {
	d := &dot{Sheet: s, names: map[*topology.Node]string{}}
	d.line("digraph machine {")
	d.line("  rankdir=LR; nodesep=0.15; ranksep=1.1;")
	d.line(`  node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif", fontsize=11];`)
	d.line(`  edge [arrowhead=none, fontname="sans-serif", fontsize=9];`)
	for i, v := range s.view().children {
		d.line("  subgraph cluster_%d {", i)
		d.line("    label=%s; style=rounded; color=gray60;", quote(s.title(v.node)))
		d.node(v)
		d.line("  }")
	}
	order := s.Ring.Order
	for i, n := range order {
		if len(order) > 1 {
			d.line(`  %s -> %s [constraint=false, arrowhead=normal, style=dashed, color="#1a7f37"];`,
				d.names[n], d.names[order[(i+1)%len(order)]])
		}
	}
	d.line("}")
	_, err := w.Write(d.out.Bytes())
	return err
}

type dot struct {
	*Sheet
	out   bytes.Buffer
	names map[*topology.Node]string
}

func (d *dot) line(format string, args ...any) { fmt.Fprintf(&d.out, format+"\n", args...) }

func quote(s string) string { return strconv.Quote(strings.ToValidUTF8(s, "?")) }

var fills = map[topology.Kind]string{
	topology.GPU: "#d3f2dc", topology.NIC: "#dbeafe", topology.NVMe: "#ede9fe", topology.Switch: "#fff1cc",
}

func (d *dot) node(v *view) {
	n := v.node
	name := "n" + strconv.Itoa(len(d.names))
	d.names[n] = name
	if n.Kind != topology.NUMA {
		fill := fills[n.Kind]
		if fill == "" {
			fill = "#f3f4f6"
		}
		if dead(n) {
			fill = "#ffd7d5"
		}
		d.line("    %s [label=%s, fillcolor=%q];", name, quote(strings.Join(caption(v), "\n")), fill)
	}
	for _, c := range v.children {
		d.node(c)
		if n.Kind == topology.NUMA {
			continue
		}
		text, colour, width := "", "gray40", 1+c.node.Up.GBs()/16
		if linkText(c.node) != "" {
			text = linkText(c.node) + "\n" + gbs(c.node.Up.GBs()) + " GB/s"
		}
		if u := d.shared[c.node]; u != nil && u.Oversubscription() > 1.01 {
			colour = "#c2410c"
			text += fmt.Sprintf("\n%.1f : 1", u.Oversubscription())
		}
		d.line("    %s -> %s [label=%s, penwidth=%.1f, color=%q];", name, d.names[c.node], quote(text), width, colour)
	}
}

// caption is the two lines that name a node in a picture.
func caption(v *view) []string {
	n := v.node
	head, name := label(n), nameOf(n)
	switch {
	case n.Kind == topology.HostBridge:
		return []string{"host bridge", bareID(n)}
	case n.Kind == topology.RootPort:
		return []string{"root port", n.ID}
	case n.Kind == topology.Other:
		head = "device"
	}
	if len(v.same) > 0 {
		head = fmt.Sprintf("%d × %s", len(v.same)+1, head)
	}
	if id := bareID(n); id != "" && id != head {
		head += "  " + id
	}
	if len(n.Card) > 0 {
		name += " (switch on the card)"
	}
	switch {
	case dead(n) && name != "":
		name = "does not answer (" + strings.TrimSpace(name) + ")"
	case dead(n):
		name = "does not answer"
	}
	return []string{head, strings.TrimSpace(name)}
}

// bareID is the ID of a node, "" where it only lists what is below.
func bareID(n *topology.Node) string {
	if n.Device == nil && strings.Contains(n.ID, "<->") {
		return ""
	}
	return n.ID
}
