package device

import (
	"encoding/binary"
	"encoding/json"

	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// said is what a rank says to all others at a point of the join: a value, or why
// it cannot go on.
type said[T any] struct {
	Code  communicator.Code `json:"code,omitempty"`
	Error string            `json:"error,omitempty"`
	Value T                 `json:"value"`
}

// agree has every rank say something and returns what all have said. If one
// could not go on, none does: all get an error.
func agree[T any](c *communicator.Comm, value T, err error) ([]T, error) {
	mine := said[T]{Value: value}
	if err != nil {
		mine = said[T]{Code: codeOf(err), Error: err.Error()}
	}
	text, e := json.Marshal(mine)
	if e != nil {
		return nil, failf(communicator.System, "join: rank %d: %v", c.Rank(), e)
	}
	texts, e := gather(c, text)
	if err != nil {
		return nil, failf(codeOf(err), "join: rank %d: %v", c.Rank(), err)
	}
	if e != nil {
		return nil, e
	}
	all := make([]T, len(texts))
	for r, text := range texts {
		var s said[T]
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, failf(communicator.System, "join: rank %d: %v (install the same Ringlane for all ranks)", r, err)
		}
		if s.Error != "" {
			return nil, failf(s.Code, "join: %s cannot take part: %s", c.Who(r), s.Error)
		}
		all[r] = s.Value
	}
	return all, nil
}

// gather gives the texts of all ranks.
func gather(c *communicator.Comm, text []byte) ([][]byte, error) {
	share := func(in []byte) ([]byte, error) {
		out := make([]byte, len(in)*c.Size())
		err := c.Do(&communicator.Call{Collective: schedule.AllGather, Type: dtype.U8, Count: len(in), In: in, Out: out})
		return out, err
	}
	sizes, err := share(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
	if err != nil {
		return nil, err
	}
	size := func(r int) int { return int(binary.LittleEndian.Uint64(sizes[8*r:])) }
	most := 0
	for r := range c.Size() {
		most = max(most, size(r))
	}
	out, err := share(append(text, make([]byte, most-len(text))...))
	if err != nil {
		return nil, err
	}
	texts := make([][]byte, c.Size())
	for r := range texts {
		texts[r] = out[r*most:][:size(r)]
	}
	return texts, nil
}
