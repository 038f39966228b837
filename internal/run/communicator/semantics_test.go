package communicator

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ringlane/internal/hardware/channel"
	"ringlane/internal/hardware/reduce"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// Every rank ends with the same bits, and for the 16-bit types they are those
// of one sum in float32 that is rounded once, whatever the algorithm.
func TestIdenticalBits(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const n, count = 4, 5000
	for _, algorithm := range []string{"ring", "tree", "oneshot", "direct"} {
		for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
			for _, op := range []dtype.Op{dtype.Sum, dtype.Avg, dtype.Prod, dtype.Min} {
				outs := make([][]byte, n)
				together(t, n, func(cfg *Config) { cfg.Algorithm, cfg.Staging = algorithm, 2<<20 }, func(c *Comm) error {
					in := noise(typ, seed, c.rank, count)
					out := make([]byte, len(in))
					outs[c.rank] = out
					return c.Do(&Call{Collective: schedule.AllReduce, Type: typ, Op: op, Count: count, In: in, Out: out})
				})
				for r := 1; r < n; r++ {
					if !bytes.Equal(outs[r], outs[0]) {
						t.Fatalf("%s %v %v: rank %d differs from rank 0", algorithm, typ, op, r)
					}
				}
				if (typ == dtype.BF16 || typ == dtype.F16) && algorithm != "ring" && algorithm != "tree" {
					if want := once(typ, op, seed, n, count); !bytes.Equal(outs[0], want) {
						t.Errorf("%s %v %v: not as accumulated in float32 in the order of ranks", algorithm, typ, op)
					}
				}
			}
		}
	}
}

// noise is rank's random data near 1.
func noise(typ dtype.Type, seed uint64, rank, count int) []byte {
	rng := rand.New(rand.NewPCG(seed, uint64(rank)))
	b := make([]byte, count*typ.Size())
	for i := range count {
		v := rng.NormFloat64() + 1
		switch typ {
		case dtype.F32:
			reduce.View[float32](b)[i] = float32(v)
		case dtype.F64:
			reduce.View[float64](b)[i] = v
		case dtype.F16:
			reduce.View[uint16](b)[i] = reduce.F32ToF16(float32(v))
		case dtype.BF16:
			reduce.View[uint16](b)[i] = reduce.F32ToBF16(float32(v))
		}
	}
	return b
}

// once is the reduction of 16-bit data in float32, element by element.
func once(typ dtype.Type, op dtype.Op, seed uint64, n, count int) []byte {
	widen, narrow := reduce.F16ToF32, reduce.F32ToF16
	if typ == dtype.BF16 {
		widen, narrow = reduce.BF16ToF32, reduce.F32ToBF16
	}
	terms := make([][]uint16, n)
	for r := range n {
		terms[r] = reduce.View[uint16](noise(typ, seed, r, count))
	}
	out := make([]byte, count*2)
	for i := range count {
		var acc float32
		for r := range n {
			v := widen(terms[r][i])
			switch {
			case r == 0:
				acc = v
			case op == dtype.Prod:
				acc *= v
			case op == dtype.Min:
				acc = min(acc, v)
			default:
				acc += v
			}
		}
		if op == dtype.Avg {
			acc /= float32(n)
		}
		reduce.View[uint16](out)[i] = narrow(acc)
	}
	return out
}

func TestNaNAndInfinityPassThrough(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	in := [][]float32{{inf, inf, nan, 1, nan}, {1, -inf, 1, nan, 3}}
	for op, want := range map[dtype.Op][]float32{
		dtype.Sum: {inf, nan, nan, nan, nan},
		dtype.Min: {1, -inf, nan, nan, nan},
		dtype.Max: {inf, inf, nan, nan, nan},
	} {
		together(t, 2, nil, func(c *Comm) error {
			out := make([]float32, 5)
			if err := c.Do(&Call{Collective: schedule.AllReduce, Op: op, Count: 5, In: reduce.Bytes(in[c.rank]), Out: reduce.Bytes(out)}); err != nil {
				return err
			}
			for i := range want {
				if out[i] != want[i] && (out[i] == out[i] || want[i] == want[i]) {
					return fmt.Errorf("%v of element %d is %v, want %v", op, i, out[i], want[i])
				}
			}
			return nil
		})
	}
}

