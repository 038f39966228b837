// Package tuning keeps what a measurement of this machine found out: the table
// that chooses how a collective is carried out, in a file for each machine.
package tuning

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/cpu"
)

// Machine is what a measured table depends on: where any of it differs, the
// table is another machine's.
type Machine struct {
	CPU      string `json:"cpu"`      // model, as the kernel names it
	CPUs     int    `json:"cpus"`     // online, or what the control group grants, if less
	Packages int    `json:"packages"` // sockets
	Nodes    int    `json:"nodes"`    // NUMA nodes
	Kernel   string `json:"kernel"`   // major version: futexes and scheduling change with it
	Arch     string `json:"arch"`
	Layout   int    `json:"layout"` // version of the windows that were measured
}

// ThisMachine describes the machine that this process runs on, as root shows it
// ("" for the real one). It does not depend on the CPUs that the process is
// bound to, since ranks are bound to some each.
func ThisMachine(root string, layout int) Machine {
	m := Machine{CPU: CPUModel(root), Packages: 1, Nodes: 1, Kernel: "unknown", Arch: runtime.GOARCH, Layout: layout}
	online, err := os.ReadFile(root + "/sys/devices/system/cpu/online")
	var set cpu.Set
	if err == nil {
		set, err = cpu.Parse(string(online))
	}
	if m.CPUs = len(set); err != nil || m.CPUs == 0 {
		m.CPUs = runtime.NumCPU()
	}
	if cpus, err := sys.CPUs(root, set); err == nil {
		packages, nodes := map[int]bool{}, map[int]bool{}
		for _, c := range cpus {
			packages[c.Package], nodes[c.Node] = true, true
		}
		m.Packages, m.Nodes = max(len(packages), 1), max(len(nodes), 1)
	}
	if quota, limited := (sys.Grants{Root: root}).Quota(); limited {
		m.CPUs = min(m.CPUs, max(quota, 1))
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		release := string(bytes.TrimRight(u.Release[:], "\x00"))
		m.Kernel, _, _ = strings.Cut(release, ".")
	}
	return m
}

// CPUModel is the name that the kernel has for the first CPU.
func CPUModel(root string) string {
	file, err := os.Open(root + "/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// Path is the file with this machine's measurements:
// $XDG_CACHE_HOME/ringlane/tune-KEY.json, or below ~/.cache.
func (m Machine) Path() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the folder for the tuning: %w (set HOME or XDG_CACHE_HOME)", err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	key := fnv.New64a()
	key.Write(text)
	return filepath.Join(dir, "ringlane", fmt.Sprintf("tune-%016x.json", key.Sum64())), nil
}
