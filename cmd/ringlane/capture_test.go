package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

const (
	secretUUID   = "GPU-1f3c9a20-77b1-4e07-9c55-0a1b2c3d4e5f"
	secretSerial = "1654922003377"
	secretDSN    = "3c-fd-fe-ff-ff-aa-bb-cc"
	secretMAC    = "b8:59:9f:12:34:56"
	secretHost   = "trainer7"
)

// secretMachine names itself in every place that a capture has.
func secretMachine() *machine.Machine {
	m := &machine.Machine{Host: secretHost + ".example.org", CommandLine: "root=UUID=0a1b2c3d-1111-2222-3333-444455556666 ro"}
	d := m.Add(pcie.MustParseBDF("0000:3b:00.0"))
	d.GPU = &machine.GPU{UUID: secretUUID, Serial: secretSerial}
	d.Registers.Serial = secretDSN
	m.LogText = []machine.LogText{{LogPart: machine.LogPart{Input: "dmesg"}, Lines: []string{
		"Nov 29 10:00:00 " + secretHost + " kernel: [  1.5] NVRM: GPU at PCI:0000:3b:00: " + secretUUID,
		"[  1.6] NVRM: GPU Board Serial Number: " + secretSerial,
		"[  1.7] ixgbe 0000:3b:00.0: " + secretMAC,
		"[  1.8] usb 1-1: SerialNumber: 4C530001230405",
		"[  1.9] pci 0000:3b:00.0: BAR 0 [mem 0xe0000000-0xe0ffffff 64bit]",
	}}}
	return m
}

func TestIdentityIsReplaced(t *testing.T) {
	key := []byte("a machine")
	m, err := withoutIdentity(secretMachine(), key)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := m.Save(&text); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{
		secretUUID, secretUUID[4:], secretSerial, secretDSN, secretMAC, secretHost, "example.org", "0a1b2c3d-1111", "4C530001230405",
	} {
		if strings.Contains(strings.ToLower(text.String()), strings.ToLower(secret)) {
			t.Errorf("%s is still there", secret)
		}
	}
	for _, kept := range []string{"0000:3b:00.0", "PCI:0000:3b:00", "0xe0000000-0xe0ffffff", "NVRM: GPU Board Serial Number: ", "root=UUID="} {
		if !strings.Contains(text.String(), kept) {
			t.Errorf("%s is gone", kept)
		}
	}
	d := m.Devices[0]
	if len(d.GPU.UUID) != len(secretUUID) || !strings.HasPrefix(d.GPU.UUID, "GPU-") {
		t.Errorf("the UUID became %q", d.GPU.UUID)
	}
	if log := m.LogText[0].Lines; !strings.Contains(log[0], d.GPU.UUID) || !strings.HasSuffix(log[1], d.GPU.Serial) {
		t.Errorf("the log calls the GPU otherwise than the document (%s, %s): %q", d.GPU.UUID, d.GPU.Serial, log[:2])
	}

	again, err := withoutIdentity(secretMachine(), key)
	if err != nil {
		t.Fatal(err)
	}
	other, err := withoutIdentity(secretMachine(), []byte("another machine"))
	if err != nil {
		t.Fatal(err)
	}
	if again.Devices[0].GPU.UUID != d.GPU.UUID {
		t.Error("two captures of one machine disagree")
	}
	if other.Devices[0].GPU.UUID == d.GPU.UUID {
		t.Error("the placeholder does not depend on the machine: it can be guessed")
	}
}

func TestCaptureIsReadAgain(t *testing.T) {
	m := secretMachine()
	path := filepath.Join(t.TempDir(), "machine.ringlane")
	if err := writeCaptureFile(path, m); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || !bytes.Contains(text, []byte(`"version": 1`)) {
		t.Fatalf("%v: %.200s", err, text)
	}
	again, err := readMachine([]string{path}, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	if again.Host != m.Host || len(again.Devices) != 1 || again.Devices[0].GPU.UUID != secretUUID || len(again.Log) == 0 {
		t.Errorf("read again: host %q, %d devices, %d log entries", again.Host, len(again.Devices), len(again.Log))
	}
}

func TestCaptureLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	target := filepath.Join(folder, "taken")
	if err := os.MkdirAll(filepath.Join(target, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeCaptureFile(target, secretMachine()); err == nil {
		t.Error("a folder was overwritten")
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func TestRemarksAreNoText(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "\n\n": true, "-- No entries --\n": true, "-- Logs begin at … --\n[    0.000000] Linux version 6.8.0\n": false,
	} {
		if empty(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
