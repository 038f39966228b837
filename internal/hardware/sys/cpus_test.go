package sys

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ringlane/internal/model/cpu"
)

// sysfs is the folder of a machine with two sockets of two cores of two
// threads, a cache for each socket, and a node that is memory only.
func sysfs() map[string]string {
	files := map[string]string{
		"sys/devices/system/node/node0/cpulist": "0-1,4-5\n",
		"sys/devices/system/node/node1/cpulist": "2-3,6-7\n",
		"sys/devices/system/node/node2/cpulist": "\n",
	}
	for id := range 8 {
		core, dir := id%4, fmt.Sprintf("sys/devices/system/cpu/cpu%d/", id)
		socket := core / 2
		files[dir+"topology/thread_siblings_list"] = fmt.Sprintf("%d,%d\n", core, core+4)
		files[dir+"topology/physical_package_id"] = fmt.Sprintf("%d\n", socket)
		files[dir+"cache/index0/level"] = "1\n"
		files[dir+"cache/index0/shared_cpu_list"] = fmt.Sprintf("%d,%d\n", core, core+4)
		files[dir+"cache/index3/level"] = "3\n"
		files[dir+"cache/index3/shared_cpu_list"] = fmt.Sprintf("%d-%d,%d-%d\n", 2*socket, 2*socket+1, 2*socket+4, 2*socket+5)
	}
	return files
}

func TestCPUs(t *testing.T) {
	const dir = "sys/devices/system/cpu/"
	for _, c := range []struct {
		name   string
		change func(files map[string]string)
		set    string
		want   string // ID, core, cache, node, package, capacity of each
		fails  string
	}{
		{
			name: "threads, caches, nodes and sockets", set: "0,3,6",
			want: "[{0 0 0 0 0 1024} {3 3 2 1 1 1024} {6 2 2 1 1 1024}]",
		},
		{
			name: "a thread that is offline", set: "4",
			change: func(f map[string]string) {
				f[dir+"cpu4/topology/thread_siblings_list"] = "4\n"
				delete(f, dir+"cpu0/topology/thread_siblings_list")
			},
			want: "[{4 4 0 0 0 1024}]",
		},
		{
			name: "a kernel without nodes, caches and sockets", set: "2,6",
			change: func(f map[string]string) {
				for path := range f {
					if !strings.HasSuffix(path, "thread_siblings_list") {
						delete(f, path)
					}
				}
			},
			want: "[{2 2 2 0 0 1024} {6 2 6 0 0 1024}]",
		},
		{
			name: "capacities", set: "0,1",
			change: func(f map[string]string) {
				f[dir+"cpu0/cpu_capacity"], f[dir+"cpu1/cpu_capacity"] = "1024\n", "446\n"
			},
			want: "[{0 0 0 0 0 1024} {1 1 0 0 0 446}]",
		},
		{
			name: "an Intel hybrid", set: "0,3",
			change: func(f map[string]string) {
				f["sys/devices/cpu_core/cpus"], f["sys/devices/cpu_atom/cpus"] = "0-2,4-6\n", "3,7\n"
				f[dir+"cpu3/cpu_capacity"] = "1024\n"
			},
			want: "[{0 0 0 0 0 1024} {3 3 2 1 1 512}]",
		},
		{
			name: "a container without sysfs", set: "0",
			change: func(f map[string]string) { clear(f) },
			fails:  "which CPUs share a core",
		},
		{
			name: "nonsense", set: "0",
			change: func(f map[string]string) { f[dir+"cpu0/topology/thread_siblings_list"] = "1,5\n" },
			fails:  "not among the threads of its own core",
		},
	} {
		files := sysfs()
		if c.change != nil {
			c.change(files)
		}
		set, err := cpu.Parse(c.set)
		if err != nil {
			t.Fatal(err)
		}
		got, err := CPUs(tree(t, files).Root, set)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v, want an error that says %q", c.name, err, c.fails)
			}
		} else if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%s:\n got %v, %v\nwant %v", c.name, got, err, c.want)
		}
	}
}

// What this machine says of itself holds together.
func TestCPUsOfThisMachine(t *testing.T) {
	set, err := Affinity()
	if err != nil {
		t.Fatal(err)
	}
	all, err := CPUs("/", set)
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	for _, c := range all {
		if c.Core > c.ID || c.Cache > c.Core || c.Capacity < 1 || c.Capacity > 1024 {
			t.Errorf("%+v", c)
		}
	}
}

// A thread that is kept on a CPU sees it, and so does a process that it starts.
func TestSetAffinity(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with its mask
	own, err := Affinity()
	if err != nil || len(own) == 0 {
		t.Fatal(own, err)
	}
	one := own[len(own)-1:]
	if err := SetAffinity(one); err != nil {
		t.Fatal(err)
	}
	if got, err := Affinity(); err != nil || !slices.Equal(got, one) {
		t.Errorf("kept on %s, the thread sees %s, %v", one, got, err)
	}
	out, err := exec.Command("sh", "-c", "exec grep Cpus_allowed_list: /proc/self/status").Output()
	if want := "Cpus_allowed_list:\t" + one.String(); err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("a process sees %q, %v, want %q", out, err, want)
	}
	if err := SetAffinity(cpu.Set{mostCPUs - 1}); err == nil || !strings.Contains(err.Error(), "65535") {
		t.Errorf("a CPU that is not there: %v", err)
	}
	if err := SetAffinity(own); err != nil {
		t.Error(err)
	}
}

func TestQuotaIsTheTightest(t *testing.T) {
	g := tree(t, map[string]string{
		"proc/self/cgroup":            "0::/a/b\n",
		"sys/fs/cgroup/a/b/cpu.max":   "max 100000\n",
		"sys/fs/cgroup/a/cpu.max":     "350000 100000\n",
		"sys/fs/cgroup/cpu.max":       "800000 100000\n",
		"sys/fs/cgroup/other/cpu.max": "100000 100000\n",
	})
	if cores, limited := g.Quota(); cores != 3 || !limited {
		t.Errorf("%d, %v, want 3 cores", cores, limited)
	}
	if cores, limited := (Grants{Root: t.TempDir()}).Quota(); limited {
		t.Errorf("without groups: %d", cores)
	}
}
