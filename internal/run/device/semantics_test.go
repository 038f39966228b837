package device

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// seed is printed by tests that fail, and taken from the environment.
func seed(t testing.TB) uint64 {
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv("RINGLANE_TEST_SEED"); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("RINGLANE_TEST_SEED=%d", s)
	return s
}

// data is n elements of random bits, so that there are NaNs, infinities and
// subnormals among floats; every second call, small numbers.
func data(random *rand.Rand, typ dtype.Type, n int) []byte {
	b := make([]byte, n*typ.Size())
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// random is a call that all ranks make, with the algorithm by which.
func randomCall(random *rand.Rand, n int, kinds []schedule.Collective) Call {
	call := Call{
		Collective: kinds[random.IntN(len(kinds))],
		Type:       dtype.Types[random.IntN(len(dtype.Types))],
		Op:         dtype.Ops[random.IntN(len(dtype.Ops))],
		Root:       random.IntN(n),
	}
	// Sizes of all magnitudes, and those next to where something begins.
	most := 1 << random.IntN(16)
	call.Count = random.IntN(most + 1)
	if random.IntN(4) == 0 {
		call.Count = most / call.Type.Size()
	}
	return call
}

// check makes a call with random inputs on buffers at any alignment and compares
// every bit with what the processor computes, also around the output.
func (r *rank) check(random *rand.Rand, call Call, shared bool) {
	r.t.Helper()
	host := call.onHost()
	in, out, err := r.host.Lengths(&host)
	r.must(err)
	size := call.Type.Size()
	in, out = in*size, out*size
	const fence = 64
	// What ranks draw in common comes first: data and alignment are their own.
	half := random.IntN(2) == 0
	private := rand.New(rand.NewPCG(random.Uint64(), uint64(r.rank)))
	shiftIn, shiftOut := private.IntN(17), private.IntN(17)
	if private.IntN(2) == 0 {
		shiftIn, shiftOut = shiftIn&^7, shiftOut&^7
	}
	input := data(private, call.Type, in/size)
	if half {
		for i := range input {
			input[i] = byte(private.IntN(3))
		}
		// What is absent to rows without flags is data like any other.
		for i := 0; i+8 <= len(input); i += 8 {
			if private.IntN(4) == 0 {
				binary.NativeEndian.PutUint64(input[i:], math.MaxUint64)
			}
		}
	}
	before := data(private, dtype.U8, fence+shiftOut+out+in+fence)

	// Where the input lies in the output, or the output in the input.
	// One place for all calls: to free memory is to wait for the whole GPU, and
	// so for kernels of other ranks on it, which may wait for this one.
	if r.buffer == 0 {
		r.buffer = r.alloc(4 << 20)
	}
	device := r.buffer
	outAt := fence + shiftOut
	call.Out = device + cuda.Pointer(outAt)
	inAt := len(before) + shiftIn
	may, apart := inPlace(&call, r.rank)
	shared = shared && may && in > 0 && out > 0
	if shared {
		inAt = outAt - int(int64(apart))
		if inAt < fence {
			outAt += fence - inAt
			inAt = fence
			call.Out = device + cuda.Pointer(outAt)
		}
	}
	call.In = device + cuda.Pointer(inAt)
	r.set(device, before)
	r.set(call.In, input)

	host.In, host.Out = input, make([]byte, out)
	want := append(bytes.Clone(before), make([]byte, in+64)...)
	copy(want[inAt:], input)
	r.must(r.host.Do(&host))
	copy(want[outAt:], host.Out)

	r.must(r.Enqueue(call, r.stream))
	r.must(r.Synchronize(r.stream))
	got := r.get(device, len(before))
	if !bytes.Equal(got, want[:len(before)]) {
		at := 0
		for got[at] == want[at] {
			at++
		}
		r.t.Errorf("rank %d of %d: %v, %v, in place %v, in at +%d, out at +%d: byte %d of the output is %#x, want %#x",
			r.rank, r.size, &host, r.Describe(call), shared, inAt%16, outAt%16, at-outAt, got[at], want[at])
	}
}

var onGPU = []schedule.Collective{
	schedule.AllReduce, schedule.AllReduce, schedule.AllReduce, schedule.ReduceScatter, schedule.AllGather, schedule.Broadcast,
	schedule.Reduction, schedule.Gather, schedule.Scatter, schedule.AllToAll,
}

// TestBits compares every collective with the processor's, which carries out the
// same schedules: for 1 to 5 ranks, by lines of each length, without flags and by
// slots, with each algorithm.
func TestBits(t *testing.T) {
	start := seed(t)
	for _, algorithm := range []string{"auto", "oneshot:line16:3x64", "direct:line64:5x96", "direct:line128:2x128", "direct:slot:3x128", "direct:slot:2x256", "sentinel:3x64", "ring:2x64"} {
		for n := 1; n <= 5; n++ {
			t.Run(fmt.Sprintf("%s/%d", algorithm, n), func(t *testing.T) {
				t.Setenv("RINGLANE_DEVICE_ALGO", algorithm)
				if strings.HasPrefix(algorithm, collective.Ring) { // it adds in another order
					t.Setenv("RINGLANE_ALGO", collective.Ring)
				}
				together(t, n, func(r *rank) error {
					random := rand.New(rand.NewPCG(start, uint64(n)))
					for range 25 {
						r.check(random, randomCall(random, n, onGPU), random.IntN(3) == 0)
					}
					return nil
				})
			})
		}
	}
}

// TestSentinels has calls without flags take turns with others, and with each other
// in other shapes of kernels: what one leaves in memory is in the way of all others.
func TestSentinels(t *testing.T) {
	start := seed(t)
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			together(t, n, func(r *rank) error {
				random := rand.New(rand.NewPCG(start, uint64(n)))
				for range 150 {
					o := collective.DeviceOverride{Blocks: 1 + random.IntN(4), Threads: 32 << random.IntN(3)}
					switch random.IntN(6) {
					case 0:
						o.Lines = true
					case 1:
						o.Slots = true
					default:
						o.Sentinels = true
						o.Blocks += r.rank // rows are the same whatever blocks move them
					}
					call := randomCall(random, n, []schedule.Collective{schedule.AllReduce, schedule.AllReduce, schedule.ReduceScatter, schedule.Reduction})
					call.Type = dtype.Types[random.IntN(4)] // a float
					call.Count = min(call.Count, 30<<10/call.Type.Size())
					r.devices.DeviceOverride = o
					r.mu.Lock()
					r.forget()
					r.mu.Unlock()
					if got := r.Describe(call).Sentinel; got != o.Sentinels {
						return fmt.Errorf("%v by %v", &call, r.Describe(call))
					}
					r.check(random, call, random.IntN(3) == 0)
				}
				return nil
			})
		})
	}
}