func TestInPlace(t *testing.T) {
	const n, count = 3, 1000
	for _, algorithm := range []string{"ring", "tree", "oneshot", "direct"} {
		together(t, n, func(cfg *Config) { cfg.Algorithm = algorithm }, func(c *Comm) error {
			for _, k := range []schedule.Collective{schedule.AllReduce, schedule.ReduceScatter, schedule.AllGather, schedule.Broadcast, schedule.Reduction, schedule.Gather, schedule.Scatter} {
				call := Call{Collective: k, Type: dtype.I32, Count: count}
				in, out := call.lengths(n, c.rank)
				all := make([]int32, max(in, out))
				src, dst := all[:in], all[:out]
				switch k {
				case schedule.AllGather, schedule.Gather:
					if out > in {
						src = all[c.rank*count:][:count]
					}
				case schedule.ReduceScatter, schedule.Scatter:
					if in > out {
						dst = all[c.rank*count:][:count]
					}
				}
				for i := range src {
					src[i] = int32(value(c.rank, i))
				}
				call.In, call.Out = reduce.Bytes(src), reduce.Bytes(dst)
				if err := c.Do(&call); err != nil {
					return err
				}
				for i, want := range expectation(call, n, c.rank) {
					if dst[i] != want {
						return fmt.Errorf("%v in place, %s: element %d is %d, want %d", &call, algorithm, i, dst[i], want)
					}
				}
			}
			return nil
		})
	}
}

func TestUnevenAllToAll(t *testing.T) {
	const n = 4
	amount := func(from, to int) int { return (from*7 + to*13) % 5 * 40000 }
	together(t, n, nil, func(c *Comm) error {
		send, recv := make([]int, n), make([]int, n)
		for p := range n {
			send[p], recv[p] = amount(c.rank, p), amount(p, c.rank)
		}
		in, out := make([]int32, total(send)), make([]int32, total(recv))
		for i := range in {
			in[i] = int32(c.rank*1000000 + i)
		}
		if err := c.Do(&Call{Collective: schedule.AllToAll, Type: dtype.I32, SendCounts: send, RecvCounts: recv, In: reduce.Bytes(in), Out: reduce.Bytes(out)}); err != nil {
			return err
		}
		at := 0
		for p := range n {
			first := 0
			for q := range c.rank {
				first += amount(p, q)
			}
			for i := range recv[p] {
				if want := int32(p*1000000 + first + i); out[at] != want {
					return fmt.Errorf("from rank %d, element %d: %d, want %d", p, i, out[at], want)
				}
				at++
			}
		}
		return nil
	})
}

// Operations of two communicators started in opposite orders must not wait for
// each other.
func TestAsynchronousOrder(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		g, err := c.Group([]int{0, 1})
		if err != nil {
			return err
		}
		defer g.Close()
		const count = 1 << 20
		bufs := [2][]float32{make([]float32, count), make([]float32, count)}
		comms := [2]*Comm{c, g}
		var requests [2]*Request
		for i := range 2 {
			k := i ^ c.rank // rank 1 the other way round
			bufs[k][5] = 1
			b := reduce.Bytes(bufs[k])
			if requests[k], err = comms[k].Start(Call{Collective: schedule.AllReduce, Count: count, In: b, Out: b}); err != nil {
				return err
			}
		}
		for k := range requests {
			if err := requests[k].Wait(0); err != nil {
				return err
			}
			if !requests[k].Done() || bufs[k][5] != 2 {
				return fmt.Errorf("communicator %d: %v", k, bufs[k][5])
			}
		}
		return nil
	})
}

func TestManyRequestsAtOnce(t *testing.T) {
	together(t, 3, nil, func(c *Comm) error {
		const n = 50
		bufs := make([][]int64, n)
		requests := make([]*Request, n)
		for i := range n {
			bufs[i] = []int64{int64(i), int64(c.rank)}
			b := reduce.Bytes(bufs[i])
			var err error
			if requests[i], err = c.Start(Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: 2, In: b, Out: b}); err != nil {
				return err
			}
		}
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i := range n { // from as many goroutines
			wg.Go(func() { errs[i] = requests[i].Wait(0) })
		}
		wg.Wait()
		for i := range n {
			if errs[i] != nil || bufs[i][0] != int64(3*i) || bufs[i][1] != 3 {
				return fmt.Errorf("request %d: %v, %v", i, errs[i], bufs[i])
			}
		}
		return nil
	})
}

func TestWaitWithALimit(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		if c.rank == 1 {
			if _, err := c.Recv(make([]byte, 1), dtype.U8, 0, 0); err != nil {
				return err
			}
			return c.Do(&Call{Collective: schedule.Barrier})
		}
		r, err := c.Start(Call{Collective: schedule.Barrier})
		if err != nil {
			return err
		}
		if err := r.Wait(10 * time.Millisecond); !errors.Is(err, Timeout) {
			return fmt.Errorf("%v, want a timeout", err)
		}
		if err := c.Send([]byte{0}, dtype.U8, 1, 0); err != nil {
			return err
		}
		return r.Wait(0)
	})
}

