package launch

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// fakePrinter writes into a buffer as to a file, or as to a terminal of the width.
func fakePrinter(width int) (*printer, *bytes.Buffer) {
	var out bytes.Buffer
	return &printer{out: sink{w: &out, terminal: width > 0, width: func() int { return width }}}, &out
}

func TestLinesInAFile(t *testing.T) {
	for _, c := range []struct {
		name   string
		pieces []string
		want   string
	}{
		{"cut anywhere", []string{"a", "b\nc", "d", "\n"}, "[3] ab\n[3] cd\n"},
		{"empty lines", []string{"\n\nx\n"}, "[3] \n[3] \n[3] x\n"},
		{"no newline at the end", []string{"x\nlast"}, "[3] x\n[3] last\n"},
		{"each state of a bar", []string{"\r 0%", "\r 50%", "\r100%\n", "done\n"}, "[3]  0%\n[3]  50%\n[3] 100%\n[3] done\n"},
		{"carriage return after the text", []string{"0%\r", "9%\r"}, "[3] 0%\n[3] 9%\n"},
		{"CR LF is one end", []string{"a\r\nb\r", "\nc\r\r\n"}, "[3] a\n[3] b\n[3] c\n"},
		{"bytes stay bytes", []string{"\xff\x00\xe2", "\x82\xac\n"}, "[3] \xff\x00\xe2\x82\xac\n"},
	} {
		p, out := fakePrinter(0)
		l := p.newLines(&p.out, 3)
		for _, piece := range c.pieces {
			_, _ = l.Write([]byte(piece))
		}
		_ = l.Close()
		if out.String() != c.want {
			t.Errorf("%s: %q, want %q", c.name, out.String(), c.want)
		}
	}
}

// TestCuttingChangesNothing: what is written does not depend on how the pipe
// cut the stream.
func TestCuttingChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\r\n")), 0, 40, -1).Draw(t, "text")
		write := func(pieces ...string) string {
			p, out := fakePrinter(0)
			l := p.newLines(&p.out, 0)
			for _, piece := range pieces {
				_, _ = l.Write([]byte(piece))
			}
			_ = l.Close()
			return out.String()
		}
		if whole, single := write(text), write(strings.Split(text, "")...); whole != single {
			t.Fatalf("%q at once gives %q, byte by byte %q", text, whole, single)
		}
	})
}

func TestProgressBarOnATerminal(t *testing.T) {
	p, out := fakePrinter(80)
	bar, other := p.newLines(&p.out, 0), p.newLines(&p.out, 1)
	const erase = "\r\x1b[K"
	for _, step := range []struct {
		l     *lines
		piece string
		want  string
	}{
		{bar, "\r 10%", "[0]  10%"},
		{bar, "\r 20%", erase + "[0]  20%"},
		{other, "hello\n", erase + "[1] hello\n[0]  20%"},
		{other, "loss ", erase + "[1] loss "},
		{other, "0.3\n", erase + "[1] loss 0.3\n"},
		{bar, "\r 30%", "[0]  30%"},
		{bar, "\r 40%\r 50%", erase + "[0]  50%"},
		{bar, "\r100%\n", erase + "[0] 100%\n"},
		{other, "bye\n", "[1] bye\n"},
	} {
		out.Reset()
		_, _ = step.l.Write([]byte(step.piece))
		if out.String() != step.want {
			t.Errorf("%q shows %q, want %q", step.piece, out.String(), step.want)
		}
	}
}

func TestUnfinishedLineFitsTheTerminal(t *testing.T) {
	p, out := fakePrinter(10)
	l := p.newLines(&p.out, 0)
	_, _ = l.Write([]byte("ééééééééé"))
	if want := "[0] ééééé\x1b[0m"; out.String() != want {
		t.Errorf("shows %q, want %q", out.String(), want)
	}
	out.Reset()
	_, _ = l.Write([]byte("\n"))
	if want := "\r\x1b[K[0] ééééééééé\n"; out.String() != want {
		t.Errorf("ends with %q, want %q", out.String(), want)
	}
}

func TestLineWithoutEndIsBounded(t *testing.T) {
	p, out := fakePrinter(0)
	l := p.newLines(&p.out, 0)
	piece := bytes.Repeat([]byte{'x'}, 1<<20)
	for range longestLine>>20 + 1 {
		_, _ = l.Write(piece)
	}
	if len(l.rest) != 0 || out.Len() != longestLine+len(piece)+len("[0] \n") {
		t.Errorf("%d bytes kept, %d written", len(l.rest), out.Len())
	}
}

// TestGivingUpLosesNothing: what is in the pipe is heard even if its writer
// never closes it.
func TestGivingUpLosesNothing(t *testing.T) {
	p, out := fakePrinter(0)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	text := strings.Repeat("0123456789abcdef", 4000) // nearly a pipe's capacity
	if _, err := write.WriteString(text + "\nlast"); err != nil {
		t.Fatal(err)
	}
	s := &stream{read, p.newLines(&p.out, 0), make(chan struct{})}
	s.giveUp() // before it has read anything
	s.carry()
	if want := "[0] " + text + "\n[0] last\n"; out.String() != want {
		t.Errorf("%d bytes heard, want %d", out.Len(), len(want))
	}
}

// haltingWriter lets others run in the middle of every write.
type haltingWriter struct{ to *bytes.Buffer }

func (w haltingWriter) Write(text []byte) (int, error) {
	w.to.Write(text[:len(text)/2])
	runtime.Gosched()
	w.to.Write(text[len(text)/2:])
	return len(text), nil
}

// TestRanksAtOnce: the lines of each rank come whole and in its order.
func TestRanksAtOnce(t *testing.T) {
	p, out := fakePrinter(0)
	p.out.w = haltingWriter{out}
	const ranks, count = 8, 300
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() {
			l := p.newLines(&p.out, rank)
			for i := range count {
				_, _ = fmt.Fprintf(l, "line %d ", i)
				_, _ = fmt.Fprintf(l, "of %d\n", rank)
			}
			_ = l.Close()
		})
	}
	all.Wait()
	next := make([]int, ranks)
	for line := range strings.Lines(out.String()) {
		var rank, i, same int
		if _, err := fmt.Sscanf(line, "[%d] line %d of %d\n", &rank, &i, &same); err != nil || rank != same || next[rank] != i {
			t.Fatalf("%q, want line %d of rank %d", line, next[rank], rank)
		}
		next[rank]++
	}
	if slices.Min(next) != count {
		t.Errorf("lines of each rank: %v, want %d", next, count)
	}
}