// TestSentinelBlocks has ranks move many rows with as many blocks as they like.
func TestSentinelBlocks(t *testing.T) {
	const count = 3 << 20
	t.Setenv("RINGLANE_DEVICE_WINDOW", "64M")
	together(t, atMost(t, 3), func(r *rank) error {
		buffer := r.alloc(4 * count)
		for call := range 3 {
			r.devices.DeviceOverride = collective.DeviceOverride{Sentinels: true, Blocks: 1, Threads: 64}
			if call%r.size == r.rank {
				r.devices.DeviceOverride.Blocks, r.devices.DeviceOverride.Threads = 8, 256
			}
			r.mu.Lock()
			r.forget()
			r.mu.Unlock()
			r.set(buffer, bytes.Repeat(binary.NativeEndian.AppendUint32(nil, math.Float32bits(float32(r.rank+1))), count))
			r.must(r.Enqueue(Call{Collective: schedule.AllReduce, Type: dtype.F32, Count: count, In: buffer, Out: buffer}, r.stream))
			r.must(r.Synchronize(r.stream))
			sum := binary.NativeEndian.AppendUint32(nil, math.Float32bits(float32(r.size*(r.size+1)/2)))
			if !bytes.Equal(r.get(buffer, 4*count), bytes.Repeat(sum, count)) {
				return fmt.Errorf("call %d: the sums are wrong", call)
			}
		}
		return nil
	})
}

// TestRings has ranks move pieces through the same rings, with as many blocks as they
// like.
func TestRings(t *testing.T) {
	const rings = 12
	start := seed(t)
	t.Setenv("RINGLANE_DEVICE_WINDOW", "4M")
	together(t, atMost(t, 3), func(r *rank) error {
		random := rand.New(rand.NewPCG(start, 0))
		r.devices.Blocks, r.devices.Slots, r.devices.Line = rings, true, 128
		r.must(r.Beside(r.stream))
		kinds := []schedule.Collective{schedule.AllReduce, schedule.ReduceScatter, schedule.AllGather, schedule.AllToAll, schedule.Broadcast}
		for range 40 {
			call := randomCall(random, r.size, kinds)
			call.Count = 1 + random.IntN(120<<10/call.Type.Size()) // up to 30 pieces
			r.few = []int{1, 2, 3, 4, 6, rings}[(random.IntN(6)+r.rank)%6]
			if c := r.Describe(call); c.Protocol() != "slot" {
				return fmt.Errorf("%v by %v", &call, c)
			}
			r.check(random, call, random.IntN(3) == 0)
		}
		return nil
	})
}

