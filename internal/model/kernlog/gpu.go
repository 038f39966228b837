package kernlog

import "strings"

// Xid is one error that NVIDIA's driver reports; Entry.Device is the card, ""
// in forms that lack it. Switch says that it is an SXid, of an NVSwitch.
type Xid struct {
	Number  int
	PID     int // 0 where not printed
	Process string
	Text    string
	Switch  bool
	// Action is the recovery that Xid 154 asks for, as printed: "Drain and
	// Reset", "GPU Reset Required", "Node Reboot Required", "None".
	Action string
}

// GPULost says that a GPU does not answer. AtProbe is the form of a driver
// that could not even start, which a BAR without an address causes too
// (GPUBarInvalid of the same device): then nothing fell off the bus.
type GPULost struct {
	AtProbe bool
}

// GPUInitFailed is "RmInitAdapter failed! (0x26:0xffff:1239)".
type GPUInitFailed struct {
	Code string
}

// GPUBarInvalid says that firmware or kernel gave a BAR of the GPU no address.
type GPUBarInvalid struct {
	BAR int // -1 where not printed
}

// GPUReset says that amdgpu began to reset its GPU.
type GPUReset struct{}

// GPUIdentity is what names a GPU beyond its address, which may change from
// boot to boot: one of UUID and Serial, and "" for the other.
type GPUIdentity struct {
	UUID, Serial string
}

// DriverLoaded is a GPU driver and its version.
type DriverLoaded struct {
	Name, Version string
	Open          bool // NVIDIA's open kernel modules
}

func (Xid) event()           {}
func (GPULost) event()       {}
func (GPUInitFailed) event() {}
func (GPUBarInvalid) event() {}
func (GPUReset) event()      {}
func (GPUIdentity) event()   {}
func (DriverLoaded) event()  {}

// nvrm reads the lines of NVIDIA's kernel driver.
func (l *line) nvrm() Event {
	text, ok := strings.CutPrefix(l.message, "NVRM: ")
	if !ok {
		return nil
	}
	l.driver = "NVRM"
	text = trimPrefix(text, "nvidia-nvlink: ")
	switch {
	case strings.HasPrefix(text, "Xid"):
		return l.xid(text[len("Xid"):])
	case strings.HasPrefix(text, "GPU at "):
		rest := trimPrefix(text, "GPU at ")
		if l.device, rest = cutAddress(rest); l.device == "" {
			return nil
		}
		uuid, _ := word(strings.TrimLeft(trimPrefix(rest, ":"), " "))
		return GPUIdentity{UUID: uuid}
	case strings.HasPrefix(text, "GPU Board Serial Number:"):
		serial, _ := word(trimSpace(trimPrefix(text, "GPU Board Serial Number:")))
		if serial == "" {
			return nil
		}
		return GPUIdentity{Serial: serial}
	case strings.HasPrefix(text, "This PCI I/O region assigned to your NVIDIA device is invalid"):
		return GPUBarInvalid{BAR: -1}
	case strings.HasPrefix(text, "BAR"):
		n, rest, ok := cutDecimal(text[len("BAR"):])
		if !ok || !strings.HasPrefix(rest, " is 0M @ 0x0") {
			return nil
		}
		l.device = addressAfter(rest, "(")
		return GPUBarInvalid{BAR: int(n)}
	case strings.HasPrefix(text, "loading NVIDIA UNIX "):
		e := DriverLoaded{Name: "nvidia", Open: strings.Contains(text, "Open Kernel Module")}
		rest, _ := after(text, "Kernel Module")
		for field := range strings.FieldsSeq(rest) {
			if isDigit(field[0]) {
				e.Version = field
				break
			}
		}
		if e.Version == "" {
			return nil
		}
		return e
	}
	if rest, ok := strings.CutPrefix(text, "GPU "); ok {
		if l.device, rest = cutAddress(rest); l.device == "" {
			return nil
		}
		text = strings.TrimLeft(trimPrefix(rest, ":"), " ")
	}
	switch {
	case strings.Contains(text, "has fallen off the bus"):
		return GPULost{}
	case strings.HasPrefix(text, "RmInitAdapter failed!"):
		code, _, _ := strings.Cut(trimPrefix(trimSpace(text[len("RmInitAdapter failed!"):]), "("), ")")
		return GPUInitFailed{Code: code}
	case strings.HasPrefix(text, "GPU serial number is "):
		serial, _ := word(text[len("GPU serial number is "):])
		return GPUIdentity{Serial: strings.TrimRight(serial, ".")}
	}
	return nil
}

