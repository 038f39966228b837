package sys

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Grants reads what the kernel grants this process. Root stands before every
// path, so that tests can show it another machine.
type Grants struct{ Root string }

// Cores is the number of cores that this process may use: its affinity mask,
// cut down by the CPU quota of its control groups, at least 1.
func (g Grants) Cores() int {
	cores := 1
	if set, err := Affinity(); err == nil {
		cores = len(set)
	}
	if quota, limited := g.Quota(); limited {
		cores = min(cores, quota)
	}
	return max(cores, 1)
}

// Quota is the number of whole cores that the bandwidth control of this
// process's control groups amounts to, and whether there is such a bound.
func (g Grants) Quota() (cores int, limited bool) {
	for _, dir := range g.groups("cpu") {
		var quota, period int64
		if f := strings.Fields(g.text(dir, "cpu.max")); len(f) == 2 {
			quota, period = number(f[0]), number(f[1])
		} else {
			quota, period = number(g.text(dir, "cpu.cfs_quota_us")), number(g.text(dir, "cpu.cfs_period_us"))
		}
		if quota > 0 && period > 0 && (!limited || int(quota/period) < cores) {
			cores, limited = int(quota/period), true
		}
	}
	return cores, limited
}

// MemoryLimit says who bounds the memory of this process and how much it still
// grants.
type MemoryLimit struct {
	Available int64  // bytes
	Group     string // the control group that sets it, "" for the machine
}

// Memory is the tightest bound among the machine's available memory and the
// limits of this process's control groups. Page cache that the kernel can drop
// counts as available.
func (g Grants) Memory() MemoryLimit {
	limit := MemoryLimit{Available: 1<<63 - 1}
	if kb := g.field("/proc/meminfo", "MemAvailable:"); kb > 0 {
		limit.Available = kb << 10
	}
	for _, dir := range g.groups("memory") {
		most, used := number(g.text(dir, "memory.max")), number(g.text(dir, "memory.current"))
		cache := g.field(filepath.Join(dir, "memory.stat"), "inactive_file")
		if most < 0 {
			most, used = number(g.text(dir, "memory.limit_in_bytes")), number(g.text(dir, "memory.usage_in_bytes"))
			cache = g.field(filepath.Join(dir, "memory.stat"), "total_inactive_file")
		}
		if most < 0 || used < 0 {
			continue
		}
		if left := max(most-used+max(cache, 0), 0); left < limit.Available {
			limit = MemoryLimit{Available: left, Group: dir}
		}
	}
	return limit
}

// groups lists the directories of this process's control groups with the given
// controller, innermost first, for version 1 and 2 of the interface. Inside a
// container the path in /proc/self/cgroup may not exist below the mount; the
// mount itself is then the innermost group.
func (g Grants) groups(controller string) []string {
	text, err := os.ReadFile(g.Root + "/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		var mount string
		switch {
		case f[0] == "0" && f[1] == "":
			mount = "/sys/fs/cgroup"
		case slices.Contains(strings.Split(f[1], ","), controller):
			mount = "/sys/fs/cgroup/" + f[1]
			if _, err := os.Stat(g.Root + mount); err != nil {
				mount = "/sys/fs/cgroup/" + controller
			}
		default:
			continue
		}
		for path := filepath.Clean("/" + f[2]); ; path = filepath.Dir(path) {
			dirs = append(dirs, filepath.Join(mount, path))
			if path == "/" {
				break
			}
		}
	}
	return dirs
}

func (g Grants) text(dir, name string) string {
	b, err := os.ReadFile(g.Root + filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// field finds "name value" in a file, or -1.
func (g Grants) field(path, name string) int64 {
	b, err := os.ReadFile(g.Root + path)
	if err != nil {
		return -1
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) >= 2 && f[0] == name {
			return number(f[1])
		}
	}
	return -1
}

// number parses a count; anything else ("max", "") is -1.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
