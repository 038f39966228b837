package reduce

import (
	"encoding/binary"
	"math"
	"math/big"
	"sort"

	"ringlane/internal/model/dtype"
)

// The oracle reduces one element at a time, in big integers or in float64, and
// converts the 16-bit types by looking for the nearest of all their values. It
// shares no code with the kernels.

func oracle(t dtype.Type, op dtype.Op, wide bool, srcs []Source, n, ranks int) []byte {
	full := dtype.Accumulator(t, op)
	out := t
	if wide {
		out = full
	}
	dst := make([]byte, n*out.Size())
	for i := range n {
		switch t {
		case dtype.I8, dtype.U8, dtype.I32, dtype.I64:
			acc := oracleInt(t, srcs[0].Data, i)
			for _, s := range srcs[1:] {
				oracleCombineInt(op, acc, oracleInt(t, s.Data, i))
			}
			// Wrap before dividing.
			oraclePutInt(t, dst, i, acc)
			if op == dtype.Avg && !wide {
				oraclePutInt(t, dst, i, acc.Quo(oracleInt(t, dst, i), big.NewInt(int64(ranks))))
			}
		default:
			var acc float64
			for j, s := range srcs {
				in := t
				if s.Wide {
					in = full
				}
				x := oracleFloat(in, s.Data, i)
				if j > 0 {
					x = oracleCombineFloat(op, acc, x)
				}
				acc = oracleRound(full, x)
			}
			if op == dtype.Avg && !wide {
				acc = oracleRound(full, acc/float64(ranks))
			}
			oraclePutFloat(out, dst, i, acc)
		}
	}
	return dst
}

func oracleInt(t dtype.Type, b []byte, i int) *big.Int {
	switch t {
	case dtype.I8:
		return big.NewInt(int64(int8(b[i])))
	case dtype.U8:
		return big.NewInt(int64(b[i]))
	case dtype.I32:
		return big.NewInt(int64(int32(binary.LittleEndian.Uint32(b[4*i:]))))
	}
	return big.NewInt(int64(binary.LittleEndian.Uint64(b[8*i:])))
}

func oraclePutInt(t dtype.Type, b []byte, i int, v *big.Int) {
	size := t.Size()
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*size))
	u := new(big.Int).Mod(v, modulus).Uint64()
	for k := range size {
		b[i*size+k] = byte(u >> (8 * k))
	}
}

func oracleCombineInt(op dtype.Op, acc, x *big.Int) {
	switch {
	case op == dtype.Sum || op == dtype.Avg:
		acc.Add(acc, x)
	case op == dtype.Prod:
		acc.Mul(acc, x)
	case op == dtype.Min && x.Cmp(acc) < 0, op == dtype.Max && x.Cmp(acc) > 0:
		acc.Set(x)
	}
}

// oracleRound rounds to the type in which a reduction accumulates. Rounding to
// f32 after one operation in float64 equals one operation in f32, because
// float64 has more than twice its digits.
func oracleRound(t dtype.Type, x float64) float64 {
	if t == dtype.F64 {
		return x
	}
	return float64(float32(x))
}

func oracleCombineFloat(op dtype.Op, a, b float64) float64 {
	switch op {
	case dtype.Sum, dtype.Avg:
		return a + b
	case dtype.Prod:
		return a * b
	}
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	less := a < b || a == b && math.Signbit(a) && !math.Signbit(b)
	if less == (op == dtype.Min) {
		return a
	}
	return b
}

func oracleFloat(t dtype.Type, b []byte, i int) float64 {
	switch t {
	case dtype.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	case dtype.F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return oracleHalf(t, binary.LittleEndian.Uint16(b[2*i:]))
}

func oraclePutFloat(t dtype.Type, b []byte, i int, x float64) {
	switch t {
	case dtype.F32:
		u := math.Float32bits(float32(x))
		if math.IsNaN(x) {
			u = 0x7fc00000
		}
		binary.LittleEndian.PutUint32(b[4*i:], u)
	case dtype.F64:
		u := math.Float64bits(x)
		if math.IsNaN(x) {
			u = 0x7ff8000000000000
		}
		binary.LittleEndian.PutUint64(b[8*i:], u)
	default:
		binary.LittleEndian.PutUint16(b[2*i:], oracleNarrow(t, x))
	}
}

// halfShape returns the number of mantissa bits and the exponent bias.
func halfShape(t dtype.Type) (mantissa, bias int) {
	if t == dtype.F16 {
		return 10, 15
	}
	return 7, 127
}

// oracleHalf is the value of a 16-bit pattern by the definition in IEEE 754.
func oracleHalf(t dtype.Type, h uint16) float64 {
	mantissa, bias := halfShape(t)
	m := int(h & (1<<mantissa - 1))
	e := int(h & 0x7fff >> mantissa)
	var x float64
	switch {
	case e == 2*bias+1 && m != 0:
		return math.NaN()
	case e == 2*bias+1:
		x = math.Inf(1)
	case e == 0:
		x = math.Ldexp(float64(m), 1-bias-mantissa)
	default:
		x = math.Ldexp(float64(m|1<<mantissa), e-bias-mantissa)
	}
	if h&0x8000 != 0 {
		x = -x
	}
	return x
}

// oracleNarrow finds the 16-bit pattern nearest to x, the even one of two.
func oracleNarrow(t dtype.Type, x float64) uint16 {
	mantissa, bias := halfShape(t)
	infinity := (2*bias + 1) << mantissa
	// Infinity stands one step above the largest number when rounding.
	value := func(h int) float64 {
		if h == infinity {
			return math.Ldexp(1, bias+1)
		}
		return oracleHalf(t, uint16(h))
	}
	if math.IsNaN(x) {
		return uint16(infinity | 1<<(mantissa-1))
	}
	var sign int
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	h := sort.Search(infinity, func(h int) bool { return value(h) >= x })
	if h > 0 && x < value(h) {
		below, above := x-value(h-1), value(h)-x
		if below < above || below == above && h%2 == 1 {
			h--
		}
	}
	return uint16(sign | h)
}
