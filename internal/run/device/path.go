package device

import (
	"fmt"
	"slices"
	"time"

	"ringlane/internal/hardware/cuda"
)

// Kind is how a rank's GPU reaches the memory of another's.
type Kind uint8

const (
	// Host is through memory of the processor that both GPUs use.
	Host Kind = iota
	// Peer is straight into the memory of the other GPU.
	Peer
	// Same is within one GPU.
	Same
)

var kinds = [...]string{Host: "host", Peer: "peer", Same: "same"}

func (k Kind) String() string {
	if int(k) >= len(kinds) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kinds[k]
}

// MarshalText writes the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the kind's name.
func (k *Kind) UnmarshalText(text []byte) error {
	i := slices.Index(kinds[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is no kind of path", text)
	}
	*k = Kind(i)
	return nil
}

// Path is the way from one rank to another. Two ranks have the same kind both
// ways.
type Path struct {
	From int    `json:"from"`
	To   int    `json:"to"`
	Kind Kind   `json:"kind"`
	Why  string `json:"why,omitempty"` // it is no better kind
	// What was measured, 0 where nothing was: gigabytes a second that From
	// writes to To and reads from there, and how long a flag takes.
	Push    float64       `json:"push_gbs,omitempty"`
	Pull    float64       `json:"pull_gbs,omitempty"`
	Latency time.Duration `json:"latency_ns,omitempty"`
}

// Candidate is memory that this rank shares with a peer and has not tried yet:
// nobody uses it. Both ranks try it at once.
type Candidate struct {
	Rank   int
	Kind   Kind
	Outbox cuda.Pointer // the peer's memory, which this rank writes
	Inbox  cuda.Pointer // this rank's memory, which the peer writes
	Bytes  uint64
}

// Verdict is what came of trying a candidate.
type Verdict struct {
	Veto       string // why it must not be used, empty where it may
	Push, Pull float64
	Latency    time.Duration
	Line       int // bytes that were seen to arrive together; 0 where that was not tried
}

// Prober tries candidates. All ranks call it at once, each with its own list,
// which may be empty. An error is for what no verdict can say.
type Prober func(d *Comm, candidates []Candidate) ([]Verdict, error)

var probe Prober = tryAll
