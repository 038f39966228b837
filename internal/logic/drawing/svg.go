package drawing

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"ringlane/internal/model/topology"
)

// The measures of the picture, in pixels.
const (
	margin    = 24
	rowHeight = 52
	boxHeight = 38
	indent    = 46  // from the edge of a NUMA node to its first column
	labelGap  = 136 // before a column whose links have labels
	labelEnd  = 13  // before the node that a label belongs to
	plainGap  = 36
	ringSpace = 96
	panelHead = 34
	panelGap  = 34
	charWidth = 6.3 // of the text in boxes, on average
	headWidth = 9.6 // of the heading
	// acrossEnd is where the words between two panels end: the ring, which
	// begins at the right edge of the devices, must not cross them.
	acrossEnd = margin + 37 + 186
)

// SVG draws the tree from left to right: a panel for each NUMA node, a row for
// each device, links as wide as they are fast, the ring at the right edge.
func (s *Sheet) SVG(w io.Writer) error {
	p := &picture{Sheet: s, root: s.view(), at: map[*topology.Node]box{}}
	p.measure()
	p.place()
	p.draw()
	_, err := w.Write(p.out.Bytes())
	return err
}

type box struct{ x, y, w, h float64 }

func (b box) middle() float64 { return b.y + b.h/2 }
func (b box) right() float64  { return b.x + b.w }

type picture struct {
	*Sheet
	root *view
	out  bytes.Buffer

	columns       []float64 // left edges; the last is that of the devices
	widths        []float64
	labelled      []bool // whether a link that ends in the column has a label
	at            map[*topology.Node]box
	panels        []box
	width, height float64
}

// measure finds the columns: bridges by depth, all devices in the last.
func (p *picture) measure() {
	deepest := 0
	var visit func(v *view, depth int)
	visit = func(v *view, depth int) {
		if !v.node.Kind.Endpoint() {
			deepest = max(deepest, depth)
		}
		for _, c := range v.children {
			visit(c, depth+1)
		}
	}
	for _, panel := range p.root.children {
		for _, c := range panel.children {
			visit(c, 1)
		}
	}
	p.widths, p.labelled = make([]float64, deepest+1), make([]bool, deepest+1)
	visit = func(v *view, depth int) {
		column := depth - 1
		most := 250.0
		if v.node.Kind.Endpoint() {
			column, most = deepest, 340
		}
		wide := 0.0
		for _, line := range caption(v) {
			wide = max(wide, float64(utf8.RuneCountInString(line))*charWidth+22)
		}
		if v.node.Kind == topology.GPU {
			wide += 24 // its place in the ring
		}
		p.widths[column] = max(p.widths[column], min(wide, most), 110)
		p.labelled[column] = p.labelled[column] || linkText(v.node) != ""
		for _, c := range v.children {
			visit(c, depth+1)
		}
	}
	for _, panel := range p.root.children {
		for _, c := range panel.children {
			visit(c, 1)
		}
	}
	x := float64(margin + indent)
	for i, w := range p.widths {
		last := i == len(p.widths)-1
		if p.labelled[i] {
			x += labelGap
		} else if i > 0 {
			x += plainGap
		}
		if last && len(p.root.children) > 1 {
			w = max(w, acrossEnd-x)
			p.widths[i] = w
		}
		p.columns = append(p.columns, x)
		x += w
	}
	heading := float64(utf8.RuneCountInString(p.summary())) * headWidth
	p.width = max(x+ringSpace+margin, heading+2*margin, 600)
}

