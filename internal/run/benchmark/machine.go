package benchmark

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/sys"
	"ringlane/internal/run/tuning"
)

// Machine is where numbers were taken; without it they mean nothing.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"` // that this process may use
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	Date   string `json:"date"`
}

// ThisMachine describes the machine at the given time.
func ThisMachine(now time.Time) Machine {
	m := Machine{
		CPU:    tuning.CPUModel(""),
		Cores:  sys.Grants{}.Cores(),
		Arch:   runtime.GOARCH,
		Date:   now.UTC().Format(time.DateOnly),
		Memory: "unknown",
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = string(bytes.TrimRight(u.Release[:], "\x00"))
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = fmt.Sprintf("%.1f GiB", float64(info.Totalram)*float64(info.Unit)/(1<<30))
	}
	return m
}