func TestGroups(t *testing.T) {
	together(t, 4, nil, func(c *Comm) error {
		if _, err := c.Group([]int{c.rank, 9}); !errors.Is(err, Argument) {
			return fmt.Errorf("a rank that does not exist: %v", err)
		}
		if _, err := c.Group([]int{(c.rank + 1) % 4}); !errors.Is(err, Argument) {
			return fmt.Errorf("a group without this rank: %v", err)
		}
		for range 2 { // the same list twice gives two communicators
			list := []int{2, 0}
			if c.rank%2 == 1 {
				list = []int{1, 3}
			}
			g, err := c.Group(list)
			if err != nil {
				return err
			}
			defer g.Close()
			if want := map[int]int{2: 0, 0: 1, 1: 0, 3: 1}[c.rank]; g.Rank() != want || g.Size() != 2 {
				return fmt.Errorf("rank %d of %d in the group", g.Rank(), g.Size())
			}
			if err := allReduceOnes(g, 100); err != nil {
				return err
			}
		}
		return allReduceOnes(c, 100)
	})
}

func TestTwoJobsInOneDirectoryDoNotMeet(t *testing.T) {
	dir := t.TempDir()
	private(t, dir)
	var wg sync.WaitGroup
	for job := range 2 {
		for rank := range 2 {
			wg.Go(func() {
				c, err := Join(Config{Rank: rank, Size: 2, Job: fmt.Sprint("job ", job), Rendezvous: dir})
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				v := []int64{int64(job)}
				if err := c.Do(&Call{Collective: schedule.AllReduce, Type: dtype.I64, Count: 1, In: reduce.Bytes(v), Out: reduce.Bytes(v)}); err != nil || v[0] != int64(2*job) {
					t.Errorf("job %d: %v, %v", job, v, err)
				}
			})
		}
	}
	wg.Wait()
}

func TestJoinRefuses(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  Config
		code Code
		text string
	}{
		"no ranks":      {Config{Size: 0, Job: "x"}, Argument, "at least 1"},
		"too many":      {Config{Size: 65, Job: "x"}, Argument, "at most 64"},
		"rank outside":  {Config{Size: 2, Rank: 2, Job: "x"}, Argument, "outside 0 to 1"},
		"no job":        {Config{Size: 1}, Argument, "RINGLANE_JOB"},
		"little memory": {Config{Size: 8, Rank: 7, Job: "x", Staging: 64 << 10}, Memory, "RINGLANE_STAGING"},
		"algorithm":     {Config{Size: 1, Job: "x", Algorithm: "magic"}, Argument, "ring"},
		"protocol":      {Config{Size: 1, Job: "x", Protocol: "magic"}, Argument, "simple"},
		"open to all":   {Config{Size: 2, Job: "x", Rendezvous: open}, System, "chmod 700"},
		"no directory":  {Config{Size: 2, Job: "x", Rendezvous: "/dev/null"}, System, "not a directory"},
	} {
		_, err := Join(c.cfg)
		if !errors.Is(err, c.code) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.code, c.text)
		}
	}
}

func TestJoinRefusesOtherSetup(t *testing.T) {
	dir, job := t.TempDir(), uniqueJob()
	private(t, dir)
	var wg sync.WaitGroup
	for rank := range 2 {
		wg.Go(func() {
			_, err := Join(Config{Rank: rank, Size: 2, Job: job, Rendezvous: dir, Staging: (rank + 4) << 20, Timeout: 500 * time.Millisecond})
			if want := []Code{Timeout, Mismatch}[rank]; !errors.Is(err, want) {
				t.Errorf("rank %d: %v, want %v", rank, err, want)
			}
		})
	}
	wg.Wait()
}

// A rank 0 that was killed in the middle of joining leaves a socket behind; the
// next job of that name must not stumble over it.
func TestJoinReplacesAStaleSocket(t *testing.T) {
	dir, job := t.TempDir(), uniqueJob()
	private(t, dir)
	m := meetingFor(&Config{Size: 2, Job: job, Rendezvous: dir})
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: dir + "/" + m.socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	var wg sync.WaitGroup
	for rank := range 2 {
		wg.Go(func() {
			c, err := Join(Config{Rank: rank, Size: 2, Job: job, Rendezvous: dir})
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		})
	}
	wg.Wait()
}

func TestLongDirectory(t *testing.T) {
	dir := t.TempDir() + "/" + strings.Repeat("long/", 30)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	together(t, 2, func(cfg *Config) { cfg.Rendezvous = dir }, func(c *Comm) error { return allReduceOnes(c, 3) })
}

