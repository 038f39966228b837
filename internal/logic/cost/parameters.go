// Package cost prices the schedules of collectives on one machine, and makes
// the tuner's table of the prices, or of measurements in their place.
package cost

// Parameters are what a machine takes for the parts of a call, in nanoseconds
// and nanoseconds a byte. Fit finds them from measured calls.
type Parameters struct {
	Cores int `json:"cores"` // that ranks can run on at the same time

	Call    float64 `json:"call"`    // a call, before its first step and after its last
	Send    float64 `json:"send"`    // putting a message into a slot, its bytes apart
	Receive float64 `json:"receive"` // taking one from a slot, its bytes apart
	Flight  float64 `json:"flight"`  // from a store on one core to a load that sees it on another
	Switch  float64 `json:"switch"`  // handing a core to another rank, where ranks outnumber cores

	Write  float64 `json:"write"`  // a byte into a slot
	Read   float64 `json:"read"`   // a byte out of a slot that another core filled
	Reduce float64 `json:"reduce"` // a byte of a term, beyond reading it
	Copy   float64 `json:"copy"`   // a byte from the input to the output of one rank

	// Words is how many times the bytes of a message cost in ll, which moves twice
	// the lines, word by word.
	Words float64 `json:"words"`
	// Far is how many times a byte costs once the buffers of a rank exceed Cache.
	Far   float64 `json:"far"`
	Cache int     `json:"cache"`
}

// Reference is the machine that the built-in table is for: a 16-core Xeon, by a
// fit to the medians that `ringlane bench allreduce` shows for one-shot and direct
// among 2, 4 and 8 ranks up to 256 KiB (2026-11-30); a test has the figures of the
// better one, which the model meets to 10 % on average. What allreduce does not
// show is assumed: Copy and Far from plain copies within and beyond a core's cache,
// Switch from two threads that yield to each other, Words from an EPYC, where 512
// bytes take 0.56 us by ll and 0.29 by simple.
func Reference() Parameters {
	return Parameters{
		Cores: 16,
		Call:  30, Send: 220, Receive: 136, Flight: 210, Switch: 1500,
		Write: 0.002, Read: 0.037, Reduce: 0.115, Copy: 0.05,
		Words: 8, Far: 2, Cache: 1 << 20,
	}
}

// The layout of a rank's staging memory, as far as it decides on time. A test
// of the communicator compares it with the real one.
const (
	slots      = 4
	staging    = 16 << 20
	maxSegment = 128 << 10
	twoSegment = 256 << 10 // between two ranks
	llSegment  = 8 << 10
)

// Slot is what a slot of a bulk channel holds among ranks, with the default
// staging memory.
func Slot(ranks int) int {
	most := maxSegment
	if ranks == 2 {
		most = twoSegment
	}
	left := staging - ranks*slots*2*llSegment
	return min(most, left/(slots*(1+2*(ranks-1)))/line*line-line)
}
