package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRendezvousDirectory(t *testing.T) {
	runtime, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(runtime)
	for _, c := range []struct{ name, runtime, tmp, want string }{
		{"XDG_RUNTIME_DIR first", runtime, "/nowhere", runtime},
		{"then the temporary directory", "", runtime, runtime},
		{"a runtime directory that is gone", "/nowhere", runtime, runtime},
		{"a relative one", "relative", runtime, runtime},
		{"one too long for a socket", "", "/" + strings.Repeat("long", 30), "/tmp"},
	} {
		t.Setenv("XDG_RUNTIME_DIR", c.runtime)
		t.Setenv("TMPDIR", c.tmp)
		var announced []string
		directory, err := makeRendezvous(newName(), func(d string) { announced = append(announced, d) })
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		defer os.RemoveAll(directory)
		if filepath.Dir(directory) != c.want || announced[len(announced)-1] != directory {
			t.Errorf("%s: made %s, announced %q, want it in %s", c.name, directory, announced, c.want)
		}
		if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: mode %v, %v, want 0700", c.name, info.Mode(), err)
		}
	}
}