// Nothing stays behind: no file, descriptor, mapping or goroutine.
func TestNothingIsLeft(t *testing.T) {
	count := func(dir string) int {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	mappings := func(name string) int {
		text, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), name)
	}
	t.Setenv("TMPDIR", t.TempDir())
	together(t, 2, nil, func(*Comm) error { return nil }) // what the runtime opens once
	fds, arenas := count("/proc/self/fd"), mappings("memfd:ringlane arena")
	together(t, 4, func(cfg *Config) { cfg.Rendezvous = "" }, func(c *Comm) error {
		g, err := c.Group(ranksTo(4))
		if err != nil {
			return err
		}
		defer g.Close()
		r, err := g.Start(Call{Collective: schedule.Barrier})
		if err != nil {
			return err
		}
		if err := allReduceOnes(c, 1000); err != nil {
			return err
		}
		if left := count(os.TempDir()); left > 1 { // t.TempDir makes one
			return fmt.Errorf("%d entries below the temporary directory once all have joined", left)
		}
		return r.Wait(0)
	})
	if now := count("/proc/self/fd"); now != fds {
		t.Errorf("%d descriptors, before %d", now, fds)
	}
	if n := mappings("memfd:ringlane") - arenas; n != 0 {
		t.Errorf("%d windows are still mapped", n)
	}
	goleak.VerifyNone(t)
}

func TestChoiceOfAlgorithmIsTheSameOnAllRanks(t *testing.T) {
	together(t, 3, nil, func(c *Comm) error {
		for _, k := range schedule.Collectives {
			if k == schedule.SendRecv {
				continue
			}
			choice := c.Route(Call{Collective: k, Count: 100})
			if _, err := collective.Find(k, choice.Algorithm); err != nil || choice.Protocol == "" {
				return fmt.Errorf("%v: %v: %v", k, choice, err)
			}
		}
		return nil
	})
}

// Every algorithm holds with the number of slots that channels really have.
func TestProofsHoldWithTheRealSlots(t *testing.T) {
	for _, k := range schedule.Collectives {
		for _, a := range collective.Algorithms(k) {
			for _, n := range []int{1, 2, 3, 8, 13, MaxRanks} {
				claim := schedule.Claim{Programs: a.Programs(n, n-1), Chunks: a.Chunks(n), Goal: collective.Goal(k, n, n-1), Slots: channel.Slots}
				if _, err := claim.Prove(); err != nil {
					t.Errorf("%v %s among %d: %v", k, a.Name, n, err)
				}
			}
		}
	}
}

func TestStagingIsBounded(t *testing.T) {
	for n := 1; n <= MaxRanks; n++ {
		l, err := newLayout(n, DefaultStaging)
		if err != nil || l.bytes > DefaultStaging {
			t.Errorf("%d ranks: %d bytes, %v", n, l.bytes, err)
		}
		l, err = newLayout(n, 4<<20)
		if err == nil && l.bytes > 4<<20 {
			t.Errorf("%d ranks in 4M: %d bytes", n, l.bytes)
		}
	}
}

func TestMemoryLimitIsSaid(t *testing.T) {
	j := &joining{cfg: Config{Size: 3, Staging: DefaultStaging}, layout: layout{bytes: 10 << 20}}
	j.grants = []grant{{"/sys/fs/cgroup/a", 25 << 20}, {"/sys/fs/cgroup/a", 24 << 20}, {"/sys/fs/cgroup/b", 11 << 20}}
	if err := j.budget(); err != nil {
		t.Error(err)
	}
	j.grants[2].Group = "/sys/fs/cgroup/a"
	err := j.budget()
	if !errors.Is(err, Memory) {
		t.Fatalf("%v, want a lack of memory", err)
	}
	for _, part := range []string{"3 × 10.0 MiB", "11.0 MiB", "/sys/fs/cgroup/a", "RINGLANE_STAGING"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in: %v", part, err)
		}
	}
}

// A rank that has cores to itself and one that has not must both be able to
// sleep: this one sleeps in every call.
func TestSleepingRanks(t *testing.T) {
	together(t, 2, nil, func(c *Comm) error {
		c.spins = 1
		for i := range 20 {
			if c.rank == i%2 {
				time.Sleep(12 * time.Millisecond) // longer than the peer polls and yields
			}
			if err := allReduceOnes(c, 10); err != nil {
				return err
			}
		}
		return nil
	})
	if (sys.Grants{}).Cores() < 1 {
		t.Error("no cores")
	}
}

// Ranks that are bound to cores of their own have as many as their sets hold
// together, however few each one sees.
func TestCoresOfBoundRanks(t *testing.T) {
	most := 1 << 20
	if quota, limited := (sys.Grants{}).Quota(); limited {
		most = quota
	}
	for _, c := range []struct {
		cpus []string
		want int
	}{
		{[]string{"0", "1"}, 2}, {[]string{"0-1", "0-1", "0-1"}, 2}, {[]string{"0-3,8", "4-7", "7-9"}, 10}, {[]string{"", "3"}, 1},
	} {
		peers := make([]peer, len(c.cpus))
		for i := range peers {
			peers[i].CPUs = c.cpus[i]
		}
		if got := cores(peers); got != min(c.want, most) {
			t.Errorf("%q: %d cores, want %d", c.cpus, got, c.want)
		}
	}
}
