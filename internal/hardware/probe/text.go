package probe

import (
	"bytes"
	"reflect"
	"strings"

	"ringlane/internal/model/kernlog"
	"ringlane/internal/model/machine"
)

// text reads one stream of lines. What people send is often several outputs
// one after the other, so each line goes to the parser whose form it has; a
// line that continues a form goes to the parser that is open; everything else
// goes to the kernel log, whose scanner knows what it is interested in.
type text struct {
	b      *builder
	lspci  lspci
	tree   lspciTree
	topo   smiTopo
	query  smiQuery
	nccl   ncclLog
	report bugReport
	log    *kernlog.Scanner
	open   func(no int, s string) bool // of the parser that is open, nil for none

	no      int
	xml     *bytes.Buffer // of the topology file that is open
	xmlLine int
	prefix  string   // that a tool like pdsh puts before each line: "node1: "
	foreign []string // the same of other hosts
	dated   int      // lines with a kernel log's time stamp
	words   int      // lines that are not empty
	first   string
}

func newText(b *builder) *text {
	t := &text{
		b: b, lspci: lspci{b: b}, tree: lspciTree{b: b}, topo: smiTopo{b: b}, query: smiQuery{b: b},
		nccl: ncclLog{b: b}, report: bugReport{b: b},
	}
	t.log = kernlog.NewScanner(b.keepEntry(b.m.LogSink(b.input.Name)))
	return t
}

// maxXML bounds a topology file: the largest machines fill 1 MB.
const maxXML = 32 << 20

// line takes one line, cleaned of its end, of escapes and of quote marks.
func (t *text) line(s string) {
	t.no++
	if s != "" {
		t.words++
		if t.words == 1 {
			t.first = s
		}
	}
	if t.prefix != "" {
		s = t.ownLine(s)
	}
	if t.route(s) {
		s = "" // keeps the scanner's count of lines
	}
	t.log.Line(s)
}

// route offers the line to the parsers and reports whether one took it.
func (t *text) route(s string) bool {
	if t.xml != nil {
		return t.xmlLineIs(s)
	}
	if kernelStamp(s) {
		t.close()
		t.dated++
		return t.nccl.line(s) // mpirun and torchrun put brackets before lines
	}
	if t.report.line(t.no, s) {
		t.close()
		return true
	}
	switch {
	case isXMLStart(s):
		t.close()
		t.xml, t.xmlLine = new(bytes.Buffer), t.no
		return t.xmlLineIs(s)
	case isTree(s):
		if t.open == nil || !t.tree.lost {
			t.close()
		}
		return t.tree.line(t.no, s)
	case isMatrixHeader(s):
		return t.begin(t.topo.line, s)
	case strings.Contains(s, "=NVSMI LOG="):
		return t.begin(t.query.line, s)
	}
	if _, _, _, ok := lspciHeader(s); ok {
		return t.begin(t.lspci.line, s)
	}
	if strings.Contains(s, "NCCL ") || strings.HasPrefix(s, "#") {
		if t.nccl.line(s) {
			return true
		}
	}
	if t.open != nil && t.open(t.no, s) {
		return true
	}
	if strings.HasPrefix(s, "Slot:") {
		return t.begin(t.lspci.line, s)
	}
	if strings.HasPrefix(s, "GPU ") || strings.HasPrefix(s, noHandle) {
		return t.begin(t.query.line, s)
	}
	if rest, ok := t.unprefix(s); ok {
		return t.begin(t.lspci.line, rest)
	}
	if t.words == 1 && s != "" && cmdlineWords(s) >= 2 {
		t.b.saw(machine.KindCmdline)
		t.b.setCommandLine(t.no, s)
		return true
	}
	return false
}

// maxHosts bounds the hosts whose lines are left alone.
const maxHosts = 64

// unprefix recognises the name of a host before a device of lspci, as tools
// that run a command on many hosts print it. From there on the name is taken
// off each line. A second host is another machine: its lines are left alone.
func (t *text) unprefix(s string) (rest string, ok bool) {
	i := strings.Index(s, ": ")
	if i < 1 || i > 64 || strings.ContainsAny(s[:i], " \t[]<>/") {
		return "", false
	}
	if _, _, _, ok := lspciHeader(s[i+2:]); !ok {
		return "", false
	}
	if t.prefix != "" {
		if len(t.foreign) < maxHosts {
			t.foreign = append(t.foreign, s[:i+2])
		}
		t.b.problem(t.no, machine.Contradiction, "the lines of %s are another machine's than those of %s (one machine a time is read)",
			s[:i], strings.TrimSuffix(t.prefix, ": "))
		return "", false
	}
	t.prefix = s[:i+2]
	return s[i+2:], true
}

