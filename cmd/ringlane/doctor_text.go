package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"ringlane/internal/logic/diagnose"
	"ringlane/internal/model/machine"
)

// Escape sequences of terminals.
const (
	styleReset = "\x1b[0m"
	styleBold  = "\x1b[1m"
	styleDim   = "\x1b[2m"
)

var severityStyles = map[diagnose.Severity]string{
	diagnose.Fault:   "\x1b[1;31m",
	diagnose.Warning: "\x1b[1;33m",
	diagnose.Notice:  "\x1b[1;36m",
	diagnose.Blind:   "\x1b[1;35m",
}

// doctorText writes the answer for people: the verdict, what to act on in
// full, the rest briefly.
func doctorText(w io.Writer, m *machine.Machine, r diagnose.Report) (int, error) {
	p := page{colour: onTerminal(w), shown: map[string]bool{}}
	p.verdict(m, r)
	var brief []diagnose.Finding
	for _, f := range r.Findings {
		if f.Severity == diagnose.Notice || f.Severity == diagnose.Blind {
			brief = append(brief, f)
			continue
		}
		p.finding(f)
	}
	p.briefly("Worth knowing, nothing to do:", brief, diagnose.Notice)
	p.briefly("Not seen, so neither good nor bad:", brief, diagnose.Blind)
	p.problems(m)
	_, err := w.Write(p.text.Bytes())
	return r.Status, err
}

type page struct {
	text   bytes.Buffer
	colour bool
	shown  map[string]bool // evidence that stands above
}

