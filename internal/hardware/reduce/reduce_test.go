package reduce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ringlane/internal/model/dtype"
)

// trial is one call of a kernel.
type trial struct {
	t      dtype.Type
	op     dtype.Op
	n      int // elements
	terms  int
	ranks  int
	wide   bool // dst
	alias  int  // source that is dst as well, -1 for none
	offset bool // buffers start at any address
}

const guard = 64

func (c trial) String() string {
	return fmt.Sprintf("%v %v of %d elements, %d terms, %d ranks, wide %v, alias %d, offset %v",
		c.t, c.op, c.n, c.terms, c.ranks, c.wide, c.alias, c.offset)
}

// run makes the buffers of c from rng, calls the kernel, and compares the
// result, all other sources and the memory around dst with what they must be.
func (c trial) run(t *testing.T, name string, rng *rand.Rand) {
	t.Helper()
	full := dtype.Accumulator(c.t, c.op)
	kind := func(wide bool) dtype.Type {
		if wide {
			return full
		}
		return c.t
	}
	srcs := make([]Source, c.terms)
	before := make([]Source, c.terms)
	for i := range srcs {
		wide := rng.IntN(2) == 0
		if i == c.alias {
			wide = c.wide
		}
		data := c.buffer(rng, c.n*kind(wide).Size())
		data = data[guard : len(data)-guard]
		fill(rng, kind(wide), data)
		srcs[i] = Source{data, wide}
		before[i] = Source{bytes.Clone(data), wide}
	}
	around := c.buffer(rng, c.n*kind(c.wide).Size())
	dst := around[guard : len(around)-guard]
	if c.alias >= 0 {
		copy(dst, srcs[c.alias].Data)
		srcs[c.alias].Data = dst
	}

	// The result goes to one place, or also to another, which may be a source.
	var also []byte
	alsoAround := c.buffer(rng, len(dst))
	second := rng.IntN(c.terms + 2)
	switch {
	case second == c.terms:
		also = alsoAround[guard : len(alsoAround)-guard]
	case second < c.terms && second != c.alias && srcs[second].Wide == c.wide:
		also = srcs[second].Data
	}

	ForImpl(name, c.t, c.op)(dst, also, c.wide, srcs, c.ranks)

	if also != nil && !bytes.Equal(also, dst) {
		t.Fatalf("%s: %v: the second result, at %d, is another", name, c, second)
	}
	size := kind(c.wide).Size()
	want := oracle(c.t, c.op, c.wide, before, c.n, c.ranks)
	for i := range c.n {
		if got, want := dst[i*size:(i+1)*size], want[i*size:(i+1)*size]; !bytes.Equal(got, want) {
			var terms []string
			for _, s := range before {
				size := kind(s.Wide).Size()
				terms = append(terms, fmt.Sprintf("%x", s.Data[i*size:(i+1)*size]))
			}
			t.Fatalf("%s: %v: element %d is %x, want %x, of %s", name, c, i, got, want, strings.Join(terms, " "))
		}
	}
	for i := range guard {
		if around[i] != canary || around[len(around)-1-i] != canary || alsoAround[i] != canary || alsoAround[len(alsoAround)-1-i] != canary {
			t.Fatalf("%s: %v: wrote outside dst", name, c)
		}
	}
	for i := range srcs {
		if i != c.alias && (i != second || also == nil) && !bytes.Equal(srcs[i].Data, before[i].Data) {
			t.Fatalf("%s: %v: changed source %d", name, c, i)
		}
	}
}

const canary = 0xa5

// buffer returns size bytes between two guards, aligned to 8 unless c.offset.
func (c trial) buffer(rng *rand.Rand, size int) []byte {
	start := 0
	if c.offset {
		start = rng.IntN(64)
	}
	b := Bytes(make([]int64, (size+2*guard)/8+9))[start : start+size+2*guard]
	for i := range b {
		b[i] = canary
	}
	return b
}

// fill stores elements of type t: special values, small numbers, and any bits.
func fill(rng *rand.Rand, t dtype.Type, b []byte) {
	for i := range len(b) / t.Size() {
		v, kind := rng.Uint64(), rng.IntN(8)
		switch t {
		case dtype.F32:
			binary.LittleEndian.PutUint32(b[4*i:], uint32(float(v, kind, 8, 23)))
		case dtype.F64:
			binary.LittleEndian.PutUint64(b[8*i:], float(v, kind, 11, 52))
		case dtype.F16:
			binary.LittleEndian.PutUint16(b[2*i:], uint16(float(v, kind, 5, 10)))
		case dtype.BF16:
			binary.LittleEndian.PutUint16(b[2*i:], uint16(float(v, kind, 8, 7)))
		default:
			for k := range t.Size() {
				b[i*t.Size()+k] = byte(v >> (8 * k))
			}
		}
	}
}

