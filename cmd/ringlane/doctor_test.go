package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringlane/internal/logic/diagnose"
	"ringlane/internal/model/machine"
)

// written puts a text into a file.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "input.txt")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	lostLog  = "[  700.1] NVRM: Xid (PCI:0000:03:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
	xidLog   = "[  700.1] NVRM: Xid (PCI:0000:03:00): 31, pid=1234, name=python, Ch 00000008\n"
	quietLog = "[    0.0] Linux version 6.8.0\n[    3.2] pci 0000:06:00.0: Max Payload Size set to 256 (was 512, max 512)\n"
)

func doctor(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = execute(append([]string{"doctor"}, args...), &out, &errs)
	return status, out.String(), errs.String()
}

func TestDoctorStatus(t *testing.T) {
	for _, c := range []struct {
		name, text string
		args       []string
		status     int
		says       string
	}{
		{"fault", lostLog, nil, 2, "FAULT: act on this machine (1 fault"},
		{"warning", xidLog, nil, 1, "WARNING: "},
		{"healthy", quietLog, nil, 0, "NO FAULT FOUND in the kernel log, and nothing else was looked at"},
		{"junk", "no machine at all\n", nil, 3, ""},
		{"empty", "", nil, 3, ""},
		{"detector, fault", lostLog, []string{"--node-problem-detector"}, 1, "device-lost at 0000:03:00.0\n"},
		{"detector, warning", xidLog, []string{"--node-problem-detector"}, 0, "no PCIe fault\n"},
		{"detector, unreadable", "", []string{"--node-problem-detector"}, 2, "could not be read"},
		{"slurm, fault", lostLog, []string{"--slurm"}, 1, "ringlane: device-lost at 0000:03:00.0\n"},
		{"slurm, warning", xidLog, []string{"--slurm"}, 0, ""},
		{"both", lostLog, []string{"--slurm", "--node-problem-detector"}, 2, ""},
		{"watching a file", lostLog, []string{"--watch"}, 2, ""},
		{"no such format", lostLog, []string{"--format", "xml"}, 2, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, stderr := doctor(t, append(c.args, "--from", written(t, c.text))...)
			if status != c.status || !strings.Contains(stdout, c.says) {
				t.Errorf("exit %d, want %d with %q\nstdout: %s\nstderr: %s", status, c.status, c.says, stdout, stderr)
			}
			answered := c.says != "" || c.status == 0
			if answered != (stderr == "") {
				t.Errorf("stderr: %q", stderr)
			}
			if strings.Contains(stdout, "\x1b[") {
				t.Error("colour, but no terminal")
			}
		})
	}
}

// TestReason: the line names the lost GPU, not what happened first.
func TestReason(t *testing.T) {
	down := "[  699.9] pcieport 0000:00:01.0: pciehp: Slot(1): Link Down\n"
	drive := "[  600.0] nvme nvme0: Removing after probe failure status: -19\n[  600.0] nvme 0000:06:00.0: Unable to change power state from D3cold to D0, device inaccessible\n"
	tree := "00:01.0 PCI bridge: Intel Corporation Device 347a\n\tBus: primary=00, secondary=03, subordinate=03, sec-latency=0\n\n03:00.0 3D controller: NVIDIA Corporation AD102GL [L40S] (rev a1)\n\n06:00.0 Non-Volatile memory controller: Samsung Electronics Co Ltd NVMe SSD Controller\n"
	for _, c := range []struct{ name, text, want string }{
		{"alone", lostLog, "device-lost at 0000:03:00.0"},
		{"with its cause", down + lostLog, "device-lost at 0000:03:00.0 after surprise-down at 0000:00:01.0"},
		{"a drive before", drive + lostLog, "device-lost at 0000:03:00.0 and 1 more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, stdout, _ := doctor(t, "--node-problem-detector", "--from", written(t, tree), written(t, c.text))
			if stdout != c.want+"\n" {
				t.Errorf("%q, want %q", stdout, c.want)
			}
		})
	}
}

// TestVerdict: the first line says what was looked at, and whether it fits.
func TestVerdict(t *testing.T) {
	device := func(id string) string {
		return "03:00.0 3D controller [0302]: NVIDIA Corporation AD102GL [L40S] [10de:" + id + "] (rev a1)\n"
	}
	for _, c := range []struct {
		name  string
		texts []string
		want  string
	}{
		{"a log", []string{quietLog}, "NO FAULT FOUND in the kernel log, and nothing else was looked at"},
		{"two kinds", []string{device("26b9"), quietLog}, "HEALTHY as far as can be seen in lspci, the kernel log"},
		{"contradiction", []string{device("26b9"), device("26b5")}, "the inputs contradict each other (see the end)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"--from"}
			for _, text := range c.texts {
				args = append(args, written(t, text))
			}
			_, stdout, _ := doctor(t, args...)
			first, rest, _ := strings.Cut(stdout, "\n")
			if !strings.Contains(first, c.want) {
				t.Error(first)
			}
			if strings.Contains(rest, "no verdict on") || !strings.Contains(rest, "Not in the input: ") {
				t.Error(rest)
			}
		})
	}
}

