// Package dtype names the element types and reduction operators that every
// collective understands, and says in which type a reduction accumulates.
package dtype

import "fmt"

// Type is an element type. The values are part of the C ABI.
type Type uint8

// The element types.
const (
	F32 Type = iota
	F64
	F16  // IEEE 754 binary16
	BF16 // upper half of an IEEE 754 binary32
	I8
	U8
	I32
	I64
)

// Types lists every element type in ABI order.
var Types = []Type{F32, F64, F16, BF16, I8, U8, I32, I64}

var types = [...]struct {
	name string
	size int
}{
	F32:  {"f32", 4},
	F64:  {"f64", 8},
	F16:  {"f16", 2},
	BF16: {"bf16", 2},
	I8:   {"i8", 1},
	U8:   {"u8", 1},
	I32:  {"i32", 4},
	I64:  {"i64", 8},
}

// Valid reports whether t is one of the element types.
func (t Type) Valid() bool { return int(t) < len(types) }

// Float reports whether t is a floating-point type.
func (t Type) Float() bool { return t <= BF16 }

// Size is the size of one element in bytes, 0 for an invalid type.
func (t Type) Size() int {
	if !t.Valid() {
		return 0
	}
	return types[t].size
}

func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("dtype(%d)", uint8(t))
	}
	return types[t].name
}

// Parse turns a name such as "bf16" into its Type.
func Parse(name string) (Type, error) {
	for i, t := range types {
		if t.name == name {
			return Type(i), nil
		}
	}
	return 0, fmt.Errorf("unknown element type %q (one of f32 f64 f16 bf16 i8 u8 i32 i64)", name)
}

// Op is a reduction operator. The values are part of the C ABI.
type Op uint8

// The reduction operators. Integers wrap modulo 2^bits as in C; Avg divides the
// sum by the number of ranks, integers truncating toward zero. Min and Max
// propagate NaN and order -0 before +0, as IEEE 754-2019 minimum and maximum.
const (
	Sum Op = iota
	Avg
	Min
	Max
	Prod
)

// Ops lists every operator in ABI order.
var Ops = []Op{Sum, Avg, Min, Max, Prod}

var ops = [...]string{Sum: "sum", Avg: "avg", Min: "min", Max: "max", Prod: "prod"}

// Valid reports whether o is one of the operators.
func (o Op) Valid() bool { return int(o) < len(ops) }

func (o Op) String() string {
	if !o.Valid() {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return ops[o]
}

// ParseOp turns a name such as "sum" into its Op.
func ParseOp(name string) (Op, error) {
	for i, o := range ops {
		if o == name {
			return Op(i), nil
		}
	}
	return 0, fmt.Errorf("unknown operator %q (one of sum avg min max prod)", name)
}

// Accumulator is the type in which partial results of op over t are held and
// travel: f32 for f16 and bf16, so that rounding happens once at the end, and
// the type itself for the others.
func Accumulator(t Type, op Op) Type {
	if (t == F16 || t == BF16) && op != Min && op != Max {
		return F32
	}
	return t
}