// float makes the bits of a float with e exponent and m mantissa bits out of v.
func float(v uint64, kind, e, m int) uint64 {
	sign := v >> 63 << (e + m)
	mantissa := v & (1<<m - 1)
	exponents := uint64(1)<<e - 1
	switch kind {
	case 0: // zero, infinity, NaN of some payload, subnormal
		switch v >> 32 % 4 {
		case 0:
			return sign
		case 1:
			return sign | exponents<<m
		case 2:
			return sign | exponents<<m | mantissa | 1
		}
		return sign | mantissa
	case 1: // any bits
		return v & (1<<(1+e+m) - 1)
	case 2: // half way between two bf16 or two f16, if this is an f32
		if m == 23 {
			mantissa = mantissa&^0xffff | 0x8000
			if v>>40&1 == 0 {
				mantissa |= 0x7000
			}
		}
	}
	// Magnitude in [1/4, 4).
	return sign | (exponents/2-2+v>>32%4)<<m | mantissa
}

// eachKernel runs f for every kernel on this machine; in short mode without the
// Go twins where there are others.
func eachKernel(t *testing.T, f func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand)) {
	list := Implementations()
	for i, im := range list {
		if testing.Short() && i > 0 && i == len(list)-1 {
			continue
		}
		for _, typ := range dtype.Types {
			for _, op := range dtype.Ops {
				if ForImpl(im.Name, typ, op) == nil {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%v", im.Name, typ, op), func(t *testing.T) {
					seed := rand.Uint64()
					t.Logf("seed %d", seed)
					f(t, im.Name, typ, op, rand.New(rand.NewPCG(seed, 0)))
				})
			}
		}
	}
}

func TestEveryLength(t *testing.T) {
	eachKernel(t, func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand) {
		for n := range 301 {
			for range 2 {
				c := trial{t: typ, op: op, n: n, terms: 1 + rng.IntN(9), ranks: 1 + rng.IntN(64),
					wide: rng.IntN(2) == 0, offset: rng.IntN(2) == 0}
				c.alias = rng.IntN(c.terms+1) - 1
				c.run(t, name, rng)
			}
		}
	})
}

func TestEveryTermCountAndAlias(t *testing.T) {
	eachKernel(t, func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand) {
		for _, terms := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 64} {
			for alias := -1; alias < terms; alias++ {
				for _, wide := range []bool{false, true} {
					c := trial{t: typ, op: op, n: 21, terms: terms, ranks: terms, wide: wide, alias: alias}
					c.run(t, name, rng)
				}
			}
		}
	})
}

// Lengths beyond one block of every path.
func TestManyBlocks(t *testing.T) {
	eachKernel(t, func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand) {
		for _, terms := range []int{2, 3, 4, 7} {
			c := trial{t: typ, op: op, n: 4097, terms: terms, ranks: terms, alias: terms - 1}
			c.run(t, name, rng)
			c.offset = true
			c.run(t, name, rng)
		}
	})
}

// Whatever the segments and their alignment, the bits are the same.
func TestSegments(t *testing.T) {
	eachKernel(t, func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand) {
		const n = 3000
		size := typ.Size()
		kernel := ForImpl(name, typ, op)
		for _, terms := range []int{2, 5} {
			whole, cut := make([]byte, n*size), make([]byte, n*size)
			srcs, part := make([]Source, terms), make([]Source, terms)
			for i := range srcs {
				srcs[i].Data = make([]byte, n*size)
				fill(rng, typ, srcs[i].Data)
			}
			kernel(whole, nil, false, srcs, terms)
			for lo := 0; lo < n; {
				hi := min(n, lo+1+rng.IntN(700))
				for i := range srcs {
					part[i].Data = srcs[i].Data[lo*size : hi*size]
				}
				kernel(cut[lo*size:hi*size], nil, false, part, terms)
				lo = hi
			}
			if !bytes.Equal(whole, cut) {
				t.Fatalf("%d terms: segments change the result", terms)
			}
		}
	})
}

// A partial result that travels gives the same bits as one pass.
func TestPartialsChain(t *testing.T) {
	eachKernel(t, func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand) {
		const n, terms = 777, 6
		kernel := ForImpl(name, typ, op)
		full := dtype.Accumulator(typ, op)
		srcs := make([]Source, terms)
		for i := range srcs {
			srcs[i].Data = make([]byte, n*typ.Size())
			fill(rng, typ, srcs[i].Data)
		}
		once, chained := make([]byte, n*typ.Size()), make([]byte, n*typ.Size())
		kernel(once, nil, false, srcs, terms)
		partial := make([]byte, n*full.Size())
		kernel(partial, nil, true, srcs[:2], terms)
		for _, s := range srcs[2 : terms-1] {
			kernel(partial, nil, true, []Source{{partial, true}, s}, terms)
		}
		kernel(chained, nil, false, []Source{{partial, true}, srcs[terms-1]}, terms)
		if !bytes.Equal(once, chained) {
			t.Fatal("a chain of partial results differs from one pass")
		}
	})
}

