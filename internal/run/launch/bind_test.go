package launch

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ringlane/internal/hardware/sys"
	"ringlane/internal/model/cpu"
)

// seesCPUs is a rank that says which CPUs it may run on.
const seesCPUs = `while read name value; do case $name in Cpus_allowed_list:) echo cpus $value;; esac; done </proc/self/status`

// cpusOf runs ranks of seesCPUs and returns what each said, and the messages.
func cpusOf(t *testing.T, l *launched, ranks int) (sets []cpu.Set, messages []string) {
	t.Helper()
	l.begin().end(0)
	sets = make([]cpu.Set, ranks)
	for _, line := range l.seen {
		mark, list, ok := strings.Cut(line, " cpus ")
		if !ok {
			messages = append(messages, line)
			continue
		}
		rank, err := strconv.Atoi(strings.Trim(mark, "[]"))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if sets[rank], err = cpu.Parse(list); err != nil {
			t.Fatal(err)
		}
	}
	return sets, messages
}

func usableCPUs(t *testing.T) cpu.Set {
	t.Helper()
	set, err := sys.Affinity()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// unbound reports a rank that may run on every CPU of the launcher; its mask may
// also hold CPUs that are offline.
func unbound(rank, launcher cpu.Set) bool {
	return !slices.ContainsFunc(launcher, func(id int) bool { return !rank.Contains(id) })
}

func TestRanksAreBoundToCoresOfTheirOwn(t *testing.T) {
	t.Parallel()
	if Cores() < 2 {
		t.Skip("SKIPPED: one usable core is nothing to divide")
	}
	all := usableCPUs(t)
	spec := sh(2, seesCPUs)
	spec.MaxRestarts = 1
	// The first attempt fails: the second finds the launcher's own CPUs as they were.
	spec.Command[2] += `; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit $RANK`
	spec.ReportBinding = true
	sets, messages := cpusOf(t, launcher(t, spec), 2)
	for rank, set := range sets {
		if len(set) == 0 || len(set) == len(all) {
			t.Errorf("rank %d may run on %s, the launcher on %s", rank, set, all)
		}
		for _, id := range set {
			if !all.Contains(id) || sets[1-rank].Contains(id) {
				t.Errorf("CPU %d is not for rank %d alone: %s and %s of %s", id, rank, sets[0], sets[1], all)
			}
		}
		word := "CPU "
		if len(set) > 1 {
			word = "CPUs "
		}
		want := "ringlane run: rank " + strconv.Itoa(rank) + " is bound to " + word + set.String()
		if n := slices.Index(messages, want); n < 0 {
			t.Errorf("%q is not among %q", want, messages)
		}
	}
	want, err := Place(BindCores, 2, nil)
	if err != nil || !slices.EqualFunc(sets, want.CPUs, slices.Equal[cpu.Set]) {
		t.Errorf("the ranks ran on %v, placed on %v, %v", sets, want.CPUs, err)
	}
}

// Without enough cores every rank has what the launcher has.
func TestRanksAreNotBound(t *testing.T) {
	t.Parallel()
	all := usableCPUs(t)
	many := Cores() + 1
	for _, c := range []struct {
		name  string
		spec  Spec
		ranks int
		why   string
	}{
		{"more ranks than cores", Spec{}, many, "more than"},
		{"unwanted", Spec{Bind: BindNone}, 2, "--bind none"},
		{"alone", Spec{Bind: BindCores}, 1, "every core"},
	} {
		c.spec.Command, c.spec.Ranks, c.spec.ReportBinding = []string{"sh", "-c", seesCPUs}, c.ranks, true
		if c.ranks == 1 { // its output carries no mark
			c.spec.Command[2] = strings.Replace(seesCPUs, "echo cpus", `echo "[0] cpus"`, 1)
		}
		sets, messages := cpusOf(t, launcher(t, c.spec), c.ranks)
		for rank, set := range sets {
			if !unbound(set, all) {
				t.Errorf("%s: rank %d may run on %s, the launcher on %s", c.name, rank, set, all)
			}
		}
		if len(messages) != 1 || !strings.Contains(messages[0], "not bound: ") || !strings.Contains(messages[0], c.why) {
			t.Errorf("%s: said %q, want the reason %q", c.name, messages, c.why)
		}
	}
}

// What the user has taken away stays away.
func TestBindingKeepsToTheUsersCPUs(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // never unlocked: the thread ends with its mask
	all := usableCPUs(t)
	one := all[len(all)-1:]
	if err := sys.SetAffinity(one); err != nil {
		t.Fatal(err)
	}
	sets, _ := cpusOf(t, launcher(t, sh(2, seesCPUs)), 2)
	for rank, set := range sets {
		if !slices.Equal(set, one) {
			t.Errorf("rank %d may run on %s, the launcher on %s", rank, set, one)
		}
	}
	refused := launcher(t, Spec{Command: []string{"true"}, Ranks: 2, Bind: BindCores}).begin()
	refused.end(1)
	if want := "cannot bind the ranks to cores of their own: 2 ranks are more than 1 usable core"; !strings.Contains(refused.output(), want) {
		t.Errorf("said %q, want %q", refused.output(), want)
	}
}

// A CPU quota of one core is no two cores, however many CPUs there are.
func TestQuotaOfARealGroup(t *testing.T) {
	t.Parallel()
	dir, files := "/sys/fs/cgroup/ringlane-test-"+strconv.Itoa(os.Getpid()), [][2]string{{"cpu.max", "100000 100000"}}
	if _, err := os.Stat("/sys/fs/cgroup/cpu"); err == nil { // version 1
		dir, files = "/sys/fs/cgroup/cpu/"+filepath.Base(dir), [][2]string{{"cpu.cfs_period_us", "100000"}, {"cpu.cfs_quota_us", "100000"}}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("SKIPPED: no control group can be made here: %v", err)
	}
	defer os.Remove(dir)
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(dir, file[0]), []byte(file[1]), 0o644); err != nil {
			t.Skipf("SKIPPED: the group takes no CPU quota: %v", err)
		}
	}
	spec := sh(2, `[ $OMP_NUM_THREADS = 1 ] && `+seesCPUs)
	spec.ReportBinding = true
	l := launcher(t, spec)
	// The launcher starts inside the group.
	program := l.process.Args[0]
	l.process.Path, l.process.Args = "/bin/sh", []string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$1"`, dir, program}
	sets, messages := cpusOf(t, l, 2)
	for rank, set := range sets {
		if all := usableCPUs(t); !unbound(set, all) {
			t.Errorf("rank %d may run on %s, the launcher on %s", rank, set, all)
		}
	}
	if len(messages) != 1 || !strings.Contains(messages[0], "quota") && Cores() > 1 {
		t.Errorf("said %q, want a word on the quota", messages)
	}
}