func (p *page) styled(style, text string) string {
	if !p.colour {
		return text
	}
	return style + text + styleReset
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

// verdict is the first line: what to do about this machine.
func (p *page) verdict(m *machine.Machine, r diagnose.Report) {
	count := map[diagnose.Severity]int{}
	for _, f := range r.Findings {
		count[f.Severity]++
	}
	worst, text := diagnose.Notice, healthy(m)
	switch r.Status {
	case diagnose.StatusFault:
		worst, text = diagnose.Fault, "FAULT: act on this machine"
	case diagnose.StatusWarning:
		worst, text = diagnose.Warning, "WARNING: it works, but costs performance or may fail"
	}
	var parts []string
	for _, s := range []diagnose.Severity{diagnose.Fault, diagnose.Warning, diagnose.Notice, diagnose.Blind} {
		if n := count[s]; n > 0 {
			word := string(s)
			if s == diagnose.Blind {
				word = "blind spot"
			}
			if n > 1 {
				word += "s"
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	if slices.ContainsFunc(m.Problems, func(x machine.Problem) bool { return x.Class == machine.Contradiction }) {
		text += "; the inputs contradict each other (see the end)"
	}
	p.line("%s", p.styled(severityStyles[worst], text))
}

// sources are the kinds of input by the names that people give them.
var sources = []struct {
	kind machine.Kind
	name string
}{
	{machine.KindSysfs, "/sys"}, {machine.KindLspci, "lspci"}, {machine.KindLspciTree, "lspci -t"},
	{machine.KindKernelLog, "the kernel log"}, {machine.KindCmdline, "the kernel command line"},
	{machine.KindBugReport, "the NVIDIA bug report"}, {machine.KindTopo, "nvidia-smi topo"}, {machine.KindQuery, "nvidia-smi -q"},
	{machine.KindNCCLXML, "NCCL's topology"}, {machine.KindNCCLLog, "NCCL's log"},
}

// healthy is the verdict where nothing was found, which is worth as much as
// what was looked at.
func healthy(m *machine.Machine) string {
	var seen []string
	for _, s := range sources {
		if m.Saw(s.kind) {
			seen = append(seen, s.name)
		}
	}
	switch len(seen) {
	case 0:
		return "HEALTHY as far as could be seen"
	case 1:
		return "NO FAULT FOUND in " + seen[0] + ", and nothing else was looked at"
	}
	return "HEALTHY as far as can be seen in " + strings.Join(seen, ", ")
}

// Widths and numbers that keep a finding on one screen.
const (
	textWidth    = 92
	mostEvidence = 12
	mostNames    = 8
)

// finding is one that somebody has to act on, or what followed from one.
func (p *page) finding(f diagnose.Finding) {
	p.line("")
	p.line("%s  %s  %s", p.styled(severityStyles[f.Severity], strings.ToUpper(string(f.Severity))),
		p.styled(styleBold, string(f.Code)), p.styled(styleBold, f.Component))
	if f.CausedBy != nil {
		p.line("  follows from %s at %s", f.CausedBy.Code, f.CausedBy.Component)
	}
	p.names("with", f.Also)
	p.names("affects", f.Affects)
	p.evidence(f.Evidence)
	p.paragraph("  why: ", f.Explanation)
	now, good := diagnose.SplitRemedy(f.Remedy)
	p.paragraph("  now: ", now)
	p.paragraph("  for good: ", good)
}

// evidence leaves out what a cause has shown already.
func (p *page) evidence(lines []string) {
	var fresh []string
	for _, e := range lines {
		if !p.shown[e] {
			fresh = append(fresh, e)
		}
		p.shown[e] = true
	}
	for i, e := range fresh {
		if i == mostEvidence && len(fresh) > mostEvidence+1 {
			p.line("  %s", p.styled(styleDim, fmt.Sprintf("| … %d more lines (--json has all)", len(fresh)-i)))
			break
		}
		p.line("  %s", p.styled(styleDim, "| "+printable(e)))
	}
	if len(fresh) == 0 && len(lines) > 0 {
		p.line("  %s", p.styled(styleDim, "| (the lines stand above)"))
	}
}

func (p *page) names(label string, names []string) {
	if len(names) == 0 {
		return
	}
	text := strings.Join(names[:min(len(names), mostNames)], ", ")
	if len(names) > mostNames {
		text += fmt.Sprintf(" and %d more", len(names)-mostNames)
	}
	p.paragraph("  "+label+" ", text)
}

// paragraph wraps text behind a label.
func (p *page) paragraph(label, text string) {
	if text == "" {
		return
	}
	line := label
	width := len([]rune(label))
	used := width
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case used+1+n > textWidth:
			p.line("%s", line)
			line, used = strings.Repeat(" ", width), width
		default:
			line += " "
			used++
		}
		line += word
		used += n
	}
	p.line("%s", line)
}

// briefly lists the findings of one severity, one paragraph a code.
func (p *page) briefly(title string, findings []diagnose.Finding, severity diagnose.Severity) {
	var codes []diagnose.Code
	byCode := map[diagnose.Code][]diagnose.Finding{}
	for _, f := range findings {
		if f.Severity != severity {
			continue
		}
		if !slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
		byCode[f.Code] = append(byCode[f.Code], f)
	}
	if len(codes) == 0 {
		return
	}
	p.line("")
	p.line("%s", p.styled(styleBold, title))
	for _, code := range codes {
		list := byCode[code]
		head := p.styled(severityStyles[severity], string(code))
		if len(list) == 1 {
			p.line("  %s  %s", head, list[0].Component)
			evidence := list[0].Evidence
			if code == "not-measured" { // its explanation is the short form
				evidence = nil
				p.paragraph("      ", list[0].Detail()+" (--json: which verdicts need it)")
			} else {
				p.paragraph("      ", follows(list[0])+list[0].Explanation)
			}
			for i, e := range evidence {
				if i == mostNames && len(evidence) > mostNames+1 {
					p.line("      … %d more lines (--json has all)", len(evidence)-i)
					break
				}
				p.paragraph("      | ", printable(e))
			}
		} else {
			p.line("  %s  %d times", head, len(list))
			p.paragraph("      ", strings.TrimSpace(strings.TrimPrefix(list[0].Explanation, list[0].Detail())))
			for i, f := range list {
				if i == mostNames && len(list) > mostNames+1 {
					p.line("      … %d more (--json has all)", len(list)-i)
					break
				}
				p.paragraph("      - ", f.Component+"  "+follows(f)+f.Detail())
			}
		}
		if now, good := diagnose.SplitRemedy(list[0].Remedy); severity == diagnose.Blind {
			p.paragraph("      see it: ", now)
			p.paragraph("      for good: ", good)
		}
	}
}

func follows(f diagnose.Finding) string {
	if f.CausedBy == nil {
		return ""
	}
	return fmt.Sprintf("(follows from %s at %s) ", f.CausedBy.Code, f.CausedBy.Component)
}

// problems says what of the input could not be used.
func (p *page) problems(m *machine.Machine) {
	if len(m.Problems) == 0 {
		return
	}
	p.line("")
	p.line("%s", p.styled(styleBold, "Of the input, not read or not fitting:"))
	for i, x := range m.Problems {
		if i == mostNames && len(m.Problems) > mostNames+1 {
			p.line("  … %d more (--json has all)", len(m.Problems)-i)
			return
		}
		where := x.Input
		if x.Line > 0 {
			where += fmt.Sprintf(":%d", x.Line)
		}
		p.paragraph("  - ", strings.TrimSpace(printable(where+" "+x.Text)))
	}
}

// printable keeps text of the input from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
