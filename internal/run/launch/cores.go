package launch

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// UsableCores returns how many cores this process may keep busy: those of its
// affinity mask, or fewer where a control group grants less time. At least 1.
func UsableCores() int {
	cores := runtime.NumCPU()
	var mask unix.CPUSet
	if unix.SchedGetaffinity(0, &mask) == nil && mask.Count() > 0 {
		cores = mask.Count()
	}
	return max(1, min(cores, int(coreQuota(os.DirFS("/")))))
}

// coreQuota returns the cores' worth of time that the control groups around
// this process grant, and math.MaxInt32 where they set no limit. Both versions
// of cgroup are read; a parent's limit binds its children.
func coreQuota(root fs.FS) float64 {
	quota := float64(math.MaxInt32)
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return quota
	}
	for line := range strings.Lines(string(text)) {
		// hierarchy-ID:controller-list:cgroup-path
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		mount, read := "sys/fs/cgroup", quotaV2
		if fields[1] != "" {
			if !strings.Contains(","+fields[1]+",", ",cpu,") {
				continue
			}
			mount, read = path.Join(mount, fields[1]), quotaV1
		}
		// Inside a container the path may name a group that only the host
		// sees; the container's own group is then the mount itself.
		for group := path.Join("/", fields[2]); ; group = path.Dir(group) {
			if q, ok := read(root, path.Join(mount, group)); ok {
				quota = min(quota, q)
			}
			if group == "/" {
				break
			}
		}
	}
	return quota
}

// quotaV2 reads "QUOTA PERIOD" or "max PERIOD", in microseconds.
func quotaV2(root fs.FS, group string) (float64, bool) {
	text, err := fs.ReadFile(root, path.Join(group, "cpu.max"))
	if err != nil {
		return 0, false
	}
	quota, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	return ratio(quota, period)
}

// quotaV1 reads the two files of the first version; a quota of -1 is no limit.
func quotaV1(root fs.FS, group string) (float64, bool) {
	quota, err := fs.ReadFile(root, path.Join(group, "cpu.cfs_quota_us"))
	if err != nil {
		return 0, false
	}
	period, err := fs.ReadFile(root, path.Join(group, "cpu.cfs_period_us"))
	if err != nil {
		return 0, false
	}
	return ratio(strings.TrimSpace(string(quota)), strings.TrimSpace(string(period)))
}

func ratio(quota, period string) (float64, bool) {
	q, err := strconv.ParseFloat(quota, 64)
	if err != nil || q <= 0 {
		return 0, false
	}
	p, err := strconv.ParseFloat(period, 64)
	if err != nil || p <= 0 {
		return 0, false
	}
	return q / p, true
}
