package reduce

import (
	"math"
	"math/rand/v2"
	"testing"

	"ringlane/internal/model/dtype"
)

var halves = []struct {
	t      dtype.Type
	widen  func(uint16) float32
	narrow func(float32) uint16
	nan    uint16
}{
	{dtype.F16, F16ToF32, F32ToF16, 0x7e00},
	{dtype.BF16, BF16ToF32, F32ToBF16, 0x7fc0},
}

func TestWidenEveryPattern(t *testing.T) {
	for _, h := range halves {
		mantissa, _ := halfShape(h.t)
		for i := range 1 << 16 {
			bits := uint16(i)
			got, want := h.widen(bits), oracleHalf(h.t, bits)
			if math.IsNaN(want) {
				// Sign and payload at the top of the f32, quiet bit set.
				payload := uint32(bits&(1<<mantissa-1)) << (23 - mantissa)
				if b := math.Float32bits(got); b != uint32(bits&0x8000)<<16|0x7fc00000|payload {
					t.Fatalf("%v %#04x: NaN %#08x", h.t, bits, b)
				}
				if back := h.narrow(got); back != h.nan {
					t.Fatalf("%v %#04x: NaN comes back as %#04x, want %#04x", h.t, bits, back, h.nan)
				}
				continue
			}
			if math.Float64bits(float64(got)) != math.Float64bits(want) {
				t.Fatalf("%v %#04x: %g, want %g", h.t, bits, got, want)
			}
			if back := h.narrow(got); back != bits {
				t.Fatalf("%v %#04x: comes back as %#04x", h.t, bits, back)
			}
		}
	}
}

// Every tie between two neighbours, and the f32 on each side of it.
func TestNarrowAtEveryTie(t *testing.T) {
	for _, h := range halves {
		_, bias := halfShape(h.t)
		for i := 0; !math.IsInf(oracleHalf(h.t, uint16(i)), 0); i++ {
			lo, hi := oracleHalf(h.t, uint16(i)), oracleHalf(h.t, uint16(i+1))
			if math.IsInf(hi, 0) {
				hi = math.Ldexp(1, bias+1)
			}
			tie := float32((lo + hi) / 2)
			for _, f := range []float32{tie, math.Nextafter32(tie, 0), math.Nextafter32(tie, float32(math.Inf(1)))} {
				for _, f := range []float32{f, -f} {
					if got, want := h.narrow(f), oracleNarrow(h.t, float64(f)); got != want {
						t.Fatalf("%v of %x: %#04x, want %#04x", h.t, f, got, want)
					}
				}
			}
		}
	}
}

func TestNarrowExtremes(t *testing.T) {
	inf := math.Inf(1)
	for _, h := range halves {
		for _, x := range []float64{0, 0x1p-149, 0x1p-127, 0x1p-25, 0x1.000002p-25, 65519, 65520, 65536, 1e10, math.MaxFloat32, inf} {
			for _, f := range []float32{float32(x), float32(-x), float32(math.Copysign(x, -1))} {
				if got, want := h.narrow(f), oracleNarrow(h.t, float64(f)); got != want {
					t.Errorf("%v of %x: %#04x, want %#04x", h.t, f, got, want)
				}
			}
		}
		for _, bits := range []uint32{0x7f800001, 0x7fbfffff, 0x7fffffff, 0xff800001, 0xffffffff, 0xffc00000} {
			if got := h.narrow(math.Float32frombits(bits)); got != h.nan {
				t.Errorf("%v of NaN %#08x: %#04x, want %#04x", h.t, bits, got, h.nan)
			}
		}
	}
}

func TestNarrowRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, h := range halves {
		for range 100_000 {
			f := math.Float32frombits(rng.Uint32())
			if got, want := h.narrow(f), oracleNarrow(h.t, float64(f)); got != want {
				t.Fatalf("%v of %x: %#04x, want %#04x", h.t, f, got, want)
			}
		}
	}
}
