package reduce

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"ringlane/internal/model/dtype"
)

// sameAsGo calls the kernel called name and its Go twin, and compares what they
// make of n elements.
func sameAsGo(t *testing.T, name string, typ dtype.Type, op dtype.Op, wide bool, srcs []Source, n, ranks int) {
	t.Helper()
	size := typ.Size()
	if wide {
		size = dtype.Accumulator(typ, op).Size()
	}
	got, want := make([]byte, n*size), make([]byte, n*size)
	ForImpl(name, typ, op)(got, nil, wide, srcs, ranks)
	ForImpl("go", typ, op)(want, nil, wide, srcs, ranks)
	for i := 0; i < len(got); i += size {
		if got, want := got[i:i+size], want[i:i+size]; !bytes.Equal(got, want) {
			var terms [][]byte
			for _, s := range srcs {
				size := len(s.Data) / n
				terms = append(terms, s.Data[i/len(got)*size:][:size])
			}
			t.Fatalf("%s: %v %v, wide %v, over %d ranks: element %d is %x, the Go twin has %x, of %x",
				name, op, typ, wide, ranks, i/size, got, want, terms)
		}
	}
}

// Every value of a 16-bit type, alone and beside values that are special.
func TestEveryHalf(t *testing.T) {
	eachKernel(t, func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand) {
		if typ != dtype.F16 && typ != dtype.BF16 || name == "go" {
			return
		}
		const n = 1 << 16
		every, other := make([]uint16, n), make([]uint16, n)
		for i := range every {
			every[i] = uint16(i)
		}
		one, nearTwo := uint16(0x3c00), uint16(0x4001)
		if typ == dtype.BF16 {
			one, nearTwo = 0x3f80, 0x4001
		}
		sameAsGo(t, name, typ, op, false, []Source{{Data: Bytes(every)}}, n, 3)
		sameAsGo(t, name, typ, op, true, []Source{{Data: Bytes(every)}}, n, 3)
		// Zero, subnormal, normal, infinity, NaN; the values of the one type are values
		// of some kind in the other.
		for _, x := range []uint16{0x8000, 0x0001, 0x8080, one, nearTwo, 0x7c00, 0xff80, 0x7f81} {
			for i := range other {
				other[i] = x
			}
			sameAsGo(t, name, typ, op, false, []Source{{Data: Bytes(every)}, {Data: Bytes(other)}}, n, 3)
		}
	})
}

// Wide elements at each value of a 16-bit type, half way to the next, and beside
// both.
func TestEveryTie(t *testing.T) {
	eachKernel(t, func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand) {
		if typ != dtype.F16 && typ != dtype.BF16 || dtype.Accumulator(typ, op) != dtype.F32 || name == "go" {
			return
		}
		beyond := math.Float32bits(65520) // half way from the largest f16 to infinity
		ties := []uint32{beyond - 1, beyond, beyond + 1, 1<<31 | beyond, 1<<31 | (beyond - 1)}
		for i := range 1 << 16 {
			lower, upper := BF16ToF32(uint16(i)), BF16ToF32(uint16(i+1))
			if typ == dtype.F16 {
				lower, upper = F16ToF32(uint16(i)), F16ToF32(uint16(i+1))
			}
			between := math.Float32bits(float32((float64(lower) + float64(upper)) / 2))
			b := math.Float32bits(lower)
			ties = append(ties, b, b+1, between-1, between, between+1)
		}
		data := make([]byte, 4*len(ties))
		for i, b := range ties {
			binary.LittleEndian.PutUint32(data[4*i:], b)
		}
		sameAsGo(t, name, typ, op, false, []Source{{Data: data, Wide: true}}, len(ties), 1)
	})
}

