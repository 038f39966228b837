package communicator

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

func private(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// value is what rank contributes as element i: small integers, so that every
// reduction is exact in every type.
func value(rank, i int) int { return (rank*7+i*3)%5 + 1 }

// reduced is the reduction of all ranks' element i.
func reduced(op dtype.Op, ranks, i int) int {
	acc := value(0, i)
	for r := 1; r < ranks; r++ {
		switch v := value(r, i); op {
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
	return acc
}

// expectation computes what rank must find in Out.
func expectation(call Call, ranks, rank int) []int32 {
	n := call.Count
	var out []int32
	add := func(v int) { out = append(out, int32(v)) }
	switch call.Collective {
	case schedule.AllReduce, schedule.Reduction:
		for i := range n {
			add(reduced(call.Op, ranks, i))
		}
	case schedule.ReduceScatter:
		for i := range n {
			add(reduced(call.Op, ranks, rank*n+i))
		}
	case schedule.Broadcast:
		for i := range n {
			add(value(call.Root, i))
		}
	case schedule.AllGather, schedule.Gather:
		for r := range ranks {
			for i := range n {
				add(value(r, i))
			}
		}
	case schedule.Scatter:
		for i := range n {
			add(value(call.Root, rank*n+i))
		}
	case schedule.AllToAll:
		for r := range ranks {
			for i := range n {
				add(value(r, rank*n+i))
			}
		}
	}
	if call.Collective.Rooted() && rank != call.Root && (call.Collective == schedule.Reduction || call.Collective == schedule.Gather) {
		return nil
	}
	return out
}

// perform runs call on buffers of its own and checks the result.
func perform(c *Comm, call Call) error {
	in, out := call.lengths(c.size, c.rank)
	src, dst := make([]int32, in), make([]int32, out)
	for i := range src {
		src[i] = int32(value(c.rank, i))
	}
	call.Type, call.In, call.Out = dtype.I32, reduce.Bytes(src), reduce.Bytes(dst)
	if err := c.Do(&call); err != nil {
		return err
	}
	for i, want := range expectation(call, c.size, c.rank) {
		if dst[i] != want {
			return fmt.Errorf("%v of %d ranks: element %d is %d, want %d", &call, c.size, i, dst[i], want)
		}
	}
	return nil
}

func TestEveryCollectiveAlgorithmProtocol(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7, 8} {
		for _, protocol := range []string{collective.LL, collective.Simple} {
			algorithms := map[string]bool{}
			for _, k := range schedule.Collectives {
				for _, a := range collective.Algorithms(k) {
					algorithms[a.Name] = true
				}
			}
			for algorithm := range algorithms {
				t.Run(fmt.Sprintf("%d/%s/%s", n, algorithm, protocol), func(t *testing.T) {
					seed := rand.Uint64()
					t.Logf("seed %d", seed)
					set := func(cfg *Config) { cfg.Algorithm, cfg.Protocol, cfg.Staging = algorithm, protocol, 4<<20 }
					together(t, n, set, func(c *Comm) error {
						rng := rand.New(rand.NewPCG(seed, 0)) // the same on all ranks
						for _, k := range schedule.Collectives {
							if k == schedule.SendRecv {
								continue
							}
							for _, count := range []int{0, 1, n - 1, 31, 1000 + rng.IntN(100), 40000 + rng.IntN(5000)} {
								call := Call{Collective: k, Count: count, Root: rng.IntN(n), Op: dtype.Ops[rng.IntN(len(dtype.Ops))]}
								if call.Op == dtype.Avg {
									call.Op = dtype.Sum
								}
								if err := perform(c, call); err != nil {
									return err
								}
							}
						}
						return nil
					})
				})
			}
		}
	}
}