// place gives every device a row and every bridge the middle of its rows.
func (p *picture) place() {
	last := len(p.columns) - 1
	y := float64(margin + 44)
	var put func(v *view, depth int)
	put = func(v *view, depth int) {
		column := depth - 1
		if v.node.Kind.Endpoint() {
			column = last
		}
		b := box{x: p.columns[column], w: p.widths[column], h: boxHeight}
		if len(v.children) == 0 {
			b.y = y + (rowHeight-boxHeight)/2
			y += rowHeight
		} else {
			for _, c := range v.children {
				put(c, depth+1)
			}
			first, end := p.at[v.children[0].node], p.at[v.children[len(v.children)-1].node]
			b.y = (first.middle()+end.middle())/2 - boxHeight/2
		}
		p.at[v.node] = b
	}
	for _, panel := range p.root.children {
		top := y
		y += panelHead
		for _, c := range panel.children {
			put(c, 1)
		}
		y += 10
		p.panels = append(p.panels, box{margin, top, p.width - 2*margin, y - top})
		y += panelGap
	}
	p.height = y - panelGap + 86
	if len(p.panels) == 0 {
		p.height = 160
	}
}

const style = `
text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:11px;fill:#1f2328}
.bg{fill:#ffffff}.panel{fill:#f6f8fa;stroke:#d0d7de}.group{fill:#8c6d1f;fill-opacity:.08;stroke:#bf9b30;stroke-opacity:.6;stroke-dasharray:4 3}
.head{font-size:17px;font-weight:600}.title{font-size:13px;font-weight:600}.name{font-weight:600}.soft{fill:#57606a}.speed{font-size:10px;fill:#57606a}
.box{fill:#ffffff;stroke:#8c959f}.gpu{fill:#d8f3df;stroke:#2da44e}.nic{fill:#dcecff;stroke:#4a8fe0}.nvme{fill:#ece5fd;stroke:#9673d6}.switch{fill:#fff4d6;stroke:#bf9b30}
.dead{fill:url(#hatch);stroke:#cf222e;stroke-width:1.6}.hatchback{fill:#ffebe9}.hatchline{stroke:#ff8182;stroke-width:2;stroke-opacity:.45}.alarm{fill:#a40e26}.emulated{stroke-dasharray:7 5}
.link{fill:none;stroke:#6e7781;stroke-linecap:round}.hot{stroke:#d9480f}.unknown{stroke-dasharray:2 5}.bar{fill:#6e7781}
.pill{fill:#d9480f}.pilltext{fill:#ffffff;font-size:10px;font-weight:600}
.ring{fill:none;stroke:#1a7f37;stroke-width:1.6}.dot{fill:#1a7f37}.arrow{fill:#1a7f37}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.bg{fill:#0d1117}.panel{fill:#161b22;stroke:#30363d}.soft,.speed{fill:#9da7b3}.group{fill:#e3b341;fill-opacity:.07}
.box{fill:#21262d;stroke:#6e7681}.gpu{fill:#12331d;stroke:#3fb950}.nic{fill:#12283f;stroke:#58a6ff}.nvme{fill:#271f3d;stroke:#a78bfa}.switch{fill:#352b12;stroke:#d4a72c}
.hatchback{fill:#3d1418}.hatchline{stroke:#b62324}.dead{stroke:#f85149}.alarm{fill:#ff7b72}
.link{stroke:#8b949e}.hot{stroke:#f0883e}.bar{fill:#8b949e}.pill{fill:#c4510f}.ring{stroke:#3fb950}.dot{fill:#238636}.arrow{fill:#3fb950}}
`