// What binding a rank needs is not left changed behind.
func TestBindReleasesTheThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := usableCPUs(t)
	a := &attempt{job: &job{}, binding: Binding{CPUs: []cpu.Set{all[:1]}}}
	release, err := a.bind(0)
	if err != nil {
		t.Fatal(err)
	}
	if got := usableCPUs(t); !slices.Equal(got, all[:1]) {
		t.Errorf("bound to %s, the thread sees %s", all[:1], got)
	}
	release()
	if got := usableCPUs(t); !slices.Equal(got, all) {
		t.Errorf("released, the thread sees %s, not %s", got, all)
	}
}

// A sandbox that refuses must not keep a job from running that can do without.
func TestARefusedBinding(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	missing := Binding{CPUs: []cpu.Set{{1<<16 - 1}}}
	a := &attempt{job: &job{printer: newPrinter(write, write)}, binding: missing}
	release, err := a.bind(0)
	if err != nil {
		t.Fatal(err)
	}
	release()
	said := make([]byte, 200)
	n, _ := read.Read(said)
	if want := "rank 0 is not bound: sched_setaffinity to CPUs 65535"; !strings.Contains(string(said[:n]), want) {
		t.Errorf("said %q, want %q", said[:n], want)
	}
	a.Bind = BindCores
	if _, err := a.bind(0); err == nil || !strings.Contains(err.Error(), "cannot bind rank 0: ") {
		t.Errorf("where binding was asked for: %v", err)
	}
}

func TestParseBind(t *testing.T) {
	for text, want := range map[string]Bind{"auto": BindAuto, "cores": BindCores, "core": BindCores, "none": BindNone} {
		if got, err := ParseBind(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "socket", "Auto"} {
		if got, err := ParseBind(text); err == nil {
			t.Errorf("%q passes as %q", text, got)
		}
	}
}