// TestPipelined has warps of ranks that meet in host memory move many rows in one pass.
func TestPipelined(t *testing.T) {
	start := seed(t)
	t.Setenv("RINGLANE_P2P", P2POff)
	t.Setenv("RINGLANE_DEVICE_WINDOW", "4M")
	for _, algo := range []string{"direct:line64:2x64", "direct:line16:3x32", "direct:line128:1x96"} {
		t.Setenv("RINGLANE_DEVICE_ALGO", algo)
		together(t, atMost(t, 3), func(r *rank) error {
			random := rand.New(rand.NewPCG(start, 0))
			for range 20 {
				call := randomCall(random, r.size, []schedule.Collective{schedule.AllReduce})
				call.Count = 1 + random.IntN(48<<10/call.Type.Size())
				if c := r.Describe(call); c.Line == 0 || c.Algorithm != "direct" {
					return fmt.Errorf("%v by %v", &call, c)
				}
				r.check(random, call, random.IntN(3) == 0)
			}
			return nil
		})
	}
}

// TestEarly has those kernels launched early that are short and wait themselves, if the
// GPU has the instruction.
func TestEarly(t *testing.T) {
	together(t, 2, func(r *rank) error {
		hopper := r.Device().Capability[0] >= 9
		for _, test := range []struct {
			module, name string
			want         bool
		}{{"fast_f32", "fast_pair_f32", hopper}, {"copy", "copy_line16", hopper}, {"f32", "reduce_slot_f32", false}} {
			f, err := r.gpu.function(test.module, test.name)
			r.must(err)
			if want := test.want && r.gpu.early; f.Early != want {
				return fmt.Errorf("%s early: %v, want %v", test.name, f.Early, want)
			}
		}
		return nil
	})
}

// TestBeside has calls in a stream that shares the GPU take few blocks, where other
// ranks need not take as many.
func TestBeside(t *testing.T) {
	d := &Comm{}
	plan := func(c collective.DeviceChoice) *plan { return &plan{choice: c} }
	rows := plan(collective.DeviceChoice{Algorithm: "direct", Sentinel: true, Blocks: 128})
	if got := d.blocks(rows, 0); got != 128 {
		t.Errorf("%d blocks where nobody has said anything, want 128", got)
	}
	d.beside, d.shares, d.few = 7, true, 32
	for _, test := range []struct {
		choice collective.DeviceChoice
		stream cuda.Stream
		want   uint32
	}{
		{rows.choice, 7, 32},
		{rows.choice, 8, 128},
		{collective.DeviceChoice{Algorithm: "direct", Sentinel: true, Blocks: 20}, 7, 20},
		{collective.DeviceChoice{Algorithm: "direct", Blocks: 128}, 7, 32},
		{collective.DeviceChoice{Algorithm: "direct", Blocks: 128}, 8, 128},
		{collective.DeviceChoice{Algorithm: "direct", Blocks: 48}, 7, 24},
		{collective.DeviceChoice{Algorithm: "direct", Blocks: 20}, 7, 20},
		{collective.DeviceChoice{Algorithm: "direct", Blocks: 37}, 7, 37}, // only one block is a divisor
		{collective.DeviceChoice{Algorithm: "direct", Line: 128, Blocks: 64}, 7, 64},
		{collective.DeviceChoice{Algorithm: "ring", Blocks: 48}, 7, 48},
		{collective.DeviceChoice{Algorithm: "hierarchical", Blocks: 64}, 7, 64},
	} {
		if got := d.blocks(plan(test.choice), test.stream); got != test.want {
			t.Errorf("%v in stream %d: %d blocks, want %d", test.choice, test.stream, got, test.want)
		}
	}
	d.devices.DeviceOverride.Blocks = 128
	if got := d.blocks(rows, 7); got != 128 {
		t.Errorf("%d blocks where the user asks for 128", got)
	}
}