// ownLine takes the host's name off a line, and empties those of other hosts.
func (t *text) ownLine(s string) string {
	if rest, ok := strings.CutPrefix(s, t.prefix); ok {
		return rest
	}
	for _, f := range t.foreign {
		if strings.HasPrefix(s, f) {
			return ""
		}
	}
	return s
}

// begin hands the line to a parser, which stays open if it takes it.
func (t *text) begin(parser func(int, string) bool, s string) bool {
	t.closeOthers()
	if !parser(t.no, s) {
		return false
	}
	t.open = parser
	return true
}

// closeOthers ends a device of lspci; beginning another device ends it too.
func (t *text) closeOthers() {
	t.lspci.flush()
	t.open = nil
}

func (t *text) close() {
	if t.open != nil {
		t.closeOthers()
	}
}

// kernelStamp recognises "[   52.477734] ", "<3>[..." and the like, which no
// other input has. It is quick: a log may have millions of lines.
func kernelStamp(s string) bool {
	i := 0
	if len(s) > 3 && s[0] == '<' {
		for i = 1; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		}
		if i >= len(s) || s[i] != '>' {
			return false
		}
		i++
	}
	if i >= len(s) || s[i] != '[' {
		return false
	}
	i++
	for i < len(s) && s[i] == ' ' {
		i++
	}
	digits := i
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return i > digits && i < len(s) && s[i] == '.' && strings.IndexByte(s[i:min(len(s), i+8)], ']') > 0
}

func isXMLStart(s string) bool {
	t := strings.TrimLeft(s, " \t")
	return strings.HasPrefix(t, "<system") || strings.HasPrefix(t, "<?xml")
}

// xmlLineIs collects a topology file to its end and reads it then.
func (t *text) xmlLineIs(s string) bool {
	t.xml.WriteString(s)
	t.xml.WriteByte('\n')
	switch {
	case strings.Contains(s, "</system>"):
		t.xmlEnd()
	case t.xml.Len() > maxXML:
		t.b.problem(t.no, machine.Malformed, "the XML goes on for more than %d MiB (read up to here)", maxXML>>20)
		t.xmlEnd()
	}
	return true
}

func (t *text) xmlEnd() {
	t.b.ncclXML(t.xmlLine, bytes.NewReader(t.xml.Bytes()))
	t.xml = nil
}

// end finishes the stream.
func (t *text) end() {
	t.lspci.flush()
	if t.xml != nil {
		t.xmlEnd()
	}
	t.log.Flush()
	if t.dated > 0 || t.log.Stats().Events > 0 {
		t.b.saw(machine.KindKernelLog)
	}
	t.b.input.Lines = t.no
	// A short command line is one only if there is nothing else.
	if t.words == 1 && len(t.b.input.Kinds) == 0 && cmdlineWords(t.first) == 1 && strings.Contains(t.first, "=") {
		t.b.saw(machine.KindCmdline)
		t.b.setCommandLine(1, t.first)
	}
	if len(t.b.input.Kinds) > 0 {
		return
	}
	if t.words == 0 {
		t.b.problem(0, machine.Unrecognised, "there is nothing in it")
		return
	}
	t.b.problem(0, machine.Unrecognised,
		"it is no known kind of input (lspci, kernel log, nvidia-smi, nvidia-bug-report, NCCL, /proc/cmdline, capture)")
}

// counts bounds the log entries that are kept.
type counts map[string]int

// Entries beyond these are counted and not kept: the first ones of each kind
// and device show what happens and how often, and memory stays bounded.
const (
	maxEntries       = 40_000
	maxEntriesDevice = 5_000
)

// keepEntry hands entries on as far as the bounds allow.
func (b *builder) keepEntry(to func(kernlog.Entry)) func(kernlog.Entry) {
	return func(e kernlog.Entry) {
		key := string(e.Device) + eventKind(e.Event)
		if b.entries[key] >= maxEntriesDevice || len(b.m.Log) >= maxEntries {
			if b.entries["left out"]++; b.entries["left out"] == 1 {
				b.problem(e.Line, machine.Truncated, "the log repeats itself: from here on entries are left out after %d of one kind and device", maxEntriesDevice)
			}
			return
		}
		b.entries[key]++
		to(e)
	}
}

// eventKind names the type of an event.
func eventKind(e kernlog.Event) string { return reflect.TypeOf(e).Name() }
