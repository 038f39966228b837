package launch

import (
	"fmt"

	"ringlane/internal/hardware/sys"
	"ringlane/internal/logic/binding"
	"ringlane/internal/model/cpu"
)

// Bind says whether each rank is kept on cores of its own.
type Bind string

const (
	BindAuto  Bind = "auto"  // where there are enough; "" is the same
	BindCores Bind = "cores" // or the job does not start
	BindNone  Bind = "none"
)

// ParseBind reads a Bind. It also takes mpirun's "core" for "cores".
func ParseBind(text string) (Bind, error) {
	switch b := Bind(text); b {
	case BindAuto, BindCores, BindNone:
		return b, nil
	case "core":
		return BindCores, nil
	}
	return "", fmt.Errorf("%q is not a binding (write auto, cores or none)", text)
}

// Binding is where the ranks of a job run.
type Binding struct {
	CPUs  []cpu.Set // of each rank; nil where all may run wherever the launcher may
	Why   string    // why CPUs is nil
	Cores int       // that each rank can count on, 1 or more
}

// Lines says for each rank where it runs, or why no rank is bound.
func (b Binding) Lines() []string {
	if b.CPUs == nil {
		return []string{"ranks are not bound: " + b.Why}
	}
	var lines []string
	for rank, set := range b.CPUs {
		word := "CPU"
		if len(set) > 1 {
			word = "CPUs"
		}
		lines = append(lines, fmt.Sprintf("rank %d is bound to %s %s", rank, word, set))
	}
	return lines
}

// Cores is the number of cores that ranks can use: those that the affinity
// mask and cpuset of this process leave, SMT threads of one core counted once,
// or fewer where a CPU quota amounts to fewer.
func Cores() int {
	cpus, quota, err := usable()
	if err != nil {
		return sys.Grants{}.Cores()
	}
	return max(1, min(binding.Cores(cpus), quota))
}

// Place divides the cores that this process can use among the ranks of a job.
// near is the NUMA node of each rank's GPU, or nil. It fails only where b asks
// for a binding that there is not.
func Place(b Bind, ranks int, near []int) (Binding, error) {
	unbound := Binding{Cores: max(1, Cores()/ranks)}
	switch {
	case b == BindNone:
		unbound.Why = "as --bind none or RINGLANE_BIND says"
		return unbound, nil
	case ranks == 1:
		unbound.Why = "a single rank may use every core"
		return unbound, nil
	}
	cpus, quota, err := usable()
	var sets []cpu.Set
	if err == nil {
		sets, err = binding.Divide(cpus, quota, ranks, near)
	}
	if err != nil {
		if b == BindCores {
			return Binding{}, fmt.Errorf("cannot bind the ranks to cores of their own: %w (start fewer ranks, or leave --bind at auto)", err)
		}
		unbound.Why = err.Error()
		return unbound, nil
	}
	bound := Binding{CPUs: sets, Cores: max(1, quota/ranks)}
	for _, set := range sets {
		bound.Cores = min(bound.Cores, binding.Cores(within(cpus, set)))
	}
	return bound, nil
}

// usable describes the CPUs that this process may run on, and its quota.
func usable() (cpus []cpu.CPU, quota int, err error) {
	set, err := sys.Affinity()
	if err != nil {
		return nil, 0, err
	}
	quota, limited := sys.Grants{}.Quota()
	if !limited {
		quota = binding.Unlimited
	}
	cpus, err = sys.CPUs("/", set)
	return cpus, quota, err
}

func within(cpus []cpu.CPU, set cpu.Set) []cpu.CPU {
	var some []cpu.CPU
	for _, c := range cpus {
		if set.Contains(c.ID) {
			some = append(some, c)
		}
	}
	return some
}

// bind keeps what this thread starts on the CPUs of a rank until release is
// called: a process inherits the affinity of the thread that forks it, which
// is this one since Run has locked it.
func (a *attempt) bind(number int) (release func(), err error) {
	nothing := func() {}
	if a.binding.CPUs == nil {
		return nothing, nil
	}
	own, err := sys.Affinity()
	if err == nil {
		err = sys.SetAffinity(a.binding.CPUs[number])
	}
	if err == nil {
		return func() { _ = sys.SetAffinity(own) }, nil
	}
	if a.Bind == BindCores {
		return nil, failed(fmt.Errorf("cannot bind rank %d: %w (has its cpuset changed, or does a sandbox forbid it? --bind none does without)", number, err))
	}
	a.printer.message(fmt.Sprintf("rank %d is not bound: %v", number, err))
	return nothing, nil
}
