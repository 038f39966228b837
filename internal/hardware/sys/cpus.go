package sys

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ringlane/internal/model/cpu"
)

const cpuFolder = "/sys/devices/system/cpu"

// CPUs describes the CPUs of set by what sysfs says of them below root. It
// fails if sysfs does not say which of them share a core; of what else is not
// said nothing is assumed.
func CPUs(root string, set cpu.Set) ([]cpu.CPU, error) {
	nodes := numaNodes(root)
	slower := slowerKinds(root)
	all := make([]cpu.CPU, len(set))
	for i, id := range set {
		dir := filepath.Join(root, cpuFolder, "cpu"+strconv.Itoa(id))
		siblings, err := readSet(filepath.Join(dir, "topology/thread_siblings_list"))
		if err == nil && !slices.Contains(siblings, id) {
			err = fmt.Errorf("CPU %d is not among the threads of its own core: %q", id, siblings)
		}
		if err != nil {
			return nil, fmt.Errorf("tell which CPUs share a core: %w", err)
		}
		c := cpu.CPU{ID: id, Core: siblings[0], Node: nodes[id], Cache: lastCache(dir, id)}
		c.Package, _ = readNumber(filepath.Join(dir, "topology/physical_package_id"))
		if c.Capacity, err = readNumber(filepath.Join(dir, "cpu_capacity")); err != nil {
			c.Capacity = fullCapacity
		}
		if slices.Contains(slower, id) {
			c.Capacity = min(c.Capacity, fullCapacity/2)
		}
		all[i] = c
	}
	return all, nil
}

// fullCapacity is the kernel's figure for a machine's fastest core
// (SCHED_CAPACITY_SCALE).
const fullCapacity = 1024

// slowerKinds are the efficient cores of an Intel hybrid. While its fast cores
// run two threads each the kernel gives all the same capacity, but it counts
// the events of the efficient ones in units of their own.
func slowerKinds(root string) cpu.Set {
	var slower cpu.Set
	for _, unit := range []string{"cpu_atom", "cpu_lowpower"} {
		set, _ := readSet(filepath.Join(root, "/sys/devices", unit, "cpus"))
		slower = append(slower, set...)
	}
	return slower
}

// numaNodes is the node of each CPU that the kernel places in one.
func numaNodes(root string) map[int]int {
	nodes := map[int]int{}
	lists, _ := filepath.Glob(filepath.Join(root, "/sys/devices/system/node/node[0-9]*/cpulist"))
	for _, list := range lists {
		node, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(list)), "node"))
		if err != nil {
			continue
		}
		set, _ := readSet(list)
		for _, id := range set {
			nodes[id] = node
		}
	}
	return nodes
}

// lastCache names the cache farthest from the core by the first CPU below it.
func lastCache(dir string, id int) int {
	first, highest := id, 0
	indexes, _ := filepath.Glob(filepath.Join(dir, "cache/index[0-9]*"))
	for _, index := range indexes {
		level, err := readNumber(filepath.Join(index, "level"))
		if err != nil || level <= highest {
			continue
		}
		if set, err := readSet(filepath.Join(index, "shared_cpu_list")); err == nil && len(set) > 0 {
			first, highest = set[0], level
		}
	}
	return first
}

func readSet(path string) (cpu.Set, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return cpu.Parse(string(text))
}

func readNumber(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
