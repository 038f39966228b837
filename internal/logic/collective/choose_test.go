package collective

import (
	"fmt"
	"strings"
	"testing"

	"ringlane/internal/model/schedule"
)

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		c               schedule.Collective
		ranks, bytes    int
		algorithm, prot string
	}{
		{schedule.AllReduce, 2, 8, "oneshot", Simple},
		{schedule.AllReduce, 2, 4 << 10, "oneshot", Simple},
		{schedule.AllReduce, 2, 4<<10 + 1, "direct", Simple},
		{schedule.AllReduce, 3, 4 << 10, "direct", Simple},
		{schedule.AllReduce, 8, 1 << 10, "oneshot", Simple},
		{schedule.AllReduce, 8, 1<<10 + 1, "direct", Simple},
		{schedule.AllReduce, 64, 8, "tree", Simple},
		{schedule.AllReduce, 64, 1 << 30, "direct", Simple},
		{schedule.AllGather, 4, 4 << 10, "direct", Simple},
		{schedule.Barrier, 64, 1, "direct", Simple},
	} {
		algorithm, protocol := Choose(test.c, test.ranks, test.bytes)
		if algorithm != test.algorithm || protocol != test.prot {
			t.Errorf("%v, %d ranks, %d bytes: %s/%s, want %s/%s",
				test.c, test.ranks, test.bytes, algorithm, protocol, test.algorithm, test.prot)
		}
	}
	if algorithm, protocol := (Table{}).Choose(schedule.AllReduce, 2, 8); algorithm+protocol != "" {
		t.Errorf("an empty table chooses %s/%s", algorithm, protocol)
	}
}

// TestChooseExists checks that whatever the table chooses is there.
func TestChooseExists(t *testing.T) {
	for _, c := range schedule.Collectives {
		for ranks := 1; ranks <= schedule.MaxRanks; ranks++ {
			for bytes := 0; bytes <= 1<<20; bytes = 2*bytes + 1 {
				algorithm, protocol := Choose(c, ranks, bytes)
				if _, err := Find(c, algorithm); err != nil {
					t.Error(err)
				}
				if protocol != LL && protocol != Simple {
					t.Errorf("no protocol %q", protocol)
				}
			}
		}
	}
}

func TestFindUnknown(t *testing.T) {
	_, err := Find(schedule.AllReduce, "bogus")
	if err == nil || !strings.Contains(err.Error(), "one of direct oneshot ring tree") {
		t.Error(err)
	}
}

func ExampleTable() {
	fmt.Print(Defaults())
	// Output:
	// collective  ranks<=  bytes<=  algorithm  protocol
	// allreduce         2     4096  oneshot    simple
	// allreduce         4     2048  oneshot    simple
	// allreduce         8     1024  oneshot    simple
	// allreduce        32      256  oneshot    simple
	// allreduce        32      any  direct     simple
	// allreduce       any     8192  tree       simple
	// any             any      any  direct     simple
}