func TestDetectorLineIsShort(t *testing.T) {
	link := "pcieport 0000000a:00:04.0: broken device, retraining non-functional downstream link at 2.5GT/s\n" +
		"pci 0000000a:01:00.0: 8.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x4 link at 1000000a:00:04.0 (capable of 126.028 Gb/s with 32.0 GT/s PCIe x4 link)\n"
	_, stdout, _ := doctor(t, "--node-problem-detector", "--from", written(t, link+lostLog))
	if n := len([]rune(strings.TrimSuffix(stdout, "\n"))); n > detectorMessage || strings.Count(stdout, "\n") != 1 {
		t.Errorf("%d characters: %q", n, stdout)
	}
}

func TestDoctorJSON(t *testing.T) {
	_, stdout, _ := doctor(t, "--json", "--from", written(t, lostLog))
	var answer map[string]any
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil {
		t.Fatal(err)
	}
	findings, ok := answer["findings"].([]any)
	if !ok || len(findings) == 0 || answer["status"] != 2.0 {
		t.Fatalf("%s", stdout)
	}
	first, _ := findings[0].(map[string]any)
	for _, key := range []string{"code", "severity", "component", "also", "evidence", "explanation", "remedy", "affects"} {
		if first[key] == nil {
			t.Errorf("a finding without %q: %v", key, first)
		}
	}
}

func TestDoctorThresholds(t *testing.T) {
	var log strings.Builder
	for i := range 3 {
		at := "[  10" + string(rune('0'+i)) + ".0] "
		log.WriteString(at + "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0\n" +
			at + "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n" +
			at + "nvme 0000:01:00.0:   device [144d:a824] error status/mask=00000001/00000000\n")
	}
	path := written(t, log.String())
	if status, out, _ := doctor(t, "--from", path); status != 0 {
		t.Errorf("exit %d: %s", status, out)
	}
	if status, out, _ := doctor(t, "--storm-minute", "3", "--from", path); status != 1 {
		t.Errorf("exit %d: %s", status, out)
	}
	if status, _, _ := doctor(t, "--storm-minute", "0", "--from", path); status != 2 {
		t.Errorf("exit %d", status)
	}
}

// TestTerminalSafe: a log may hold escape sequences.
func TestTerminalSafe(t *testing.T) {
	_, stdout, _ := doctor(t, "--from", written(t, strings.Replace(lostLog, "python", "py\x1b]0;owned\x07thon", 1)))
	if strings.ContainsAny(stdout, "\x1b\x07") {
		t.Errorf("control characters reach the terminal: %q", stdout)
	}
}

func TestSlurmDrains(t *testing.T) {
	for _, c := range []struct {
		name, state string
		fail        bool
		text        string
		want        string // the last call
		status      int
	}{
		{name: "fault", state: "State=IDLE", text: lostLog, status: 1,
			want: "scontrol update NodeName=n7 State=DRAIN Reason=ringlane: device-lost at 0000:03:00.0"},
		{name: "drained already", state: "State=IDLE+DRAIN", text: lostLog, status: 1, want: "scontrol show node n7"},
		{name: "warning", state: "State=IDLE", text: xidLog},
		{name: "no scontrol", fail: true, text: lostLog, status: 1, want: "scontrol show node n7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := readMachine([]string{written(t, c.text)}, strings.NewReader(""))
			if err != nil {
				t.Fatal(err)
			}
			last := ""
			health := slurmHealth{node: "n7", run: func(name string, args ...string) (string, error) {
				last = name + " " + strings.Join(args, " ")
				if c.fail {
					return "", errors.New("not found")
				}
				return c.state, nil
			}}
			status, err := health.check(&bytes.Buffer{}, m, diagnosed(m))
			if status != c.status || last != c.want || (err != nil) != c.fail {
				t.Errorf("status %d, error %v, last call %q; want %d, %q", status, err, last, c.status, c.want)
			}
		})
	}
}

func diagnosed(m *machine.Machine) diagnose.Report {
	return diagnose.Run(m, diagnose.DefaultThresholds)
}
