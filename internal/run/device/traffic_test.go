package device

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
	"ringlane/internal/run/communicator"
)

// words are n numbers that depend on where they come from.
func words(n int, from, salt int) []byte {
	b := make([]byte, 8*n)
	for i := range n {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(i+1)*0x9e3779b97f4a7c15^uint64(from)<<32^uint64(salt))
	}
	return b
}

// TestMany makes thousands of calls in a row, without waiting: of all kinds,
// sizes, protocols and shapes of kernels, so that epochs come far and what one
// call leaves in memory is in the way of all others.
func TestMany(t *testing.T) {
	start := seed(t)
	together(t, atMost(t, 3), func(r *rank) error { return r.traffic(start, 40) })
}

// TestWrap makes such calls where the lower half of every epoch and of every
// count of slots wraps to 0.
func TestWrap(t *testing.T) {
	start := seed(t)
	together(t, atMost(t, 3), func(r *rank) error {
		const begin = 1<<32 - 20
		counts := func(n uint64) []byte {
			return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, begin), int(n/8))
		}
		field, _ := reflect.TypeFor[kernels.State]().FieldByName("Epoch")
		first := uint64(field.Offset)
		r.set(r.Comm.memory.state+cuda.Pointer(first), counts(stateBytes-first))
		lines := 2 * r.geometry.LineHalf
		for p := range r.size {
			if p != r.rank {
				r.set(r.Comm.memory.peers[p].inbox+cuda.Pointer(lines), counts(r.geometry.ControlBytes()-lines))
			}
		}
		if err := r.host.Do(&communicator.Call{Collective: schedule.Barrier}); err != nil {
			return err
		}
		return r.traffic(start, 4)
	})
}

// traffic makes rounds of 50 random calls.
func (r *rank) traffic(seed uint64, rounds int) error {
	const batch, most = 50, 700
	n, random := r.size, rand.New(rand.NewPCG(seed, 0))
	in, out := r.alloc(8*most*n), r.alloc(8*most*n*batch)
	r.set(in, words(most*n, r.rank, 0))
	r.devices.Line = 128 // whatever a probe under load says
	want := make([][]byte, batch)
	for range rounds {
		for i := range want {
			call := randomCall(random, n, onGPU)
			call.Type, call.Op, call.Count = dtype.I64, dtype.Sum, random.IntN(most)
			call.In, call.Out = in, out+cuda.Pointer(8*most*n*i)
			r.devices.DeviceOverride = collective.DeviceOverride{
				Algorithm: []string{"oneshot", "direct", ""}[random.IntN(3)],
				Blocks:    1 + random.IntN(4), Threads: 64 << random.IntN(2),
			}
			r.devices.Slots = random.IntN(2) == 0
			r.devices.Lines = !r.devices.Slots
			r.mu.Lock()
			r.forget()
			r.mu.Unlock()
			r.must(r.Enqueue(call, r.stream))
			want[i] = expected(&call, n, r.rank)
		}
		r.must(r.Synchronize(r.stream))
		for i := range want {
			if got := r.get(out+cuda.Pointer(8*most*n*i), len(want[i])); !bytes.Equal(got, want[i]) {
				return fmt.Errorf("call %d of a batch differs", i)
			}
		}
	}
	return nil
}

// expected is what a call on words leaves.
func expected(call *Call, n, rank int) []byte {
	c := call.Count
	input := func(from int) []byte { return words(c*n, from, 0) }
	sum := func(at int) []byte {
		out := make([]byte, 8*c)
		for r := range n {
			in := input(r)[8*at:]
			for i := 0; i < len(out); i += 8 {
				binary.LittleEndian.PutUint64(out[i:], binary.LittleEndian.Uint64(out[i:])+binary.LittleEndian.Uint64(in[i:]))
			}
		}
		return out
	}
	atRoot := rank == call.Root
	var out []byte
	switch call.Collective {
	case schedule.AllReduce:
		out = sum(0)
	case schedule.Reduction:
		if atRoot {
			out = sum(0)
		}
	case schedule.ReduceScatter:
		out = sum(rank * c)
	case schedule.Broadcast:
		out = input(call.Root)[:8*c]
	case schedule.AllGather, schedule.Gather:
		for r := 0; r < n && (atRoot || call.Collective == schedule.AllGather); r++ {
			out = append(out, input(r)[:8*c]...)
		}
	case schedule.Scatter:
		out = input(call.Root)[8*c*rank:][:8*c]
	case schedule.AllToAll:
		for r := range n {
			out = append(out, input(r)[8*c*rank:][:8*c]...)
		}
	}
	return out
}

// TestLengths alternates between lines of 16 bytes and longer ones, with data that
// looks like the flags of exchanges to come.
func TestLengths(t *testing.T) {
	const n, calls, count = 2, 300, 64
	together(t, n, func(r *rank) error {
		r.devices.Line = 128 // whatever a probe under load says
		flags := make([]byte, 8*count)
		in, sum, all := r.alloc(8*count), r.alloc(8*count*calls), r.alloc(8*count*n)
		word := func(i, j int) uint64 {
			if j%2 == 0 {
				return uint64(1000*i + j)
			}
			return uint64(3*i + 3) // the flag of the sum, which comes to the half of the first gather
		}
		for i := range calls {
			for j := range count {
				binary.LittleEndian.PutUint64(flags[8*j:], word(i, j))
			}
			r.must(r.Synchronize(r.stream))
			r.set(in, flags)
			for range 2 {
				r.must(r.Enqueue(Call{Collective: schedule.AllGather, Type: dtype.I64, Count: count, In: in, Out: all}, r.stream))
			}
			r.must(r.Enqueue(Call{Type: dtype.I64, Count: count, In: in, Out: sum + cuda.Pointer(8*count*i)}, r.stream))
		}
		r.must(r.Synchronize(r.stream))
		got := r.get(sum, 8*count*calls)
		for i := range calls {
			for j := range count {
				if got, want := binary.LittleEndian.Uint64(got[8*(count*i+j):]), n*word(i, j); got != want {
					return fmt.Errorf("call %d, element %d: %d, want %d", i, j, got, want)
				}
			}
		}
		return nil
	})
}

