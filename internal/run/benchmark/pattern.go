package benchmark

import (
	"encoding/binary"
	"math"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// pattern is test data whose reduction is exact in every element type: small
// integers, chosen so that sums over 64 ranks stay below 2^8, products are
// small, and averages are multiples of one half. The root is rank 0.
type pattern struct {
	collective schedule.Collective
	op         dtype.Op
	ranks      int
}

// input is element i of rank's In.
func (p pattern) input(rank, i int) float64 {
	switch p.op {
	case dtype.Avg:
		return float64((i+rank)%p.ranks + i%3)
	case dtype.Prod:
		if (i+rank)%p.ranks != 0 {
			return 1
		}
		return float64(1 + i%3)
	}
	return float64((i + i/7 + rank*3) % 4)
}

func (p pattern) reduced(i int) float64 {
	acc := p.input(0, i)
	for r := 1; r < p.ranks; r++ {
		switch v := p.input(r, i); p.op {
		case dtype.Sum, dtype.Avg:
			acc += v
		case dtype.Min:
			acc = min(acc, v)
		case dtype.Max:
			acc = max(acc, v)
		case dtype.Prod:
			acc *= v
		}
	}
	if p.op == dtype.Avg {
		acc /= float64(p.ranks)
	}
	return acc
}

// output says what element i of rank's Out must be, for n elements a rank.
func (p pattern) output(rank, n int) func(i int) float64 {
	switch p.collective {
	case schedule.AllReduce, schedule.Reduction:
		return p.reduced
	case schedule.ReduceScatter:
		return func(i int) float64 { return p.reduced(rank*n + i) }
	case schedule.Broadcast:
		return func(i int) float64 { return p.input(0, i) }
	case schedule.AllGather, schedule.Gather:
		return func(i int) float64 { return p.input(i/n, i%n) }
	case schedule.Scatter:
		return func(i int) float64 { return p.input(0, rank*n+i) }
	case schedule.AllToAll:
		return func(i int) float64 { return p.input(i/n, rank*n+i%n) }
	case schedule.SendRecv:
		return func(i int) float64 { return p.input((rank+p.ranks-1)%p.ranks, i) }
	}
	panic("benchmark: " + p.collective.String() + " moves no data")
}

// fill stores value(i), converted to t as C does, in every element of b.
func fill(t dtype.Type, b []byte, value func(i int) float64) {
	size := t.Size()
	for i := range len(b) / size {
		store(t, b[i*size:], value(i))
	}
}

// count is the number of elements of b that are not value(i) to the bit.
func count(t dtype.Type, b []byte, value func(i int) float64) (wrong int64) {
	size := t.Size()
	var want [8]byte
	for i := range len(b) / size {
		store(t, want[:], value(i))
		if string(b[i*size:(i+1)*size]) != string(want[:size]) {
			wrong++
		}
	}
	return wrong
}

func store(t dtype.Type, b []byte, v float64) {
	le := binary.LittleEndian
	switch t {
	case dtype.F32:
		le.PutUint32(b, math.Float32bits(float32(v)))
	case dtype.F64:
		le.PutUint64(b, math.Float64bits(v))
	case dtype.F16:
		le.PutUint16(b, reduce.F32ToF16(float32(v)))
	case dtype.BF16:
		le.PutUint16(b, reduce.F32ToBF16(float32(v)))
	case dtype.I8, dtype.U8:
		b[0] = byte(int64(v))
	case dtype.I32:
		le.PutUint32(b, uint32(int64(v)))
	case dtype.I64:
		le.PutUint64(b, uint64(int64(v)))
	}
}
