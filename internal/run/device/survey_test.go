package device

import (
	"os"
	"slices"
	"testing"
	"time"

	"ringlane/internal/logic/collective"
	"ringlane/internal/model/topology/topologytest"
)

// steady takes all paths for those that limits were measured on.
func steady(paths []Path) []Path {
	return paced(paths, func(int, int) float64 { return 1 })
}

// paced gives paths a part of the speed of those that limits were measured on.
func paced(paths []Path, part func(from, to int) float64) []Path {
	paths = slices.Clone(paths)
	for i := range paths {
		p := &paths[i]
		p.Push, p.Pull, p.Latency = 348, 348, 810*time.Nanosecond
		if p.Kind == Host {
			p.Push, p.Pull, p.Latency = 45, 45, 1300*time.Nanosecond
		}
		p.Push *= part(p.From, p.To)
	}
	return paths
}

// measuredAs has ranks that join in the test find paths as fast as that.
func measuredAs(t *testing.T, part func(from, to int) float64) {
	t.Helper()
	measurements = func(paths []Path) []Path { return paced(paths, part) }
	t.Cleanup(func() { measurements = steady })
}

// TestSurvey has ranks that are measured as two islands, and a ring that is fast
// one way only, find that.
func TestSurvey(t *testing.T) {
	for _, test := range []struct {
		name, asked string
		part        func(from, to int) float64
		islands     collective.Islands
		order       []int
	}{
		{"flat", "", func(int, int) float64 { return 1 }, nil, nil},
		{"islands", "", func(from, to int) float64 {
			if from%3 == 0 == (to%3 == 0) { // 0 and 3 may share a GPU
				return 1
			}
			return 0.4
		}, collective.Islands{0, 1, 1, 0}, []int{0, 3, 1, 2}},
		{"one way", "", func(from, to int) float64 {
			if (to+1)%4 == from {
				return 1
			}
			return 0.4
		}, nil, []int{0, 3, 2, 1}},
		{"off", "off", func(from, to int) float64 {
			if from/2 == to/2 {
				return 1
			}
			return 0.4
		}, nil, nil},
		{"named", "1,3/0,2", func(int, int) float64 { return 1 }, collective.Islands{0, 1, 0, 1}, []int{0, 2, 1, 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			measuredAs(t, test.part)
			t.Setenv("RINGLANE_DEVICE_ISLANDS", test.asked)
			together(t, 4, func(r *rank) error {
				v := &r.devices
				if !slices.Equal(v.Islands, test.islands) || !slices.Equal(v.Order, test.order) {
					t.Errorf("rank %d: islands %v, order %v, want %v, %v", r.rank, v.Islands, v.Order, test.islands, test.order)
				}
				if r.rank == 0 && test.name == "islands" && v.Inside.Rate <= 2*v.Pace.Rate {
					t.Errorf("%+v inside islands, %+v between them", v.Inside, v.Pace)
				}
				return nil
			})
		})
	}
}

// TestIslandsOfTree finds the islands of ranks whose GPUs are in the tree of a
// machine, and none where one of them is not.
func TestIslandsOfTree(t *testing.T) {
	text, err := os.ReadFile("../../model/topology/testdata/two-sockets-eight-gpus.machine")
	if err != nil {
		t.Fatal(err)
	}
	m, err := topologytest.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		gpus []string
		want []int
	}{
		{[]string{"0000:03:00.0", "0000:43:00.0", "0000:04:00.0", "0000:44:00.0"}, []int{0, 1, 0, 1}},
		{[]string{"0000:03:00.0", "0000:04:00.0", "0000:43:00.0", "0000:10:00.0"}, nil},
		{[]string{"0000:03:00.0", "0000:04:00.0", "0000:43:00.0", "?"}, nil},
	} {
		var members []member
		for _, address := range test.gpus {
			members = append(members, member{Address: address})
		}
		if got := islandsIn(m, members); !slices.Equal(got, test.want) {
			t.Errorf("%v: islands %v, want %v", test.gpus, got, test.want)
		}
	}
}

// TestPace is of the slowest path between GPUs that counts, and of none where one
// was not measured.
func TestPace(t *testing.T) {
	paths := []Path{
		{From: 0, To: 0}, {From: 0, To: 1, Kind: Same},
		{From: 0, To: 2, Kind: Peer, Push: 24, Latency: 1500},
		{From: 2, To: 0, Kind: Peer, Push: 11, Latency: 1300},
	}
	all := func(*Path) bool { return true }
	if got, want := paceOf(paths, all), (collective.Pace{Rate: 11, Latency: 1.5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	paths[2].Latency = 0
	if got := paceOf(paths, all); got != (collective.Pace{}) {
		t.Errorf("a path that was not measured: %+v", got)
	}
	if got, want := paceOf(paths, func(p *Path) bool { return p.From == 2 }), (collective.Pace{Rate: 11, Latency: 1.3}); got != want {
		t.Errorf("of some: %+v, want %+v", got, want)
	}
}