// xid reads " (PCI:0000:05:00): 79, pid=1234, name=python, TEXT", " (0000:03:00):
// 14, TEXT" and ": 154, TEXT".
func (l *line) xid(text string) Event {
	rest, ok := strings.CutPrefix(text, " (")
	if ok {
		l.device, rest = cutAddress(rest)
		if _, rest, ok = strings.Cut(rest, ")"); !ok {
			return nil
		}
	} else {
		rest = text
	}
	number, rest, ok := cutDecimal(strings.TrimLeft(trimPrefix(rest, ":"), " "))
	if !ok || number > 1<<16 {
		return nil
	}
	e := Xid{Number: int(number)}
	rest = strings.TrimLeft(trimPrefix(rest, ","), " ")
	if pid, ok := strings.CutPrefix(rest, "pid="); ok {
		pid, rest, _ = strings.Cut(pid, ",")
		e.PID, _ = cutInt(strings.Trim(pid, "'\""))
		rest = strings.TrimLeft(rest, " ")
	}
	if name, ok := strings.CutPrefix(rest, "name="); ok {
		e.Process, rest, _ = strings.Cut(name, ",")
		rest = strings.TrimLeft(rest, " ")
	}
	e.Text = rest
	if action, found := after(rest, "recovery action changed from "); found {
		_, action, _ = strings.Cut(action, " to ")
		_, action, _ = strings.Cut(action, "(")
		e.Action, _, _ = strings.Cut(action, ")")
	}
	return e
}

// nvswitch reads "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, TEXT".
func (l *line) nvswitch() Event {
	rest, ok := strings.CutPrefix(l.message, "nvidia-nvswitch")
	if !ok {
		return nil
	}
	_, rest, ok = strings.Cut(rest, ": SXid")
	if !ok {
		return nil
	}
	l.driver = "nvidia-nvswitch"
	if e, ok := l.xid(rest).(Xid); ok {
		e.Switch = true
		return e
	}
	return nil
}

// amdgpu reads the lines of AMD's kernel driver that say that a GPU is gone.
func (l *line) amdgpu() Event {
	if l.driver != "amdgpu" {
		return nil
	}
	switch text := trimPrefix(trimPrefix(l.text, "amdgpu: "), "[drm] "); {
	case strings.HasPrefix(text, "GPU reset begin"):
		return GPUReset{}
	case strings.HasPrefix(text, "device lost from bus"):
		return GPULost{}
	}
	return nil
}

// probeFailure is NVIDIA's form over three lines: "The NVIDIA GPU BDF", "(PCI
// ID: 10de:2204)", "installed in this system has fallen off the bus and is not
// responding to commands."
type probeFailure struct {
	entry    Entry
	deadline int
}

const probeLines = 4

// probeLine takes the lines of that form, and the address of a BAR failure
// from the line after it.
func (s *Scanner) probeLine(l *line) bool {
	text, ok := strings.CutPrefix(l.message, "NVRM: ")
	if !ok {
		return false
	}
	if rest, begins := strings.CutPrefix(text, "The NVIDIA GPU "); begins {
		device, _ := cutAddress(rest)
		if device == "" {
			return false
		}
		l.device, l.driver = device, "NVRM"
		s.probe = &probeFailure{l.entry(GPULost{AtProbe: true}), l.number + probeLines}
		if strings.Contains(text, "has fallen off the bus") {
			s.emit(s.probe.entry)
			s.probe = nil
		}
		return true
	}
	if s.probe == nil || l.number > s.probe.deadline {
		s.probe = nil
		return false
	}
	switch {
	case strings.Contains(text, "fallen off the bus"):
		s.probe.entry.add(l)
		s.emit(s.probe.entry)
		s.probe = nil
	case strings.Contains(text, "installed in this system"), strings.HasPrefix(text, "(PCI ID:"):
		s.probe.entry.add(l)
	default:
		return false
	}
	return true
}
