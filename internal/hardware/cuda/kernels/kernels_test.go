package kernels

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func packed(t *testing.T, text string) *fstest.MapFile {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: b.Bytes()}
}

func TestPTXOfACapability(t *testing.T) {
	torn := packed(t, "all of it")
	torn.Data = torn.Data[:len(torn.Data)-4]
	archive := fstest.MapFS{
		"ptx/manifest.json":             {},
		"ptx/compute_70/f32.ptx.gz":     packed(t, "f32 7.0"),
		"ptx/compute_80/f32.ptx.gz":     packed(t, "f32 8.0"),
		"ptx/compute_80/newer.ptx.gz":   packed(t, "newer 8.0"),
		"ptx/compute_100/f32.ptx.gz":    packed(t, "f32 10.0"),
		"ptx/compute_70/copy.ptx.gz":    packed(t, "copy 7.0"),
		"ptx/compute_70/torn.ptx.gz":    torn,
		"ptx/compute_70/no-gzip.ptx.gz": {Data: []byte("plain text")},
	}
	for _, c := range []struct {
		module       string
		major, minor int
		want         string // or what the error says
	}{
		{"f32", 7, 0, "f32 7.0"},
		{"f32", 7, 5, "f32 7.0"},
		{"f32", 8, 0, "f32 8.0"},
		{"f32", 8, 9, "f32 8.0"},
		{"f32", 9, 0, "f32 8.0"},
		{"f32", 10, 0, "f32 10.0"},
		{"f32", 12, 1, "f32 10.0"},
		{"copy", 12, 1, "copy 7.0"},
		{"newer", 9, 0, "newer 8.0"},
		{"newer", 7, 5, "no such module"},
		{"f32", 6, 1, "has compute capability 6.1 (7.0 or newer is needed)"},
		{"f33", 9, 0, "no such module"},
		{"torn", 9, 0, "torn.ptx.gz: unexpected EOF"},
		{"no-gzip", 9, 0, "no-gzip.ptx.gz: gzip: invalid header"},
	} {
		text, err := find(archive, c.module, [2]int{c.major, c.minor})
		got := string(text)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%s for %d.%d: %q, want %q", c.module, c.major, c.minor, got, c.want)
		}
	}
	if _, err := find(fstest.MapFS{}, "f32", [2]int{9, 0}); err == nil {
		t.Error("found in nothing")
	}
	if _, err := PTX("f33", [2]int{9, 0}); err == nil || !strings.Contains(err.Error(), `"f33"`) {
		t.Errorf("the error does not name the module: %v", err)
	}
}

// TestPTXIsUpToDate needs no compiler: the manifest says what the PTX was made of.
func TestPTXIsUpToDate(t *testing.T) {
	var manifest struct {
		NVRTC        string
		Sources, PTX map[string]string
	}
	text, err := os.ReadFile("ptx/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}

	sources := map[string]string{}
	for _, pattern := range []string{"build.txt", "*.cu", "*.cuh"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sources[name] = hash(source)
		}
	}
	if names := differ(manifest.Sources, sources); names != nil {
		t.Errorf("PTX is out of date: %v changed (run make gen)", names)
	}

	requirements, err := os.ReadFile("../../../../tools/requirements-ptx.txt")
	if err != nil {
		t.Fatal(err)
	}
	if pin := "nvidia-cuda-nvrtc-cu12==" + manifest.NVRTC + "\n"; !strings.Contains(string(requirements), pin) {
		t.Errorf("PTX is out of date: it was made by NVRTC %s, and %s pins another (run make gen)",
			manifest.NVRTC, "tools/requirements-ptx.txt")
	}

	archived := map[string]string{}
	names, err := fs.Glob(archive, "ptx/*/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		ptx, err := unpack(archive, name)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(name, "ptx/"), ".ptx.gz")
		archived[name] = hash(ptx)
		capability := strings.TrimPrefix(filepath.Dir(name), "compute_")
		if found := target.FindSubmatch(ptx); found == nil || string(found[1]) != capability {
			t.Errorf("%s is for %q", name, found)
		}
	}
	if names := differ(manifest.PTX, archived); names != nil {
		t.Errorf("ptx/ is not what its manifest lists: %v differ (run make gen)", names)
	}
}

// TestFollows has exactly those kernels launched early that wait for what comes before.
func TestFollows(t *testing.T) {
	for _, test := range []struct {
		module, kernel string
		capability     [2]int
		want           bool
	}{
		{"fast_f32", "fast_pair_f32", [2]int{9, 0}, true},
		{"fast_bf16", "fast_line128_bf16", [2]int{10, 0}, true},
		{"f32", "reduce_line16_f32", [2]int{9, 0}, false},
		{"f32", "reduce_slot_f32", [2]int{9, 0}, false},
		{"copy", "copy_line128", [2]int{9, 0}, true},
		{"copy", "copy_slot", [2]int{9, 0}, false},
		{"fast_f32", "fast_pair_f32", [2]int{8, 0}, false}, // which has no such instruction
		{"fast_f32", "fast_pair", [2]int{9, 0}, false},     // of another name
	} {
		text, err := PTX(test.module, test.capability)
		if err != nil {
			t.Fatal(err)
		}
		if got := Follows(text, test.kernel); got != test.want {
			t.Errorf("%s for %v follows: %v, want %v", test.kernel, test.capability, got, test.want)
		}
	}
}

var target = regexp.MustCompile(`(?m)^\.target sm_(\d+)$`)

// differ returns the names that are not in both with the same hash.
func differ(a, b map[string]string) []string {
	var names []string
	for name, sum := range a {
		if b[name] != sum {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, in := a[name]; !in {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
