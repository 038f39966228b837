package communicator

import "fmt"

// Code classifies a failure. The values are part of the C ABI; 0 is success.
// A Code is itself an error, for errors.Is(err, communicator.Timeout).
type Code int32

// The failures.
const (
	Argument Code = 1 + iota // the caller's arguments do not fit
	Timeout                  // a deadline passed
	Dead                     // a rank's process ended
	Mismatch                 // ranks disagree about a call
	Closed                   // the communicator was closed, here or by a peer
	Busy                     // another thread is inside a call
	Forked                   // called in a child of the process that joined
	Memory                   // the machine does not grant the memory
	System                   // the operating system refused something
)

// Codes lists every failure in ABI order.
var Codes = []Code{Argument, Timeout, Dead, Mismatch, Closed, Busy, Forked, Memory, System}

var codes = [...]struct{ name, meaning string }{
	Argument: {"argument", "invalid argument"},
	Timeout:  {"timeout", "deadline passed"},
	Dead:     {"dead", "a rank has died"},
	Mismatch: {"mismatch", "ranks disagree"},
	Closed:   {"closed", "communicator is closed"},
	Busy:     {"busy", "communicator is in use"},
	Forked:   {"forked", "called in a forked child"},
	Memory:   {"memory", "not enough memory"},
	System:   {"system", "system error"},
}

func (c Code) valid() bool { return c >= Argument && c <= System }

// Name is the code's identifier, such as "timeout".
func (c Code) Name() string {
	if !c.valid() {
		return fmt.Sprintf("failure%d", int32(c))
	}
	return codes[c].name
}

func (c Code) Error() string {
	if !c.valid() {
		return c.Name()
	}
	return codes[c].meaning
}

// Error is a failure with its story: what failed, why, and what to do.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string { return e.Text }

// Is makes errors.Is(err, Timeout) and the like work.
func (e *Error) Is(target error) bool { return target == e.Code }

func failf(code Code, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}
