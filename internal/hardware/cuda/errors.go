package cuda

import (
	"errors"
	"fmt"
)

// Error is a driver call that failed.
type Error struct {
	Call   string // such as cuMemAlloc
	Status int    // its CUresult
}

// ErrLost is what an error is (see [errors.Is]) after which the GPU's context
// cannot be used any more, by anyone in this process: the program has to be
// started again.
var ErrLost = errors.New("the CUDA context is lost")

// Numbers of CUresult. Callers tell some apart, see [StatusOf].
const (
	statusInvalidValue      = 1
	StatusOutOfMemory       = 2
	statusNotInitialized    = 3
	statusStub              = 34
	statusUnavailable       = 46
	statusNoDevice          = 100
	statusInvalidDevice     = 101
	statusInvalidContext    = 201
	statusNoBinary          = 209
	statusECC               = 214
	StatusPeersUnsupported  = 217
	statusNVLink            = 220
	statusNoCompiler        = 221
	statusNewerPTX          = 222
	statusContained         = 226
	statusOperatingSystem   = 304
	statusNotReady          = 600
	statusIllegalAddress    = 700
	statusOutOfResources    = 701
	statusLaunchTimeout     = 702
	statusPeersEnabled      = 704
	statusContextDestroyed  = 709
	statusAssert            = 710
	statusAlreadyRegistered = 712
	statusNotRegistered     = 713
	statusHardwareStack     = 714
	statusLaunchFailed      = 719
	statusNotPermitted      = 800
	statusSystemNotReady    = 802
	statusDriverMismatch    = 803
	statusCompat            = 804
	statusMPSConnection     = 805
	statusCaptureFirst      = 900
	StatusInvalidated       = 901
	statusCaptureLast       = 908
	statusUnknown           = 999
)

// StatusOf is the CUresult of the driver call that failed, 0 where err is of
// another kind.
func StatusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// Is makes ErrLost of what no context survives.
func (e *Error) Is(target error) bool { return target == ErrLost && e.lost() }

func (e *Error) lost() bool {
	switch e.Status {
	case statusECC, statusNVLink, statusContained, statusIllegalAddress, statusLaunchTimeout, statusContextDestroyed, statusAssert:
		return true
	}
	return statusHardwareStack <= e.Status && e.Status <= statusLaunchFailed
}

func (e *Error) Error() string {
	name, why := text(cuGetErrorName, e.Status), text(cuGetErrorString, e.Status)
	if name == "" {
		name = "CUresult"
	}
	s := fmt.Sprintf("%s: %s (%d)", e.Call, name, e.Status)
	if why != "" {
		s += ": " + why
	}
	if advice := e.advice(); advice != "" {
		s += " (" + advice + ")"
	}
	return s
}

// advice is what to do, where there is something to do.
func (e *Error) advice() string {
	switch e.Call {
	case "cuIpcGetMemHandle":
		if e.Status == statusInvalidValue {
			return "only memory of cudaMalloc or cuMemAlloc has a handle for other processes: not that of expandable_segments or memory pools"
		}
	case "cuIpcOpenMemHandle":
		switch e.Status {
		case statusInvalidContext:
			return "the process that made a handle has no use for it: the pointer is valid there"
		case statusInvalidValue:
			return "is the process that made the handle alive and on this machine? In containers both need --ipc=host, or one IPC and PID namespace"
		case StatusPeersUnsupported:
			return "no kernel on this GPU may reach that memory: stage through host memory"
		}
	case "cuMemHostRegister":
		switch e.Status {
		case StatusOutOfMemory, statusOperatingSystem:
			return "the memory cannot be locked: raise `ulimit -l`, in a container --ulimit memlock=-1"
		}
	}
	if e.lost() {
		return "the CUDA context is lost: start the program again; dmesg has an Xid line for the GPU"
	}
	if statusCaptureFirst <= e.Status && e.Status <= statusCaptureLast {
		return "a CUDA graph is being captured: capture this work too, or do it before"
	}
	return advices[e.Status]
}

var advices = map[int]string{
	StatusOutOfMemory:       "nvidia-smi says who holds the GPU's memory",
	statusNotInitialized:    "a process that was forked after CUDA was used cannot use it: start workers with spawn",
	statusStub:              "this is the library that programs are linked with: take the stubs folder out of LD_LIBRARY_PATH",
	statusUnavailable:       "another process has the GPU for itself: nvidia-smi shows the compute mode",
	statusNoDevice:          "does CUDA_VISIBLE_DEVICES hide it, was the container given it, does nvidia-smi see it?",
	statusInvalidDevice:     "does CUDA_VISIBLE_DEVICES name a GPU that is not there?",
	statusInvalidContext:    "is the GPU's context current on this thread?",
	statusNoBinary:          "the GPU is older than the kernels are made for",
	StatusPeersUnsupported:  "these GPUs cannot reach each other's memory: stage through host memory",
	statusNoCompiler:        "the driver is installed without libnvidia-ptxjitcompiler: install all of it",
	statusNewerPTX:          "the driver is older than the kernels: update it",
	statusOutOfResources:    "ask for fewer threads a block, or less shared memory",
	statusAlreadyRegistered: "one registration of the memory serves the whole process",
	statusNotRegistered:     "it was registered at another address, or not at all",
	statusNotPermitted:      "does the container withhold a system call or a device file?",
	statusSystemNotReady:    "is nvidia-fabricmanager running?",
	statusDriverMismatch:    "the driver's library and kernel module differ: reboot after an update, or give the container the host's library",
	statusCompat:            "a forward-compatibility libcuda is in the way, which is for data-centre GPUs alone: take its folder (cuda-compat) out of LD_LIBRARY_PATH",
	statusMPSConnection:     "is nvidia-cuda-mps-control running, and CUDA_MPS_PIPE_DIRECTORY its folder?",
	statusUnknown:           "dmesg may say why; often nvidia-uvm is not loaded (modprobe nvidia-uvm), its device files are missing in the container, or the machine was suspended",
}
