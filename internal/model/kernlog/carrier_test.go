package kernlog

import (
	"strings"
	"testing"
)

const text = "pcieport 0000:00:1c.0: AER: enabled with IRQ 24"

func TestCarriers(t *testing.T) {
	const feb29 = 1709164800 * Second // 2024-02-29 UTC
	const feb29noYear = 951782400 * Second
	const clock = 13*Hour + 47*Minute + 22*Second
	for _, c := range []struct {
		name, before string
		want         Timestamp
	}{
		{"none", "", Timestamp{}},
		{"dmesg", "[   52.477734] ", Timestamp{Mono: 52477734, HasMono: true}},
		{"dmesg, long uptime", "[1234567.000001] ", Timestamp{Mono: 1234567000001, HasMono: true}},
		{"dmesg, thread", "[   52.477734][    T1] ", Timestamp{Mono: 52477734, HasMono: true}},
		{"dmesg, CPU", "[   52.477734] [  C12] ", Timestamp{Mono: 52477734, HasMono: true}},
		{"dmesg -T", "[Thu Feb 29 13:47:22 2024] ", Timestamp{Wall: feb29 + clock, HasWall: true, YearKnown: true}},
		{"dmesg -T, short day", "[Thu Feb  1 13:47:22 2024] ", Timestamp{Wall: feb29 - 28*Day + clock, HasWall: true, YearKnown: true}},
		{"dmesg -e", "[Feb29 13:47] ", Timestamp{Wall: feb29noYear + 13*Hour + 47*Minute, HasWall: true}},
		{"dmesg -d", "[   52.477734 <    0.000007>] ", Timestamp{Mono: 52477734, HasMono: true}},
		{"delta", "[<    0.000007>] ", Timestamp{Mono: 7, HasMono: true}},
		{"relative", "[  +0.000844] ", Timestamp{Mono: 844, HasMono: true}},
		{"raw", "<3>[   36.100000] ", Timestamp{Mono: 36100000, HasMono: true}},
		{"decoded", "kern  :err   : [   36.100000] ", Timestamp{Mono: 36100000, HasMono: true}},
		{"decoded -T", "kern  :warn  : [Thu Feb 29 13:47:22 2024] ", Timestamp{Wall: feb29 + clock, HasWall: true, YearKnown: true}},
		{"syslog", "Feb 29 13:47:22 host kernel: [   52.477734] ", Timestamp{Mono: 52477734, HasMono: true, Wall: feb29noYear + clock, HasWall: true}},
		{"syslog without bracket", "Feb 29 13:47:22 host kernel: ", Timestamp{Wall: feb29noYear + clock, HasWall: true}},
		{"syslog without host", "Feb 29 13:47:22 kernel: ", Timestamp{Wall: feb29noYear + clock, HasWall: true}},
		{"syslog, precise", "Feb 29 13:47:22.000005 host kernel: ", Timestamp{Wall: feb29noYear + clock + 5, HasWall: true}},
		{"syslog, other language", "2月 29 13:47:22 host kernel: ", Timestamp{Wall: feb29noYear + clock, HasWall: true}},
		{"short-iso", "2024-02-29T13:47:22+0100 host kernel: ", Timestamp{Wall: feb29 + clock - Hour, HasWall: true, YearKnown: true}},
		{"short-iso-precise", "2024-02-29T13:47:22.000005-01:30 host kernel: ", Timestamp{Wall: feb29 + clock + 5 + Hour + 30*Minute, HasWall: true, YearKnown: true}},
		{"short-iso, thread", "2024-02-29T13:47:22Z host kernel: [T1] ", Timestamp{Wall: feb29 + clock, HasWall: true, YearKnown: true}},
		{"dmesg --time-format iso", "2024-02-29T13:47:22,000005+00:00 ", Timestamp{Wall: feb29 + clock + 5, HasWall: true, YearKnown: true}},
		{"short-full", "Thu 2024-02-29 13:47:22 CET host kernel: ", Timestamp{Wall: feb29 + clock, HasWall: true, YearKnown: true}},
		{"short-monotonic", "[   52.477734] host kernel: ", Timestamp{Mono: 52477734, HasMono: true}},
		{"kernel tag", "kernel: ", Timestamp{}},
		{"kernel tag, level", "kernel:warning: [   52.477734] ", Timestamp{Mono: 52477734, HasMono: true}},
		{"kmsg", "3,1234,52477734,-;", Timestamp{Mono: 52477734, HasMono: true}},
		{"kmsg, caller", "6,1234,52477734,-,caller=T1;", Timestamp{Mono: 52477734, HasMono: true}},
		{"mail", "> > [   52.477734] ", Timestamp{Mono: 52477734, HasMono: true}},
		{"mail, tight", ">>[   52.477734] ", Timestamp{Mono: 52477734, HasMono: true}},
		{"colours", "\x1b[32m[   52.477734] \x1b[0m\x1b[33m", Timestamp{Mono: 52477734, HasMono: true}},
		{"trace", "           <...>-1234  [003] ....    52.477734: ", Timestamp{Mono: 52477734, HasMono: true}},
		{"trace, thread", "   irq/26-aerdrv-161   [127] d.h1.    52.477734: ", Timestamp{Mono: 52477734, HasMono: true}},
		{"trace, without flags", "          rs:-9-161   [003]    52.477734: ", Timestamp{Mono: 52477734, HasMono: true}},
		{"prompt", "host:/# [   52.477734] ", Timestamp{Mono: 52477734, HasMono: true}},
	} {
		for _, end := range []string{"", "\r", "\x1b[0m", "\r\n"} {
			entries := Parse(c.before + text + end)
			if len(entries) != 1 {
				t.Errorf("%s: %d entries from %q, want 1", c.name, len(entries), c.before+text)
				break
			}
			e := entries[0]
			if e.Event != (PortService{"AER"}) || e.Device != "0000:00:1c.0" || e.Driver != "pcieport" {
				t.Errorf("%s: got %#v of %s %s", c.name, e.Event, e.Driver, e.Device)
			}
			if e.Time != c.want {
				t.Errorf("%s: time %+v, want %+v", c.name, e.Time, c.want)
			}
			if strings.ContainsAny(e.Raw[0], "\x1b\r\n") {
				t.Errorf("%s: evidence %q keeps control characters", c.name, e.Raw[0])
			}
		}
	}
}

