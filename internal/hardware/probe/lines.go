package probe

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"ringlane/internal/model/machine"
)

const (
	// maxLine is where a line is cut: no tool prints longer ones, but a
	// binary file is one line.
	maxLine = 64 << 10
	// sniffed is how much of an input is looked at before it is read.
	sniffed = 8 << 10
)

// stream reads one input of unknown kind to its end.
func (b *builder) stream(r io.Reader) {
	in := bufio.NewReaderSize(r, 256<<10)
	head, _ := in.Peek(sniffed)
	switch format(head) {
	case isGzip:
		b.gunzip(in)
	case isUTF16:
		b.text(utf16Reader(in))
	case isBinary:
		b.problem(0, machine.Unrecognised, "it is binary and no capture (was the right file named?)")
	case isDocument:
		b.capture(in)
	default:
		b.text(in)
	}
}

// Formats that decide how to read, before any line is looked at.
type encoding uint8

const (
	isText encoding = iota
	isGzip
	isUTF16
	isBinary
	isDocument
)

func format(head []byte) encoding {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return isGzip
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return isUTF16
	}
	odd := 0
	for _, c := range head {
		if c == 0 || c < ' ' && !strings.ContainsRune("\t\n\r\f\x1b\b\a", rune(c)) {
			odd++
		}
	}
	if odd*20 > len(head) { // logs after a crash hold some zeros
		return isBinary
	}
	trimmed := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	if bytes.HasPrefix(trimmed, []byte("{")) {
		return isDocument
	}
	return isText
}

func (b *builder) gunzip(in *bufio.Reader) {
	z, err := gzip.NewReader(in)
	if err != nil {
		b.problem(0, machine.Malformed, "it is no gzip file after all: %v", err)
		return
	}
	r := bufio.NewReaderSize(z, 256<<10)
	head, err := r.Peek(sniffed)
	if len(head) == 0 && err != nil && !errors.Is(err, io.EOF) {
		b.problem(0, machine.Truncated, "the compressed data ends early: %v", err)
		return
	}
	switch format(head) {
	case isDocument:
		b.capture(r)
	case isText:
		b.text(r)
	default:
		b.problem(0, machine.Unrecognised, "what is compressed in it is no text (unpack archives first)")
	}
}

// text reads lines until the end or the first error. What was read counts.
func (b *builder) text(r io.Reader) {
	in, ok := r.(*bufio.Reader)
	if !ok {
		in = bufio.NewReaderSize(r, 256<<10)
	}
	t := newText(b)
	for {
		line, cut, err := readLine(in)
		if err == nil || len(line) > 0 {
			t.line(clean(line))
		}
		if cut {
			b.problem(t.no, machine.Malformed, "the line is longer than %d KiB (the rest of it was skipped)", maxLine>>10)
		}
		if err != nil {
			if err != io.EOF {
				b.problem(t.no, machine.Truncated, "reading stopped here: %v", err)
			}
			break
		}
	}
	t.end()
}

// readLine returns the next line without its newline, cut at maxLine. The
// slice is good until the next call.
func readLine(in *bufio.Reader) (line []byte, cut bool, err error) {
	line, err = in.ReadSlice('\n')
	if err == nil {
		line = line[:len(line)-1]
	}
	if err == bufio.ErrBufferFull {
		line = append([]byte(nil), line[:maxLine]...)
		for err == bufio.ErrBufferFull {
			_, err = in.ReadSlice('\n')
		}
		return line, true, err
	}
	if len(line) > maxLine {
		return line[:maxLine], true, err
	}
	return line, false, err
}

// clean takes off what terminals, mail and other systems put around a line:
// escape sequences, carriage returns, control characters, quote marks,
// no-break spaces, the byte order mark.
func clean(line []byte) string {
	plain := true
	for _, c := range line {
		if c < ' ' && c != '\t' || c >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return unquote(string(line))
	}
	out := make([]byte, 0, len(line))
	for i := 0; i < len(line); {
		c := line[i]
		switch {
		case c == 0x1b && i+1 < len(line) && line[i+1] == '[':
			for i += 2; i < len(line) && (line[i] < '@' || line[i] > '~'); i++ {
			}
			i++
		case c == 0x1b:
			i += 2
		case c == 0xc2 && i+1 < len(line) && line[i+1] == 0xa0: // no-break space
			out = append(out, ' ')
			i += 2
		case bytes.HasPrefix(line[i:], []byte("\ufeff")):
			i += 3
		case c >= ' ' && c != 0x7f || c == '\t':
			out = append(out, c)
			i++
		default:
			i++
		}
	}
	s := string(out)
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "?")
	}
	return unquote(s)
}

// unquote takes off the marks of a quoted mail: "> ", ">> ".
func unquote(s string) string {
	for strings.HasPrefix(s, ">") {
		s = strings.TrimPrefix(s[1:], " ")
	}
	return s
}

// utf16Reader reads UTF-16 with a byte order mark, as some terminals save it.
func utf16Reader(in *bufio.Reader) io.Reader {
	var mark [2]byte
	if _, err := io.ReadFull(in, mark[:]); err != nil {
		return strings.NewReader("")
	}
	return &utf16Text{in: in, big: mark[0] == 0xfe}
}

type utf16Text struct {
	in  *bufio.Reader
	big bool
	out []byte
}

func (u *utf16Text) unit() (uint16, error) {
	var b [2]byte
	if _, err := io.ReadFull(u.in, b[:]); err != nil {
		return 0, io.EOF
	}
	if u.big {
		return uint16(b[0])<<8 | uint16(b[1]), nil
	}
	return uint16(b[1])<<8 | uint16(b[0]), nil
}

func (u *utf16Text) Read(p []byte) (int, error) {
	for len(u.out) < len(p) {
		c, err := u.unit()
		if err != nil {
			if len(u.out) == 0 {
				return 0, err
			}
			break
		}
		r := rune(c)
		if utf16.IsSurrogate(r) {
			low, err := u.unit()
			if err != nil {
				break
			}
			r = utf16.DecodeRune(r, rune(low))
		}
		u.out = utf8.AppendRune(u.out, r)
	}
	n := copy(p, u.out)
	u.out = append(u.out[:0], u.out[n:]...)
	return n, nil
}

// capture reads a machine document. Other JSON is no input.
func (b *builder) capture(in io.Reader) {
	m, err := machine.Load(in)
	if err != nil {
		b.problem(0, machine.Unrecognised, "%v", err)
		return
	}
	b.saw(machine.KindCapture)
	b.adopt(m)
}

// errNothing is why Read fails.
var errNothing = errors.New("nothing in it was recognised (give lspci, dmesg, nvidia-smi, NCCL or a capture)")

func nothing(names []string) error {
	return fmt.Errorf("read %s: %w", strings.Join(names, ", "), errNothing)
}
