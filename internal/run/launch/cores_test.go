package launch

import (
	"math"
	"testing"
	"testing/fstest"
)

func TestCoreQuota(t *testing.T) {
	type files map[string]string
	for _, c := range []struct {
		name  string
		files files
		want  float64
	}{
		{"no control groups", files{}, math.MaxInt32},
		{"no limit", files{"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "max 100000\n"}, math.MaxInt32},
		{"limit", files{"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "250000 100000\n"}, 2.5},
		{"the parent's is tighter", files{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "100000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n"}, 1},
		{"a container sees its group as the root", files{"proc/self/cgroup": "0::/host/path\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3},
		{"version 1", files{
			"proc/self/cgroup": "5:memory:/job\n4:cpu,cpuacct:/job\n",
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us":  "150000\n",
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n"}, 1.5},
		{"version 1 without limit", files{
			"proc/self/cgroup":                    "4:cpu:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":  "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, math.MaxInt32},
		{"nonsense", files{"proc/self/cgroup": "what\n0::/job\n", "sys/fs/cgroup/job/cpu.max": "many\n"}, math.MaxInt32},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := coreQuota(root); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if UsableCores() < 1 {
		t.Error("no usable core")
	}
}