func TestNoCarrier(t *testing.T) {
	for _, c := range []string{
		"[Thu Feb 99 13:47:22 2024] ", "[Thu Foo 29 13:47:22 2024] ", "[drm] ", "[8086:1533] ", "<3333>", "[99999999999999999999.1] ",
		"3,1234,99999999999999999999,-;", "Feb 29 13:47 ", "2024-99-29T13:47:22 ", "[", "[ ", "kern", "kern:", "<", ">",
	} {
		l := uncarry(clean(c + "x"))
		if l.stamp != (stamp{}) {
			t.Errorf("%q gives a time: %+v", c, l.stamp)
		}
	}
}

func TestUserSpaceIsNoKernel(t *testing.T) {
	if entries := Parse("Feb 29 13:47:22 host relay[77]: " + text); len(entries) != 0 {
		t.Errorf("a program's line became %#v", entries)
	}
	entries := Parse("Feb 29 13:47:22 host systemd[1]: Detected virtualization kvm.")
	if len(entries) != 1 || entries[0].Event != (Hypervisor{"kvm"}) {
		t.Errorf("virtualization: %#v", entries)
	}
}

func TestBootsAndParts(t *testing.T) {
	line := func(stamp string) string { return stamp + text + "\n" }
	for _, c := range []struct {
		name, log   string
		boot, parts []int
	}{
		{"one boot, CPUs a little out of order", line("[ 5.5] ") + line("[ 5.4] ") + line("[ 6.0] "), []int{0, 0, 0}, []int{0, 0, 0}},
		{"time steps back", line("[ 223.8] ") + line("[ 216.6] ") + line("[ 217.0] "), []int{0, 1, 1}, []int{0, 0, 0}},
		{"Linux version and time back are one boot", line("[ 50.0] ") + "[ 0.000000] Linux version 6.1.0 (x)\n" + line("[ 0.5] "), []int{0, 1, 1}, []int{0, 0, 0}},
		{"Linux version without time", "Linux version 6.1.0 (x)\n" + line("") + "Linux version 6.1.0 (x)\n" + line(""), []int{0, 0, 1, 1}, []int{0, 0, 0, 0}},
		{"a second copy of the log", line("Nov 15 10:00:00 h kernel: ") + line("Nov 16 10:00:00 h kernel: ") + line("Nov 15 10:00:00 h kernel: "), []int{0, 0, 0}, []int{0, 0, 1}},
		{"a new year is no step back", line("Dec 31 23:59:59 h kernel: ") + line("Jan  1 00:00:01 h kernel: "), []int{0, 0}, []int{0, 0}},
	} {
		entries := Parse(c.log)
		if len(entries) != len(c.boot) {
			t.Errorf("%s: %d entries, want %d", c.name, len(entries), len(c.boot))
			continue
		}
		for i, e := range entries {
			if e.Time.Boot != c.boot[i] || e.Part != c.parts[i] {
				t.Errorf("%s: entry %d is of boot %d, part %d; want %d, %d", c.name, i, e.Time.Boot, e.Part, c.boot[i], c.parts[i])
			}
		}
	}
}

