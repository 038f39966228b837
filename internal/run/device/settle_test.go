package device

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/dtype"
	"ringlane/internal/model/schedule"
)

// two are the settlements of two ranks.
func two() [2]settlement {
	b := board{make([]byte, boardBytes)}
	return [2]settlement{newSettlement(0, b), newSettlement(1, b)}
}

// steps takes ranks through calls in the order that turns say, and returns from which
// one on engines carry calls, 0 for never. captured says which calls are.
func steps(s *[2]settlement, turns []int, captured func(rank, call int) bool) (from [2]int) {
	call := [2]int{}
	for _, rank := range turns {
		call[rank]++
		s[rank].beside++
		if s[rank].open && s[rank].due() {
			from[rank] = call[rank]
		}
		s[rank].passed(captured(rank, call[rank]))
	}
	return from
}

func never(int, int) bool { return false }

// turns has each rank call n times, rank first at most lead calls ahead of the other.
func turns(n, first, lead int) (turns []int) {
	for i := range n + lead {
		if i < n {
			turns = append(turns, first)
		}
		if i >= lead {
			turns = append(turns, 1-first)
		}
	}
	return turns
}

func TestSettle(t *testing.T) {
	soon := settleAfter + leastAhead
	for _, test := range []struct {
		name        string
		first, lead int
		want        int
	}{
		{"together", 0, 0, soon},
		{"rank 1 first", 1, 0, soon},
		{"rank 0 ahead", 0, soon - 2, soon},
		{"rank 1 ahead", 1, leastAhead - 2, soon},
		// The first proposal is too late, the second twice as far ahead.
		{"rank 0 far ahead", 0, soon - 1, soon + settleAfter + 2*leastAhead},
		{"rank 1 far ahead", 1, leastAhead - 1, soon + settleAfter + 2*leastAhead},
	} {
		s := two()
		if from := steps(&s, turns(1000, test.first, test.lead), never); from != [2]int{test.want, test.want} {
			t.Errorf("%s: from calls %v on, want %d", test.name, from, test.want)
		}
	}
}

// TestSettleAny has the ranks run any way ahead of each other: they settle on the same
// number, or on none.
func TestSettleAny(t *testing.T) {
	random := rand.New(rand.NewPCG(seed(t), 0))
	settled := 0
	for range 2000 {
		const calls = 400
		left, order := [2]int{calls, calls}, []int(nil)
		for left != [2]int{} {
			rank := random.IntN(2)
			for range min(1+random.IntN(1<<random.IntN(8)), left[rank]) {
				order = append(order, rank)
				left[rank]--
			}
		}
		s := two()
		every := 1 + random.IntN(1<<random.IntN(10)) // calls of which both capture one
		from := steps(&s, order, func(_, call int) bool { return call%every == 0 })
		if from[0] != from[1] {
			t.Fatalf("rank 0 from call %d on, rank 1 from %d", from[0], from[1])
		}
		if from[0] != 0 {
			settled++
		}
	}
	if settled < 500 {
		t.Errorf("only %d of 2000 settled", settled)
	}
}

// TestSettleCaptured captures calls on one rank or on both: only where both have captured
// as many do numbers mean the same calls.
func TestSettleCaptured(t *testing.T) {
	const soon = settleAfter + leastAhead
	for _, test := range []struct {
		name     string
		captured func(rank, call int) bool
		want     int
	}{
		{"both the first", func(_, call int) bool { return call == 1 }, soon},
		{"both while it is proposed", func(_, call int) bool { return call == settleAfter+1 }, soon + 1},
		{"both one in three", func(_, call int) bool { return call%3 == 0 }, settleAfter + 3*leastAhead/2},
		{"rank 0 the first", func(rank, call int) bool { return rank == 0 && call == 1 }, 0},
		{"rank 1 the first", func(rank, call int) bool { return rank == 1 && call == 1 }, 0},
		{"rank 1 one, then rank 0", func(rank, call int) bool { return rank == 1 && call == 2 || rank == 0 && call == 200 }, 336},
	} {
		s := two()
		if from := steps(&s, turns(1000, 0, 0), test.captured); from != [2]int{test.want, test.want} {
			t.Errorf("%s: from calls %v on, want %d", test.name, from, test.want)
		}
	}
}

// TestSettled has sums that run beside other work go over to copy engines, one rank
// well ahead of the other.
func TestSettled(t *testing.T) {
	const count, calls = 5000, settleAfter + leastAhead + 20
	t.Setenv("RINGLANE_P2P", P2POff)
	together(t, 2, func(r *rank) error {
		if r.engine.layout.Slots == 0 {
			return fmt.Errorf("there is no memory for copy engines")
		}
		r.settlement.least = 4 * count
		side, err := r.Context().NewStream(0)
		r.must(err)
		defer r.within(side.Destroy)
		r.must(r.Beside(side))
		sum := Call{Collective: schedule.AllReduce, Type: dtype.I32, Op: dtype.Sum, Count: count}
		short := sum
		short.Count = count / 2
		for number := 1; number <= calls; number++ {
			if r.rank == 1 && number%10 == 0 {
				time.Sleep(time.Millisecond)
			}
			sum.In, sum.Out = r.alloc(4*count), r.alloc(4*count)
			r.set(sum.In, bytes.Repeat([]byte{byte(number), 0, 0, 0}, count))
			r.must(r.Enqueue(sum, side))
			if got := r.last.choice.Lanes == 1; got != (number >= settleAfter+leastAhead) {
				return fmt.Errorf("call %d by engines: %v", number, got)
			}
			if r.Describe(short).Lanes > 0 {
				return fmt.Errorf("short calls by engines")
			}
			if number%16 == 0 || number == calls {
				r.must(r.Synchronize(side))
				want := bytes.Repeat([]byte{byte(2 * number), 0, 0, 0}, count)
				if got := r.get(sum.Out, 4*count); !bytes.Equal(got, want) {
					return fmt.Errorf("call %d: the sums are wrong", number)
				}
			}
		}
		r.must(r.Override(collective.DeviceOverride{Slots: true}))
		if r.Describe(sum).Lanes > 0 {
			return fmt.Errorf("engines where slots are asked for")
		}
		return nil
	})
}