func (p *picture) put(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

func (p *picture) draw() {
	p.put(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img">`, p.width, p.height, p.width, p.height)
	p.put(`<title>%s</title>`, escape(p.summary()))
	p.put(`<style>%s</style>`, style)
	p.put(`<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="arrow" d="M0 0L8 4L0 8z"/></marker>` +
		`<pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatchback" width="8" height="8"/><path class="hatchline" d="M0 0V8"/></pattern></defs>`)
	p.put(`<rect class="bg" width="100%%" height="100%%" rx="8"/>`)
	p.text("head", margin, margin+14, p.summary())
	for i, panel := range p.root.children {
		b := p.panels[i]
		p.put(`<rect class="panel" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="10"/>`, b.x, b.y, b.w, b.h)
		title := p.title(panel.node)
		if cpus := p.cpus(panel.node); cpus != "" {
			title += ", CPUs " + cpus
		}
		p.text("title", b.x+16, b.y+22, title)
		if i > 0 {
			above := p.panels[i-1]
			x := b.x + 25
			p.put(`<path class="link unknown" stroke-width="4" d="M%.1f %.1fV%.1f"/>`, x, above.y+above.h+4, b.y-4)
			p.text("soft", x+12, b.y-panelGap/2+4, "interconnect between NUMA nodes")
		}
		for _, c := range panel.children {
			p.groups(c)
		}
		p.trunk(b, panel)
		for _, c := range panel.children {
			p.links(c)
		}
		for _, c := range panel.children {
			p.nodes(c)
		}
	}
	if len(p.panels) == 0 {
		p.text("soft", margin, margin+60, "no input shows a PCI device")
	}
	p.ringArcs()
	p.legend()
	p.put(`</svg>`)
}

func (p *picture) text(class string, x, y float64, s string) {
	p.put(`<text class="%s" x="%.1f" y="%.1f">%s</text>`, class, x, y, escape(s))
}

// groups shades what hangs below a switch with several GPUs.
func (p *picture) groups(v *view) {
	if u := p.shared[v.node]; u != nil && len(u.GPUs) > 1 {
		sw := p.at[v.node]
		first, last := p.span(v)
		inset := 0.0
		for up := u.Inside; up != nil; up = up.Inside {
			inset += 3
		}
		right := p.columns[len(p.columns)-1] + p.widths[len(p.widths)-1] + 8 - inset
		p.put(`<rect class="group" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="8"/>`,
			sw.x-8, first-rowHeight/2+2+inset, right-sw.x+8, last-first+rowHeight-4-2*inset)
	}
	for _, c := range v.children {
		p.groups(c)
	}
}

// span is the height of the first and of the last device below a node.
func (p *picture) span(v *view) (first, last float64) {
	if len(v.children) == 0 {
		m := p.at[v.node].middle()
		return m, m
	}
	first, _ = p.span(v.children[0])
	_, last = p.span(v.children[len(v.children)-1])
	return first, last
}

// trunk is the root complex: what hangs directly below a NUMA node.
func (p *picture) trunk(panel box, v *view) {
	if len(v.children) == 0 {
		return
	}
	first, last := p.at[v.children[0].node].middle(), p.at[v.children[len(v.children)-1].node].middle()
	x := panel.x + 22
	p.put(`<rect class="bar" x="%.1f" y="%.1f" width="6" height="%.1f" rx="3"/>`, x, first-8, last-first+16)
	for _, c := range v.children {
		p.link(x+6, p.at[c.node].middle(), c)
	}
}

func (p *picture) links(v *view) {
	from := p.at[v.node]
	for _, c := range v.children {
		p.link(from.right(), from.middle(), c)
		p.links(c)
	}
}

// link draws the link above a node, from a point at its parent, with its
// label just before the node.
func (p *picture) link(x, y float64, v *view) {
	n, b := v.node, p.at[v.node]
	class, rate := "link", n.Up.GBs()
	u := p.shared[n]
	hot := u != nil && u.Oversubscription() > 1.01
	if hot {
		class += " hot"
	}
	text := linkText(n)
	switch {
	case text == "":
	case rate == 0:
		class += " unknown"
	case n.Up.Emulated:
		class += " emulated"
	}
	to := b.middle()
	d := fmt.Sprintf("M%.1f %.1fH%.1f", x, to, b.x)
	if math.Abs(to-y) > 0.5 {
		turn := x + 14
		bend := math.Copysign(min(8, math.Abs(to-y)/2), to-y)
		d = fmt.Sprintf("M%.1f %.1fH%.1fQ%.1f %.1f %.1f %.1fV%.1fQ%.1f %.1f %.1f %.1fH%.1f",
			x, y, turn-8, turn, y, turn, y+bend, to-bend, turn, to, turn+8, to, b.x)
	}
	p.put(`<path class="%s" stroke-width="%.1f" d="%s"/>`, class, stroke(rate), d)
	if text == "" {
		return
	}
	below := gbs(rate) + " GB/s"
	switch {
	case dead(n):
		return // the box says why
	case rate == 0 && n.Up.Emulated:
		text, below = "emulated", ""
	case rate == 0:
		text, below = "speed not known", ""
	case n.Up.Emulated:
		text, below = "emulated port", "the card: "+text
	case n.Up.Idle:
		text += " idle"
	}
	p.put(`<text class="speed" text-anchor="end" x="%.1f" y="%.1f">%s</text>`, b.x-labelEnd, to-stroke(rate)/2-3, escape(text))
	if below == "" {
		return
	}
	p.put(`<text class="speed" text-anchor="end" x="%.1f" y="%.1f">%s</text>`, b.x-labelEnd, to+stroke(rate)/2+10, escape(below))
	if hot {
		top := to + stroke(rate)/2 + 1.5
		label := fmt.Sprintf("%.1f : 1", u.Oversubscription())
		p.put(`<rect class="pill" x="%.1f" y="%.1f" width="38" height="14" rx="7"/>`, b.x-labelEnd-102, top)
		p.put(`<text class="pilltext" text-anchor="middle" x="%.1f" y="%.1f">%s</text>`, b.x-labelEnd-83, top+10.5, label)
	}
}

// stroke is the width of a link of so many GB/s.
func stroke(rate float64) float64 {
	return min(1.2+math.Sqrt(rate)*0.55, 7)
}

func (p *picture) nodes(v *view) {
	n, b := v.node, p.at[v.node]
	class := "box"
	switch n.Kind {
	case topology.GPU, topology.NIC, topology.NVMe, topology.Switch:
		class += " " + string(n.Kind)
	}
	second := "soft"
	if dead(n) {
		class, second = "box dead", "alarm"
	}
	p.put(`<g><title>%s</title>`, escape(p.tip(n)))
	p.put(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="6"/>`, class, b.x, b.y, b.w, b.h)
	lines := caption(v)
	room := b.w - 18
	if p.ringPlace(n) > 0 {
		room -= 24
	}
	if lines[1] == "" {
		p.text("name", b.x+10, b.middle()+4, fit(lines[0], room))
	} else {
		p.text("name", b.x+10, b.y+16, fit(lines[0], room))
		p.text(second, b.x+10, b.y+30, fit(lines[1], room))
	}
	if place := p.ringPlace(n); place > 0 {
		p.put(`<circle class="dot" cx="%.1f" cy="%.1f" r="10"/>`, b.right()-16, b.middle())
		p.put(`<text class="pilltext" text-anchor="middle" x="%.1f" y="%.1f">%d</text>`, b.right()-16, b.middle()+3.5, place)
	}
	p.put(`</g>`)
	for _, c := range v.children {
		p.nodes(c)
	}
}

// ringPlace is the place of a GPU in a ring that has one.
func (p *picture) ringPlace(n *topology.Node) int {
	if len(p.Ring.Order) < 2 {
		return 0
	}
	return p.Sheet.place[n]
}

func (p *picture) tip(n *topology.Node) string {
	parts := []string{strings.TrimSpace(label(n) + " " + n.ID), n.Name}
	if text := linkText(n); text != "" {
		parts = append(parts, text+", "+gbs(n.Up.GBs())+" GB/s", remark(n.Up))
	}
	if u := p.shared[n]; u != nil {
		parts = append(parts, sharers(u)+" share the uplink "+u.Component())
	}
	var out []string
	for _, part := range parts {
		if part != "" {
			out = append(out, part)
		}
	}
	return strings.Join(out, "\n")
}

// fit shortens a text to a width.
func fit(s string, room float64) string {
	most := int(room / charWidth)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	runes := []rune(s)
	return strings.TrimSpace(string(runes[:max(most-1, 0)])) + "…"
}

func (p *picture) ringArcs() {
	order := p.Ring.Order
	if len(order) < 2 {
		return
	}
	for i, n := range order {
		if len(order) == 2 && i == 1 {
			break // one line both ways
		}
		a, b := p.at[n], p.at[order[(i+1)%len(order)]]
		bulge := min(14+math.Abs(b.y-a.y)*0.16, ringSpace*1.15)
		x := a.right() + 2
		from, to := a.middle()+6, b.middle()-6
		if b.y < a.y {
			from, to = a.middle()-6, b.middle()+6
			if i == len(order)-1 { // the way back takes the outside
				from, to = a.middle(), b.middle()
			}
		}
		p.put(`<path class="ring" marker-end="url(#tip)" d="M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f"/>`,
			x, from, x+bulge, from, x+bulge, to, x+1, to)
	}
}

// legend explains the colours and lines of this picture below its panels.
func (p *picture) legend() {
	x, y := float64(margin), p.height-52
	item := func(width float64, text string) {
		p.text("soft", x+width+6, y+4, text)
		x += width + 6 + float64(utf8.RuneCountInString(text))*6 + 20
	}
	seen := p.seen()
	for _, k := range []struct{ class, text string }{
		{"gpu", "GPU"}, {"nic", "NIC"}, {"nvme", "NVMe"}, {"switch", "switch"}, {"dead", "does not answer"},
	} {
		if seen[k.class] {
			p.put(`<rect class="box %s" x="%.1f" y="%.1f" width="20" height="12" rx="3"/>`, k.class, x, y-6)
			item(20, k.text)
		}
	}
	for _, rate := range []float64{7.88, 31.51, 63.02} {
		if seen["rate"] {
			p.put(`<path class="link" stroke-width="%.1f" d="M%.1f %.1fh24"/>`, stroke(rate), x, y)
			item(24, fmt.Sprintf("%.0f GB/s", rate))
		}
	}
	x, y = margin, y+24
	if seen["emulated"] {
		p.put(`<path class="link emulated" stroke-width="4" d="M%.1f %.1fh24"/>`, x, y)
		item(24, "emulated: how it runs cannot be seen")
	}
	if seen["hot"] {
		p.put(`<path class="link hot" stroke-width="4" d="M%.1f %.1fh24"/>`, x, y)
		item(24, "devices below can ask for more than it carries")
	}
	if seen["group"] {
		p.put(`<rect class="group" x="%.1f" y="%.1f" width="24" height="14" rx="3"/>`, x, y-7)
		item(24, "GPUs of one switch")
	}
	if len(p.Ring.Order) > 1 {
		p.put(`<path class="ring" marker-end="url(#tip)" d="M%.1f %.1fh24"/>`, x, y)
		item(24, "ring")
	}
}

// seen is what the picture shows and the legend must explain.
func (p *picture) seen() map[string]bool {
	seen := map[string]bool{}
	var visit func(v *view)
	visit = func(v *view) {
		n := v.node
		if dead(n) {
			seen["dead"] = true
		} else {
			seen[string(n.Kind)] = true
		}
		if linkText(n) != "" && n.Up.GBs() > 0 {
			seen["rate"] = true
			seen["emulated"] = seen["emulated"] || n.Up.Emulated
		}
		if u := p.shared[n]; u != nil {
			seen["hot"] = seen["hot"] || u.Oversubscription() > 1.01
			seen["group"] = seen["group"] || len(u.GPUs) > 1
		}
		for _, c := range v.children {
			visit(c)
		}
	}
	visit(p.root)
	return seen
}