// TestUneven sends every rank another number of elements, none to some.
func TestUneven(t *testing.T) {
	n := atMost(t, 4)
	count := func(from, to, salt int) int { return (from*7 + to*3 + salt*11) % 5 * (1 + salt*700) }
	together(t, n, func(r *rank) error {
		for salt := range 3 {
			call := Call{Collective: schedule.AllToAll, Type: dtype.I64}
			var input, want []byte
			for p := range n {
				call.SendCounts = append(call.SendCounts, count(r.rank, p, salt))
				call.RecvCounts = append(call.RecvCounts, count(p, r.rank, salt))
				input = append(input, words(count(r.rank, p, salt), r.rank, p)...)
				want = append(want, words(count(p, r.rank, salt), p, r.rank)...)
			}
			call.In, call.Out = r.alloc(len(input)), r.alloc(len(want))
			r.set(call.In, input)
			r.must(r.Enqueue(call, r.stream))
			r.must(r.Synchronize(r.stream))
			if got := r.get(call.Out, len(want)); !bytes.Equal(got, want) {
				return fmt.Errorf("salt %d differs", salt)
			}
		}
		return nil
	})
}

// TestMessages sends round the ring both ways in one group, with several
// messages for one peer, and one after the other, with collectives in between.
func TestMessages(t *testing.T) {
	n := atMost(t, 3)
	sizes := []int{1, 0, 700, 20000}
	together(t, n, func(r *rank) error {
		next, prev := (r.rank+1)%n, (r.rank+n-1)%n
		var group []Message
		var want [][]byte
		var at []cuda.Pointer
		for i, size := range sizes {
			for _, way := range [][2]int{{next, prev}, {prev, next}} {
				to, from := r.alloc(8*size), r.alloc(8*size)
				r.set(to, words(size, r.rank, i))
				group = append(group,
					Message{Send: true, Peer: way[0], Type: dtype.I64, Count: size, Buffer: to},
					Message{Peer: way[1], Type: dtype.I64, Count: size, Buffer: from})
				at, want = append(at, from), append(want, words(size, way[1], i))
			}
		}
		verify := func(how string) error {
			r.must(r.Synchronize(r.stream))
			for i := range want {
				if got := r.get(at[i], len(want[i])); !bytes.Equal(got, want[i]) {
					return fmt.Errorf("%s: message %d differs", how, i)
				}
				r.set(at[i], make([]byte, len(want[i])))
			}
			return nil
		}
		r.must(r.Exchange(group, r.stream))
		if err := verify("in a group"); err != nil {
			return err
		}
		r.must(r.Enqueue(Call{Collective: schedule.Barrier}, r.stream))
		// Rank 0 takes them one after the other, the others in pairs: grouping
		// need not be the same.
		step := 2
		if r.rank == 0 {
			step = 1
		}
		for i := 0; i < len(group); i += step {
			r.must(r.Exchange(group[i:i+step], r.stream))
		}
		return verify("one after the other")
	})
}

// TestTwo has two communicators of the same ranks at work at once, each on a
// stream of its own.
func TestTwo(t *testing.T) {
	const n, calls = 2, 100
	together(t, n, func(r *rank) error {
		c, err := r.host.Group([]int{0, 1})
		r.must(err)
		defer c.Close()
		d, err := Join(c, r.Device().Ordinal)
		r.must(err)
		other, err := d.Context().NewStream(cuda.High)
		r.must(err)
		defer r.within(other.Destroy)
		p, q := r.alloc(8*300), r.alloc(8*300)
		r.set(p, words(300, 0, 0))
		r.set(q, words(300, 1, 0))
		for range calls {
			r.must(r.Enqueue(Call{Type: dtype.I64, Op: dtype.Max, Count: 300, In: p, Out: p}, r.stream))
			r.must(d.Enqueue(Call{Type: dtype.I64, Op: dtype.Min, Count: 300, In: q, Out: q}, other))
		}
		r.must(r.Synchronize(r.stream))
		r.must(d.Synchronize(other))
		if !bytes.Equal(r.get(p, 2400), words(300, 0, 0)) || !bytes.Equal(r.get(q, 2400), words(300, 1, 0)) {
			return fmt.Errorf("what is the same everywhere changes")
		}
		return d.Close()
	})
}

// TestStreams alternates between streams without any order between them but the
// communicator's: each call takes what the one before it left.
func TestStreams(t *testing.T) {
	const n, calls = 2, 40
	together(t, n, func(r *rank) error {
		var streams []cuda.Stream
		for range 3 {
			s, err := r.Context().NewStream(cuda.Normal)
			r.must(err)
			defer r.within(s.Destroy)
			streams = append(streams, s)
		}
		p := r.alloc(8 * 512)
		r.set(p, bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 512))
		for i := range calls {
			r.must(r.Enqueue(Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: 512, In: p, Out: p}, streams[i%3]))
		}
		for _, s := range streams {
			r.must(r.Synchronize(s))
		}
		if got := binary.LittleEndian.Uint64(r.get(p, 8)); got != 1<<calls {
			return fmt.Errorf("%d sums of ones are %d", calls, got)
		}
		return nil
	})
}
