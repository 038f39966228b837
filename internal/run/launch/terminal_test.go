package launch

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns the two ends of a new pseudo-terminal.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	control, err := keyboard.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	_ = control.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keyboard, terminal
}

func (l *launched) states(name string) (states []byte) {
	for _, pid := range l.running() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if strings.Contains(string(text), "("+name+")") {
			if p, err := readProcess(fmt.Sprint(pid)); err == nil {
				states = append(states, p.state)
			}
		}
	}
	return states
}

// TestOnATerminal types at the launcher: rank 0 reads the terminal without
// being stopped for it, Ctrl-Z stops every rank, and Ctrl-C interrupts each once.
func TestOnATerminal(t *testing.T) {
	t.Parallel()
	keyboard, terminal := openTerminal(t)
	l := launcher(t, sh(2, `trap 'echo got INT; kill $!; exit 0' INT; stty -echo <&0 2>/dev/null
		echo ready; read line; sleep 1000 & echo "read $line"; wait`))
	l.process.Stdin = terminal
	l.process.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	l.begin().await("[0] ready", "[1] read ") // rank 1 meets the end of file
	if _, err := keyboard.WriteString("typed words\n"); err != nil {
		t.Fatal(err)
	}
	l.await("[0] read typed words")

	// Of an orphaned process group, such as a session leader's, the terminal's
	// own SIGTSTP is dropped, so the launcher stops itself.
	l.signal(unix.SIGTSTP)
	stopped := func() bool { return strings.Trim(string(l.states("sh")), "T") == "" && len(l.states("sh")) >= 2 }
	l.eventually("both ranks stop", stopped)
	l.signal(unix.SIGCONT)
	l.eventually("both ranks go on", func() bool { return !strings.Contains(string(l.states("sh")), "T") })

	if _, err := keyboard.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	l.end(130)
	for _, line := range []string{"[0] got INT", "[1] got INT"} {
		if n := strings.Count(l.output(), line+"\n"); n != 1 {
			t.Errorf("%q said %d times, want once:\n%s", line, n, l.output())
		}
	}
}

func TestColourOnlyOnATerminal(t *testing.T) {
	_, terminal := openTerminal(t)
	for _, c := range []struct {
		noColour, term string
		want           bool
	}{{"", "xterm", true}, {"1", "xterm", false}, {"", "dumb", false}} {
		t.Setenv("NO_COLOR", c.noColour)
		t.Setenv("TERM", c.term)
		p := newPrinter(terminal, terminal)
		if got := strings.Contains(string(p.newLines(&p.out, 1).prefix), "\x1b["); got != c.want {
			t.Errorf("NO_COLOR=%q TERM=%q: colour %v, want %v", c.noColour, c.term, got, c.want)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p := newPrinter(null, null)
	if got := string(p.newLines(&p.out, 1).prefix); got != "[1] " {
		t.Errorf("prefix %q, want it plain", got)
	}
}
