package device

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"ringlane/internal/hardware/cuda/emulator"
	"ringlane/internal/logic/diagnose"
	"ringlane/internal/run/communicator"
)

// probeReport is what a rank that has joined says.
type probeReport struct {
	Paths []Path
	Line  int
	Took  time.Duration
}

// TestProbeRank is one rank of the tests below, in a process of its own.
func TestProbeRank(t *testing.T) {
	if os.Getenv("RINGLANE_PROBE_TEST") == "" {
		t.Skip("for the processes that other tests start")
	}
	cfg, err := communicator.FromProcess()
	if err != nil {
		t.Fatal(err)
	}
	c, err := communicator.Join(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	d, err := Join(c, c.Rank())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(probeReport{d.Paths(), d.devices.Line, time.Since(start)})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s\n", text)
}

// joined has ranks join on an emulated machine and returns what each reports.
func joined(t *testing.T, ranks int, machine string, environ ...string) []probeReport {
	t.Helper()
	driver, dir := emulator.Build(t), t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	outputs := make([]bytes.Buffer, ranks)
	var all []*exec.Cmd
	for rank := range ranks {
		c := exec.Command("/proc/self/exe", "-test.run=^TestProbeRank$", "-test.timeout=60s")
		c.Env = append(os.Environ(), "RINGLANE_PROBE_TEST=1", "RINGLANE_CUDA_DRIVER="+driver, "RINGLANE_EMULATOR="+machine,
			"RINGLANE_JOB="+t.Name(), "RINGLANE_RENDEZVOUS="+dir, "RINGLANE_TIMEOUT=30s",
			fmt.Sprint("RINGLANE_RANK=", rank), fmt.Sprint("RINGLANE_SIZE=", ranks))
		c.Env = append(c.Env, environ...)
		c.Stdout, c.Stderr = &outputs[rank], os.Stderr
		endWithUs(t, c)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	reports := make([]probeReport, ranks)
	for rank, c := range all {
		err := c.Wait()
		line, _, _ := strings.Cut(outputs[rank].String(), "\n")
		if err == nil {
			err = json.Unmarshal([]byte(line), &reports[rank])
		}
		if err != nil {
			t.Fatalf("rank %d: %v\n%s", rank, err, outputs[rank].String())
		}
	}
	return reports
}

// between is the path from one rank to another as a rank reports it.
func (r probeReport) between(from, to int) Path {
	for _, p := range r.Paths {
		if p.From == from && p.To == to {
			return p
		}
	}
	return Path{}
}

func TestProbeMeasuresAndTrusts(t *testing.T) {
	for rank, r := range joined(t, 3, "gpus=3,sms=8,threads=128") {
		for from := range 3 {
			for to := range 3 {
				p := r.between(from, to)
				if from != to && (p.Kind != Peer || p.Why != "" || p.Push <= 0 || p.Pull <= 0 || p.Latency <= 0) {
					t.Errorf("rank %d: %+v", rank, p)
				}
			}
		}
		t.Logf("rank %d: line %d, joined in %v: %+v", rank, r.Line, r.Took, r.between(0, 1))
	}
}

// What is wrong with one direction of one pair makes both of its ranks, and all
// others, give that pair up and no other, and say why.
func TestProbeVetoes(t *testing.T) {
	for _, c := range []struct{ machine, why string }{
		{"p2p=drop:0>1", "does not arrive"},
		{"p2p=corrupt:0>1", "rows, word"},
		{"p2p=hang:0>1", "rank 0"},
	} {
		t.Run(c.machine, func(t *testing.T) {
			for rank, r := range joined(t, 3, "gpus=3,sms=8,threads=128,"+c.machine) {
				for _, p := range r.Paths {
					bad := p.From+p.To == 1
					switch {
					case p.From == p.To:
					case bad && (p.Kind != Host || p.Why == ""):
						t.Errorf("rank %d trusts %+v", rank, p)
					case !bad && p.Kind != Peer:
						t.Errorf("rank %d: %+v", rank, p)
					}
				}
				for _, why := range []string{r.between(0, 1).Why, r.between(1, 0).Why} {
					if !strings.Contains(why, c.why) {
						t.Errorf("rank %d: %q does not say %q", rank, why, c.why)
					}
				}
				t.Logf("rank %d after %v: %s | %s", rank, r.Took, r.between(0, 1).Why, r.between(1, 0).Why)
			}
		})
	}
}

func TestCauseIsTheNearest(t *testing.T) {
	findings := []diagnose.Finding{
		{Code: "p2p-unavailable", Component: "a<->b", Affects: []string{"a", "b"}, Remedy: "none"},
		{Code: "acs-redirect", Component: "port", Affects: []string{"b", "c"}, Remedy: "clear it\nat boot"},
		{Code: "link-degraded", Component: "x", Affects: []string{"a"}},
	}
	for _, c := range []struct{ a, b, want string }{
		{"a", "b", " (acs-redirect at port: clear it)"},
		{"a", "d", " (p2p-unavailable at a<->b: none)"},
		{"d", "e", ""},
	} {
		if got := causeIn(findings, c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %q, want %q", c.a, c.b, got, c.want)
		}
	}
}

// Host memory is tried in the same way.
func TestProbeOfHostMemory(t *testing.T) {
	for rank, r := range joined(t, 3, "gpus=3,sms=8,threads=128", "RINGLANE_P2P=off") {
		p := r.between(0, 1)
		if p.Kind != Host || p.Push <= 0 || p.Pull <= 0 || p.Latency <= 0 {
			t.Errorf("rank %d: %+v", rank, p)
		}
		t.Logf("rank %d: line %d, joined in %v: %+v", rank, r.Line, r.Took, p)
	}
}

// The GPUs of this machine, or the emulator's, trust each other, and it is said
// how fast they are.
func TestPathsAreMeasured(t *testing.T) {
	together(t, atMost(t, 3), func(r *rank) error {
		for _, p := range r.Paths() {
			if p.Kind != Same && (p.Push <= 0 || p.Pull <= 0 || p.Latency <= 0) {
				return fmt.Errorf("not measured: %+v", p)
			}
			if r.Rank() == 0 {
				t.Logf("%+v", p)
			}
		}
		return nil
	})
}
