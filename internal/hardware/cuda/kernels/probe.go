package kernels

// The Go twins of probe.cuh.

// ProbeFlag is how many bytes lie between two flags of a share.
const ProbeFlag = 128

// Who does what in a step of probe_check.
const (
	FirstPushes = 1 << iota
	SecondPushes
	FirstVerifies
	SecondVerifies
)

// Way is the memory that two ranks share.
type Way struct {
	Outbox, Inbox   uint64
	SeedOut, SeedIn uint64
	First, Skip     uint32 // booleans
}

// Probe is the parameter of the kernels probe_*.
type Probe struct {
	Results  uint64
	Deadline uint64 // nanoseconds
	Budget   uint64 // nanoseconds
	Area     uint64
	Count    uint32
	Blocks   uint32
	Step     uint32
	Turns    uint32
	Passes   uint32
	_        uint32
	Ways     [MaxPeers]Way
}

// Seen is what one warp of a probe saw.
type Seen struct {
	Done, Late                 uint32
	PushedWrong, PulledWrong   uint64
	WrongAt, WrongIs, WrongWas uint64
	Lines                      uint64
	Torn64, Torn128            uint64
	Pings, Nanoseconds         uint64
}