func TestSpecials(t *testing.T) {
	inf, nan, zero := float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1))
	for _, c := range []struct {
		op    dtype.Op
		terms []float32
		want  uint32
	}{
		{dtype.Min, []float32{0, zero}, 0x80000000},
		{dtype.Min, []float32{zero, 0}, 0x80000000},
		{dtype.Max, []float32{0, zero}, 0},
		{dtype.Max, []float32{zero, 0}, 0},
		{dtype.Min, []float32{nan, -inf}, 0x7fc00000},
		{dtype.Max, []float32{inf, nan, 1}, 0x7fc00000},
		{dtype.Sum, []float32{inf, -inf}, 0x7fc00000},
		{dtype.Sum, []float32{inf, 1, 2}, 0x7f800000},
		{dtype.Sum, []float32{zero, zero}, 0x80000000},
		{dtype.Prod, []float32{inf, 0}, 0x7fc00000},
		{dtype.Sum, []float32{0x1p-149, 0x1p-149}, 2},
		{dtype.Avg, []float32{1e30, 1e38, -1e38}, 0},
	} {
		var srcs []Source
		for _, x := range c.terms {
			srcs = append(srcs, Source{Data: Bytes([]float32{x})})
		}
		dst := make([]float32, 1)
		For(dtype.F32, c.op)(Bytes(dst), nil, false, srcs, len(srcs))
		if got := math.Float32bits(dst[0]); got != c.want {
			t.Errorf("%v of %v: %#08x, want %#08x", c.op, c.terms, got, c.want)
		}
	}
}

func TestAllocatesNothing(t *testing.T) {
	for _, typ := range dtype.Types {
		for _, op := range dtype.Ops {
			for _, terms := range []int{1, 2, 4, 9} {
				for _, offset := range []int{0, 1} {
					buf := Bytes(make([]int64, 1+1000*typ.Size()/8))[offset:][:999*typ.Size()]
					srcs := make([]Source, terms)
					for i := range srcs {
						srcs[i].Data = buf
					}
					kernel := For(typ, op)
					if a := testing.AllocsPerRun(10, func() { kernel(buf, nil, false, srcs, 3) }); a != 0 {
						t.Errorf("%v %v of %d terms at offset %d: %v allocations", typ, op, terms, offset, a)
					}
				}
			}
		}
	}
}

func TestMisuse(t *testing.T) {
	b := Bytes(make([]int64, 2))
	for want, f := range map[string]func(){
		"no sources":          func() { For(dtype.F32, dtype.Sum)(b, nil, false, nil, 1) },
		"pass whole elements": func() { For(dtype.F32, dtype.Sum)(b[:3], nil, false, []Source{{Data: b[:3]}}, 1) },
		"pass equal counts":   func() { For(dtype.F16, dtype.Sum)(b[:4], nil, true, []Source{{Data: b[:4]}}, 1) },
		"also into 4":         func() { For(dtype.F32, dtype.Sum)(b[:8], b[8:12], false, []Source{{Data: b[:8]}}, 1) },
		"avg over 0 ranks":    func() { For(dtype.I8, dtype.Avg)(b, nil, false, []Source{{Data: b}}, 0) },
		"view 7 bytes":        func() { View[int32](b[:7]) },
		"not a multiple of 8": func() { View[float64](b[4:12]) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, want) {
					t.Errorf("panic %q does not say %q", text, want)
				}
			}()
			f()
		}()
	}
	if len(View[int64](b)) != 2 || len(View[int64](b[1:1])) != 0 || len(Bytes[float64](nil)) != 0 {
		t.Error("a view has the wrong length")
	}
}

func TestRegistry(t *testing.T) {
	list := Implementations()
	if last := list[len(list)-1]; last != (Implementation{"go", true}) {
		t.Errorf("the last implementation is %+v, want the Go twin", last)
	}
	for _, typ := range dtype.Types {
		for _, op := range dtype.Ops {
			if For(typ, op) == nil || ForImpl("go", typ, op) == nil {
				t.Errorf("no kernel for %v of %v", op, typ)
			}
		}
	}
	if For(99, dtype.Sum) != nil || For(dtype.F16, 99) != nil || ForImpl("none", dtype.F32, dtype.Sum) != nil {
		t.Error("a kernel for what does not exist")
	}
}

func FuzzKernel(f *testing.F) {
	f.Add(uint64(1), uint8(0), uint8(0), uint16(100), uint8(3), uint8(1), uint8(4))
	f.Add(uint64(2), uint8(2), uint8(1), uint16(515), uint8(9), uint8(8), uint8(3))
	f.Add(uint64(3), uint8(3), uint8(2), uint16(7), uint8(2), uint8(0), uint8(7))
	f.Fuzz(func(t *testing.T, seed uint64, typ, op uint8, n uint16, terms, alias, flags uint8) {
		c := trial{
			t:      dtype.Types[int(typ)%len(dtype.Types)],
			op:     dtype.Ops[int(op)%len(dtype.Ops)],
			n:      int(n % 3000),
			terms:  1 + int(terms)%64,
			wide:   flags&1 != 0,
			offset: flags&2 != 0,
			ranks:  1 + int(flags>>2),
		}
		c.alias = int(alias)%(c.terms+1) - 1
		for _, im := range Implementations() {
			if ForImpl(im.Name, c.t, c.op) != nil {
				c.run(t, im.Name, rand.New(rand.NewPCG(seed, 0)))
			}
		}
	})
}