// Dividends beside every multiple of the divisor that a byte holds, and beside
// random ones of larger types.
func TestEveryQuotient(t *testing.T) {
	eachKernel(t, func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand) {
		if op != dtype.Avg || name == "go" {
			return
		}
		divisors := []int{511, 512, 513, 1023, 65535, 65536, 65537, 1<<24 - 1, 1 << 24, 1<<24 + 1,
			math.MaxInt32, math.MaxInt32 + 1, 1 << 40, 3 << 40, math.MaxInt64}
		for d := 1; d <= 300; d++ {
			divisors = append(divisors, d)
		}
		const n = 1000
		data := make([]byte, n*typ.Size())
		for _, d := range divisors {
			fill(rng, typ, data)
			for i := range n {
				// A multiple of d or its neighbour, if it fits.
				beside := rng.Int64N(1<<31)/int64(d)*int64(d) + rng.Int64N(3) - 1
				if typ == dtype.I64 && i%2 == 0 {
					beside = rng.Int64()/int64(d)*int64(d) + rng.Int64N(3) - 1
				}
				if i%3 == 0 {
					beside = -beside
				}
				switch typ {
				case dtype.I8, dtype.U8:
					data[i] = byte(i)
				case dtype.I32:
					binary.LittleEndian.PutUint32(data[4*i:], uint32(beside))
				case dtype.I64:
					binary.LittleEndian.PutUint64(data[8*i:], uint64(beside))
				}
			}
			sameAsGo(t, name, typ, op, false, []Source{{Data: data}}, n, d)
		}
	})
}

// More elements than a routine is called for at a time.
func TestManyTurns(t *testing.T) {
	eachKernel(t, func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand) {
		if name == "go" {
			return
		}
		n := 2*turn/typ.Size() + 5
		srcs := make([]Source, 3)
		for i := range srcs {
			srcs[i].Data = make([]byte, n*typ.Size())
			fill(rng, typ, srcs[i].Data)
		}
		sameAsGo(t, name, typ, op, false, srcs, n, 3)
		sameAsGo(t, name, typ, op, true, srcs, n, 3)
	})
}

// fenced returns memory whose first and last byte lie beside pages that nothing
// may touch.
func fenced(t *testing.T) []byte {
	page := unix.Getpagesize()
	all, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(all) })
	for _, fence := range [][]byte{all[:page], all[2*page:]} {
		if err := unix.Mprotect(fence, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return all[page : 2*page]
}

// No kernel reads or writes outside its buffers, whatever their length.
func TestFences(t *testing.T) {
	const terms = 3
	var pages [terms + 2][]byte
	for i := range pages {
		pages[i] = fenced(t)
	}
	eachKernel(t, func(t *testing.T, name string, typ dtype.Type, op dtype.Op, rng *rand.Rand) {
		debug.SetPanicOnFault(true) // for this goroutine, which ends with the test
		sizes := map[bool]int{false: typ.Size(), true: dtype.Accumulator(typ, op).Size()}
		kernel := ForImpl(name, typ, op)
		for n := range 301 {
			for _, wide := range []bool{false, true} {
				for _, atEnd := range []bool{false, true} {
					place := func(page []byte, wide bool) []byte {
						if atEnd {
							return page[len(page)-n*sizes[wide]:]
						}
						return page[:n*sizes[wide]]
					}
					var srcs []Source
					for i := range terms {
						w := wide != (i == 1)
						srcs = append(srcs, Source{place(pages[i], w), w})
						fill(rng, map[bool]dtype.Type{false: typ, true: dtype.Accumulator(typ, op)}[w], srcs[i].Data)
					}
					dst, also := place(pages[terms], wide), []byte(nil)
					if n%4 > 0 {
						also = place(pages[terms+1], wide)
					}
					func() {
						defer func() {
							if fault := recover(); fault != nil {
								t.Fatalf("%s: %v %v of %d elements, wide %v, at the end %v: %v", name, op, typ, n, wide, atEnd, fault)
							}
						}()
						kernel(dst, also, wide, srcs, terms)
					}()
				}
			}
		}
	})
}

// Select prefers what it is asked for and falls through to what follows.
func TestSelect(t *testing.T) {
	for _, im := range Implementations() {
		if _, err := Select(im.Name); (err == nil) != im.Available {
			t.Errorf("select %s, available %v: %v", im.Name, im.Available, err)
		}
		if !im.Available {
			continue
		}
		lookup, _ := Select(im.Name)
		for _, typ := range dtype.Types {
			for _, op := range dtype.Ops {
				if lookup(typ, op) == nil {
					t.Errorf("%s selected: no kernel for %v of %v", im.Name, op, typ)
				}
			}
		}
	}
	for _, name := range []string{"", "auto"} {
		if lookup, err := Select(name); err != nil || lookup(dtype.F32, dtype.Sum) == nil || lookup(99, dtype.Sum) != nil {
			t.Errorf("select %q: %v", name, err)
		}
	}
	if _, err := Select("sse"); err == nil {
		t.Error("selected what does not exist")
	}
}
