package benchmark

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/sys"
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
		CPU:    "unknown",
		Cores:  sys.Grants{}.Cores(),
		Arch:   runtime.GOARCH,
		Date:   now.UTC().Format(time.DateOnly),
		Memory: "unknown",
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
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
