package launch

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// longestLine bounds what is kept of a line that does not end; a longer one is
// cut into lines of this length.
const longestLine = 16 << 20

// printer merges the output of the ranks, a whole line at a time. On a
// terminal one unfinished line, such as a progress bar, stands below the
// finished ones and moves down as they come.
type printer struct {
	mu       sync.Mutex
	owner    *lines // whose unfinished line stands at the cursor
	unended  []byte // that line as shown
	out, err sink
}

// sink is standard output or standard error of the launcher.
type sink struct {
	w        io.Writer
	terminal bool       // understands carriage return and "erase to end of line"
	width    func() int // columns of the terminal
	colour   bool
}

func newPrinter(out, err *os.File) *printer {
	return &printer{out: newSink(out), err: newSink(err)}
}

func newSink(f *os.File) sink {
	terminal := isTerminal(f) && os.Getenv("TERM") != "dumb"
	return sink{
		w:        f,
		terminal: terminal,
		width:    func() int { return columns(f) },
		colour:   terminal && os.Getenv("NO_COLOR") == "",
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// show writes finished lines of l, and what l has begun after them. One Write
// carries it all, so that nothing of another rank comes between.
func (p *printer) show(l *lines, finished, begun []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.to.terminal {
		if len(finished) == 0 {
			return nil
		}
		_, err := l.to.w.Write(finished)
		return err
	}
	var text []byte
	if p.owner != nil {
		text = append(text, "\r\x1b[K"...)
	}
	text = append(text, finished...)
	if len(begun) > 0 {
		p.owner, p.unended = l, fit(begun, l.to.width()-1)
	} else if p.owner == l {
		p.owner, p.unended = nil, nil
	}
	if p.owner != nil {
		text = append(text, p.unended...)
	}
	if len(text) == 0 {
		return nil
	}
	_, err := l.to.w.Write(text)
	return err
}

// fit cuts text to a number of characters: a line that wraps could not be
// erased. It ends what colour the cut may have left on.
func fit(text []byte, width int) []byte {
	end := 0
	for range max(0, width) {
		_, n := utf8.DecodeRune(text[end:])
		if end += n; end == len(text) {
			return bytes.Clone(text)
		}
	}
	return append(bytes.Clone(text[:end]), "\x1b[0m"...)
}

// lines cuts one output stream of one rank into lines.
type lines struct {
	printer *printer
	to      *sink
	prefix  []byte
	rest    []byte // the line that has begun
	scanned int    // bytes of rest known to hold no end of line
}

// palette leaves out red, which means an error to most.
var palette = []int{36, 33, 32, 35, 34, 96, 93, 92, 95, 94}

// newLines returns the stream of a rank; its lines are marked with the rank.
func (p *printer) newLines(to *sink, rank int) *lines {
	prefix := "[" + strconv.Itoa(rank) + "] "
	if to.colour {
		prefix = "\x1b[" + strconv.Itoa(palette[rank%len(palette)]) + "m[" + strconv.Itoa(rank) + "]\x1b[0m "
	}
	return &lines{printer: p, to: to, prefix: []byte(prefix)}
}

// Write takes the next piece of the stream, cut anywhere.
//
// A carriage return takes the cursor back over the line. On a terminal only
// what is written last stays; elsewhere there is no going back, and each state
// of the line becomes a line of its own.
func (l *lines) Write(piece []byte) (int, error) {
	l.rest = append(l.rest, piece...)
	var finished []byte
	begin := 0
	finish := func(end int) {
		finished = append(finished, l.prefix...)
		finished = append(finished, l.rest[begin:end]...)
		finished = append(finished, '\n')
	}
	for at := l.scanned; at < len(l.rest); {
		i := bytes.IndexAny(l.rest[at:], "\r\n")
		if i < 0 {
			break
		}
		at += i
		if l.rest[at] == '\n' {
			finish(at)
			begin, at = at+1, at+1
			continue
		}
		next := at + 1
		for next < len(l.rest) && l.rest[next] == '\r' {
			next++
		}
		if next == len(l.rest) { // the next piece may begin with the rest of "\r\n"
			break
		}
		if l.rest[next] == '\n' {
			finish(at)
			begin, at = next+1, next+1
			continue
		}
		if at > begin && !l.to.terminal {
			finish(at)
		}
		begin, at = next, next
	}
	if len(l.rest)-begin > longestLine {
		finish(len(l.rest))
		begin = len(l.rest)
	}
	l.rest = append(l.rest[:0], l.rest[begin:]...)
	begun := bytes.TrimRight(l.rest, "\r")
	l.scanned = len(begun)
	if len(begun) > 0 && l.to.terminal {
		begun = append(bytes.Clone(l.prefix), begun...)
	}
	return len(piece), l.printer.show(l, finished, begun)
}

// Close finishes a last line that did not end.
func (l *lines) Close() error {
	text := bytes.TrimRight(l.rest, "\r")
	l.rest, l.scanned = nil, 0
	var finished []byte
	if len(text) > 0 {
		finished = append(append(append(finished, l.prefix...), text...), '\n')
	}
	return l.printer.show(l, finished, nil)
}

// message writes a line of the launcher itself.
func (p *printer) message(text string) {
	l := lines{printer: p, to: &p.err}
	_ = p.show(&l, []byte("ringlane run: "+text+"\n"), nil)
}

// stream carries one output stream of one rank from its pipe.
type stream struct {
	pipe  *os.File
	lines *lines
	done  chan struct{}
}

func startStream(pipe *os.File, l *lines) *stream {
	s := &stream{pipe, l, make(chan struct{})}
	go s.carry()
	return s
}

// carry ends at the end of the pipe, or when nobody reads our own output any
// more: then the pipe closes and the rank learns it as if it wrote there itself.
func (s *stream) carry() {
	defer close(s.done)
	defer s.pipe.Close()
	piece := make([]byte, 64<<10)
	for {
		n, err := s.pipe.Read(piece)
		if n > 0 {
			if _, err := s.lines.Write(piece[:n]); err != nil {
				return
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.drain(piece)
		}
		if err != nil {
			_ = s.lines.Close()
			return
		}
	}
}

// drain takes what the pipe holds now and waits for nothing more: a process
// that outlived the job may hold its other end open. A pipe that such a
// process fills without end is left after a pipe's greatest capacity.
func (s *stream) drain(piece []byte) {
	control, err := s.pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = control.Control(func(fd uintptr) {
		const capacity = 1 << 20 // default of /proc/sys/fs/pipe-max-size
		for taken := 0; taken < capacity; {
			n, err := unix.Read(int(fd), piece)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return
			}
			if _, err := s.lines.Write(piece[:n]); err != nil {
				return
			}
			taken += n
		}
	})
}

// giveUp makes the stream end with what its pipe holds now.
func (s *stream) giveUp() { _ = s.pipe.SetReadDeadline(time.Unix(1, 0)) }
