package drawing

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"ringlane/internal/model/topology"
)

// Text writes the sheet for people. With colour it uses the escapes of ANSI
// terminals.
func (s *Sheet) Text(w io.Writer, colour bool) error {
	t := &text{Sheet: s, colour: colour}
	t.heading()
	t.tree()
	t.uplinks()
	t.pairs()
	t.measured()
	t.ring()
	t.problems()
	_, err := w.Write(t.out.Bytes())
	return err
}

type text struct {
	*Sheet
	out    bytes.Buffer
	colour bool
}

// The escapes of a terminal.
const (
	bold   = "1"
	faint  = "2"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (t *text) paint(code, s string) string {
	if !t.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (t *text) line(format string, args ...any) {
	t.out.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

func (t *text) section(name string) { t.line("\n%s", t.paint(bold, name)) }

func (t *text) heading() {
	t.line("%s", t.paint(bold, t.summary()))
	if len(t.Graph.Root.Children) == 0 {
		t.line("no input shows the PCI tree (add the output of `lspci -vvv`, or run on the machine)")
	}
}

// row is a line of the tree: the branch and name, the link, and what to know.
type row struct {
	branch, name, speed, rate, note string
	kind                            topology.Kind
	warn                            bool
}

func (t *text) tree() {
	var rows []row
	for _, v := range t.view().children {
		t.line("")
		name := t.title(v.node)
		if c := t.cpus(v.node); c != "" {
			name += " (CPUs " + c + ")"
		}
		rows = append(rows, row{name: name, kind: topology.NUMA})
		rows = t.branch(rows, v, "")
	}
	t.out.Truncate(t.out.Len() - min(t.out.Len(), len(t.view().children)))
	wide, speed, rate := 0, 0, 0
	for _, r := range rows {
		if r.kind != topology.NUMA && r.kind != topology.RootPort {
			wide = max(wide, utf8.RuneCountInString(r.branch+r.name))
		}
		speed, rate = max(speed, len(r.speed)), max(rate, len(r.rate))
	}
	for _, r := range rows {
		if r.kind == topology.NUMA {
			t.line("\n%s", t.paint(bold, r.name))
			continue
		}
		name := r.name
		switch r.kind {
		case topology.GPU:
			name = t.paint(green, name)
		case topology.NIC, topology.NVMe:
			name = t.paint(cyan, name)
		}
		note := t.paint(faint, r.note)
		if r.warn {
			note = t.paint(yellow, r.note)
		}
		if r.speed == "" && r.rate == "" {
			t.line("%s%s", t.paint(faint, r.branch), name)
			continue
		}
		pad := strings.Repeat(" ", max(0, wide-utf8.RuneCountInString(r.branch+r.name)))
		t.line("%s%s%s  %-*s  %*s  %s", t.paint(faint, r.branch), name, pad, speed, r.speed, rate, r.rate, note)
	}
}

func (t *text) branch(rows []row, v *view, indent string) []row {
	for i, c := range v.children {
		fork, deeper := "├─ ", "│  "
		if i == len(v.children)-1 {
			fork, deeper = "└─ ", "   "
		}
		r := t.row(c)
		r.branch = indent + fork
		rows = append(rows, r)
		rows = t.branch(rows, c, indent+deeper)
	}
	return rows
}

func (t *text) row(v *view) row {
	n := v.node
	r := row{kind: n.Kind, speed: linkText(n), note: remark(n.Up)}
	if r.speed != "" {
		r.rate = gbs(n.Up.GBs()) + " GB/s"
	}
	switch n.Kind {
	case topology.HostBridge:
		r.name = "host bridge " + n.ID
		if n.Device == nil && strings.Contains(n.ID, "<->") {
			r.name = "host bridge"
		}
		return r
	case topology.RootPort:
		r.name, r.note = "root port "+n.ID, ""
		return r
	}
	parts := []string{label(n)}
	if n.Device != nil {
		parts = append(parts, n.ID)
	}
	if n.Kind == topology.NIC && n.Device == nil && !strings.HasPrefix(n.Name, n.ID) {
		parts[0] = n.ID
	}
	if name := nameOf(n); name != "" {
		parts = append(parts, name)
	}
	if len(v.same) > 0 {
		parts[0] = fmt.Sprintf("%d × %s", len(v.same)+1, parts[0])
		parts[1] += " …"
	}
	if n.Kind == topology.GPU && len(n.Card) > 0 {
		parts = append(parts, "(switch on the card)")
	}
	r.name = strings.TrimSpace(strings.Join(parts, " "))
	if u := t.shared[n]; u != nil {
		r.note = strings.TrimPrefix(r.note+"; "+sharers(u)+" share it", "; ")
		if over := u.Oversubscription(); over > 1.01 {
			r.note, r.warn = fmt.Sprintf("%s, %.1f : 1", r.note, over), true
		}
	}
	return r
}

func (t *text) uplinks() {
	if len(t.Uplinks) == 0 {
		return
	}
	t.section("Shared uplinks (what the devices' links carry : what the uplink carries)")
	for _, u := range t.Uplinks {
		over := "?"
		if o := u.Oversubscription(); o > 0 {
			over = fmt.Sprintf("%.1f : 1", o)
		}
		name := u.Component()
		if u.Switch.Device == nil {
			name = "switch"
		}
		others := ""
		for _, o := range u.Others {
			others += " " + o.ID
		}
		line := fmt.Sprintf("%-28s %9s %9s  %s%s", name, gbs(u.GBs())+" GB/s", over, strings.Join(labels(u.GPUs), " "), others)
		if u.Inside != nil && u.Inside.Switch.Device != nil {
			line += "  (inside " + u.Inside.Switch.ID + ")"
		}
		t.line("  %s", line)
	}
}

func (t *text) pairs() {
	gpus := t.Graph.GPUs
	if len(gpus) < 2 {
		return
	}
	cell := map[[2]*topology.Node]string{}
	same, wide := true, 5
	for i := range t.Paths {
		same = same && gbs(t.Paths[i].GBs) == gbs(t.Paths[0].GBs)
	}
	rates := !same && len(gpus) <= 8
	if rates {
		wide = 10
	}
	for i := range t.Paths {
		p := &t.Paths[i]
		text := string(p.Kind)
		if text == "" {
			text = "?"
		}
		if rates && p.Kind != "" && p.GBs > 0 {
			text = fmt.Sprintf("%s %s", text, gbs(p.GBs))
		}
		cell[[2]*topology.Node{p.A, p.B}] = text
		cell[[2]*topology.Node{p.B, p.A}] = text
	}
	title := "GPU pairs (path as nvidia-smi topo -m names it"
	switch {
	case rates:
		title += "; GB/s one way of its narrowest link"
	case same && t.Paths[0].GBs > 0:
		title += "; the narrowest link of each carries " + gbs(t.Paths[0].GBs) + " GB/s one way"
	}
	t.section(title + ")")
	head := fmt.Sprintf("  %-6s", "")
	for _, b := range gpus {
		head += fmt.Sprintf(" %*s", wide, label(b))
	}
	t.line("%s", head)
	for _, a := range gpus {
		line := fmt.Sprintf("  %-6s", label(a))
		for _, b := range gpus {
			text := "-"
			if a != b {
				text = cell[[2]*topology.Node{a, b}]
			}
			line += fmt.Sprintf(" %*s", wide, text)
		}
		t.line("%s", line)
	}
	t.section("Peer access")
	t.peers()
}

// peers lists the verdicts with their reasons, each with the pairs it is for.
func (t *text) peers() {
	type verdict struct {
		peer  topology.Peer
		pairs []string
	}
	var all []*verdict
	for i := range t.Paths {
		p := &t.Paths[i]
		at := slices.IndexFunc(all, func(v *verdict) bool { return v.peer == p.Peer })
		if at < 0 {
			all = append(all, &verdict{peer: p.Peer})
			at = len(all) - 1
		}
		all[at].pairs = append(all[at].pairs, fmt.Sprintf("%d-%d", p.A.Index, p.B.Index))
	}
	const shown = 12
	for _, v := range all {
		pairs := strings.Join(v.pairs[:min(len(v.pairs), shown)], " ")
		if len(v.pairs) > shown {
			pairs += fmt.Sprintf(" and %d more", len(v.pairs)-shown)
		}
		if len(v.pairs) == len(t.Paths) {
			pairs = "all pairs"
		}
		word := fmt.Sprintf("%-8s", v.peer.Verdict)
		switch v.peer.Verdict {
		case topology.PeerNo, topology.PeerDetour:
			word = t.paint(yellow, word)
		case topology.PeerYes:
			word = t.paint(green, word)
		}
		t.line("  %s  %s", word, topology.Printable(v.peer.Reason))
		t.line("            %s", pairs)
	}
}

func (t *text) ring() {
	order := t.Ring.Order
	if len(order) < 2 {
		return
	}
	t.section("Ring")
	t.line("  %s", t.paint(green, strings.Join(append(labels(order), label(order[0])), " → ")))
	for _, reason := range t.why() {
		t.line("  %s.", strings.ToUpper(reason[:1])+reason[1:])
	}
	environment, library := t.Ring.Environment()
	if environment == nil {
		return
	}
	t.section("Use it")
	t.line("  ringlane run -n %d -- python train.py    # hands the GPUs out in this order", len(order))
	t.line("  or, with another launcher: %s", strings.Join(environment, " "))
	if _, err := t.devices(); err == nil && t.placed() == nil {
		t.line("  or, with %s:", library)
		t.line("  ringlane topo --format nccl-xml -o topology.xml")
		t.line("  ringlane topo --format nccl-graph -o ring.xml")
		t.line("  NCCL_TOPO_FILE=topology.xml NCCL_GRAPH_FILE=ring.xml torchrun --nproc-per-node %d train.py", len(order))
	}
}

func (t *text) problems() {
	if len(t.Problems) == 0 {
		return
	}
	t.section(fmt.Sprintf("Problems (%d)", len(t.Problems)))
	const shown = 20
	for i, p := range t.Problems {
		if i == shown {
			t.line("  and %d more (--format json lists all)", len(t.Problems)-shown)
			return
		}
		at := p.Input
		if p.Line > 0 {
			at = fmt.Sprintf("%s:%d", at, p.Line)
		}
		if at != "" {
			at += ": "
		}
		t.line("  %s", topology.Printable(fmt.Sprintf("%s%s: %s", at, p.Class, p.Text)))
	}
}
