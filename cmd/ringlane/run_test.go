package main

import (
	"slices"
	"strings"
	"testing"

	"ringlane/internal/hardware/probe"
	"ringlane/internal/model/topology"
)

// twoGPUs is a machine with a GPU at each of two sockets.
const twoGPUs = `00:01.0 PCI bridge: Root Port A
	Bus: primary=00, secondary=01, subordinate=05
	Capabilities: [40] Express (v2) Root Port (Slot+), IntMsgNum 0
		LnkSta:	Speed 16GT/s, Width x16
01:00.0 3D controller: NVIDIA Corporation AD102GL [L40S] (rev a1)
	NUMA node: 1
	Capabilities: [78] Express (v2) Endpoint, IntMsgNum 0
		LnkCap:	Port #0, Speed 16GT/s, Width x16, ASPM not supported
		LnkSta:	Speed 16GT/s, Width x16
80:02.0 PCI bridge: Root Port B
	Bus: primary=80, secondary=81, subordinate=84
	Capabilities: [40] Express (v2) Root Port (Slot+), IntMsgNum 0
		LnkSta:	Speed 16GT/s, Width x16
81:00.0 3D controller: NVIDIA Corporation AD102GL [L40S] (rev a1)
	NUMA node: 0
	Capabilities: [78] Express (v2) Endpoint, IntMsgNum 0
		LnkCap:	Port #0, Speed 16GT/s, Width x16, ASPM not supported
		LnkSta:	Speed 16GT/s, Width x16
`

func TestGPUsAreHandedOutInRingOrder(t *testing.T) {
	ring := func() topology.Ring {
		return topology.New(probe.Text("lspci", strings.NewReader(twoGPUs))).Ring(nil)
	}
	got, near := inRingOrder([]string{"HOME=/home/me"}, ring)
	want := []string{"HOME=/home/me", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0,1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if want := []int{1, 0}; !slices.Equal(near, want) {
		t.Errorf("the GPUs are near nodes %v, want %v", near, want)
	}
	chosen := []string{"CUDA_VISIBLE_DEVICES=1"}
	if got, near := inRingOrder(chosen, ring); !slices.Equal(got, chosen) || near != nil {
		t.Errorf("the user's choice became %q", got)
	}
	dead := func() topology.Ring {
		text := strings.Replace(twoGPUs, "[L40S] (rev a1)", "[L40S] (rev ff) (prog-if ff)\n\t!!! Unknown header type 7f", 1)
		return topology.New(probe.Text("lspci", strings.NewReader(text))).Ring(nil)
	}
	if got, near := inRingOrder([]string{"A=b"}, dead); !slices.Equal(got, []string{"A=b"}) || near != nil {
		t.Errorf("with a GPU that does not answer: %q", got)
	}
	none := func() topology.Ring { return topology.Ring{} }
	if got, near := inRingOrder([]string{"A=b"}, none); !slices.Equal(got, []string{"A=b"}) || near != nil {
		t.Errorf("without GPUs: %q", got)
	}
}