func TestSince(t *testing.T) {
	log := "Dec 31 23:59:59 h kernel: [ 10.0] " + text + "\nJan  1 00:00:01 h kernel: [ 10.5] " + text + "\n"
	e := Parse(log)
	if gap, ok := e[1].Time.Since(e[0].Time); !ok || gap != 2*Second {
		t.Errorf("the larger distance of two clocks is %v, %v; want 2 s", gap, ok)
	}
	e = Parse("[ 10.0] " + text + "\n[ 5.0] " + text + "\n")
	if gap, ok := e[1].Time.Since(e[0].Time); ok {
		t.Errorf("two boots without wall time are %v apart, want unknown", gap)
	}
	e = Parse("[Feb29 13:47] " + text + "\n[  +0.250000] " + text + "\n[  +0.250000] " + text + "\n")
	if gap, ok := e[2].Time.Since(e[0].Time); !ok || gap != Second/2 {
		t.Errorf("differences add up to %v, %v; want 0.5 s", gap, ok)
	}
}

func TestAddress(t *testing.T) {
	for _, c := range []struct {
		text string
		want Address
	}{
		{"0000:03:00.0", "0000:03:00.0"},
		{"PCI:0000:03:00", "0000:03:00"},
		{"PCI:00000000:03:00", "0000:03:00"},
		{"0000002A:03:1F.7", "002a:03:1f.7"},
		{"10000:e1:00.0", "10000:e1:00.0"},
		{"ffff:00:01.0", "ffff:00:01.0"},
		{"03:00.0", "0000:03:00.0"},
		{"0000:03:00.8", ""}, {"0000:03:20.0", ""}, {"000:03:00.0", ""}, {"03:00", ""}, {"000000000:03:00.0", ""},
		{"", ""}, {":", ""}, {"0000:03", ""}, {"0000:3:00.0", ""}, {"0000:03:00.0x", ""},
	} {
		if got, ok := ParseAddress(c.text); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("ParseAddress(%q) = %q, %v; want %q", c.text, got, ok, c.want)
		}
	}
	if a := RequesterAddress("0001", 0x00e5); a != "0001:00:1c.5" {
		t.Errorf("id=00e5 is %s, want 0001:00:1c.5", a)
	}
	a := Address("10000:03:00.1")
	if a.Card() != "10000:03:00" || a.Bus() != "10000:03" || a.Domain() != "10000" || a.Card().HasFunction() || !a.HasFunction() {
		t.Errorf("parts of %s: %s %s %s", a, a.Card(), a.Bus(), a.Domain())
	}
	if !a.Matches("10000:03:00") || a.Matches("10000:03:00.0") || a.Matches("") || Address("").Matches("") {
		t.Error("Matches is wrong")
	}
}
