package sys

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ringlane/internal/model/cpu"
)

// mostCPUs is more than Linux can be built for: the kernel refuses to write
// into a mask with fewer bits than it has CPUs.
const mostCPUs = 1 << 16

// Affinity is the set of CPUs that the calling thread may run on: its own mask
// within the cpuset of its control group, without CPUs that are offline.
func Affinity() (cpu.Set, error) {
	mask := unix.NewCPUSet(mostCPUs)
	if err := unix.SchedGetaffinityDynamic(0, mask); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var set cpu.Set
	for id, left := 0, mask.Count(); left > 0; id++ {
		if mask.IsSet(id) {
			set = append(set, id)
			left--
		}
	}
	return set, nil
}

// Nodes is the number of the machine's NUMA nodes, at least 1.
func Nodes() int {
	names, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*") // the pattern is right
	return max(len(names), 1)
}

// SetAffinity keeps the calling thread on the CPUs of set, and the processes
// that it starts from then on. The goroutine must be locked to its thread.
func SetAffinity(set cpu.Set) error {
	mask := unix.NewCPUSet(mostCPUs)
	for _, id := range set {
		mask.Set(id)
	}
	if err := unix.SchedSetaffinityDynamic(0, mask); err != nil {
		return fmt.Errorf("sched_setaffinity to CPUs %s: %w", set, err)
	}
	return nil
}
