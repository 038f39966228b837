package communicator

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestEnvironment(t *testing.T) {
	lookup := func(vars map[string]string) func(string) (string, bool) {
		return func(n string) (string, bool) { v, ok := vars[n]; return v, ok }
	}
	cfg, err := FromEnvironment(lookup(map[string]string{
		"RINGLANE_RANK": "1", "RINGLANE_SIZE": "4", "RINGLANE_JOB": "j", "RINGLANE_RENDEZVOUS": "/d", "RANK": "9",
		"RINGLANE_TIMEOUT": "1.5", "RINGLANE_STAGING": "4M", "RINGLANE_ALGO": "ring", "RINGLANE_PROTOCOL": "ll",
	}))
	want := Config{Rank: 1, Size: 4, Job: "j", Rendezvous: "/d", Timeout: 1500 * time.Millisecond, Staging: 4 << 20, Algorithm: "ring", Protocol: "ll"}
	if err != nil || cfg != want {
		t.Errorf("%+v, %v", cfg, err)
	}
	torchrun := map[string]string{"RANK": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "h", "MASTER_PORT": "29500", "TORCHELASTIC_RESTART_COUNT": "0"}
	first, err := FromEnvironment(lookup(torchrun))
	if err != nil || first.Rank != 2 || first.Size != 3 {
		t.Errorf("%+v, %v", first, err)
	}
	torchrun["TORCHELASTIC_RESTART_COUNT"] = "1"
	if second, _ := FromEnvironment(lookup(torchrun)); second.Job == first.Job {
		t.Error("a restarted job has the name of the one before")
	}
	for _, vars := range []map[string]string{
		{},
		{"RANK": "0", "WORLD_SIZE": "2"},
		{"RANK": "zero", "WORLD_SIZE": "2", "MASTER_PORT": "1"},
		{"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1", "RINGLANE_TIMEOUT": "soon"},
		{"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1", "RINGLANE_STAGING": "-1"},
	} {
		if _, err := FromEnvironment(lookup(vars)); !errors.Is(err, Argument) {
			t.Errorf("%v: %v, want a bad argument", vars, err)
		}
	}
}

// The README lists every variable, in the words of Environment.
func TestReadmeListsTheEnvironment(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Environment {
		if row := fmt.Sprintf("| `%s` | %s |\n", v.Name, v.Meaning); !strings.Contains(string(text), row) {
			t.Errorf("README.md lacks the line %s", row)
		}
	}
}
