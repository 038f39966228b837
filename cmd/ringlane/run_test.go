package main

import (
	"slices"
	"strings"
	"testing"

	"ringlane/internal/hardware/probe"
	"ringlane/internal/model/topology"
)

// twoGPUs is a machine with a GPU below each of two root ports.
const twoGPUs = `00:01.0 PCI bridge: Root Port A
	Bus: primary=00, secondary=01, subordinate=05
	Capabilities: [40] Express (v2) Root Port (Slot+), IntMsgNum 0
		LnkSta:	Speed 16GT/s, Width x16
01:00.0 3D controller: NVIDIA Corporation AD102GL [L40S] (rev a1)
	Capabilities: [78] Express (v2) Endpoint, IntMsgNum 0
		LnkCap:	Port #0, Speed 16GT/s, Width x16, ASPM not supported
		LnkSta:	Speed 16GT/s, Width x16
00:02.0 PCI bridge: Root Port B
	Bus: primary=00, secondary=06, subordinate=09
	Capabilities: [40] Express (v2) Root Port (Slot+), IntMsgNum 0
		LnkSta:	Speed 16GT/s, Width x16
06:00.0 3D controller: NVIDIA Corporation AD102GL [L40S] (rev a1)
	Capabilities: [78] Express (v2) Endpoint, IntMsgNum 0
		LnkCap:	Port #0, Speed 16GT/s, Width x16, ASPM not supported
		LnkSta:	Speed 16GT/s, Width x16
`

func TestGPUsAreHandedOutInRingOrder(t *testing.T) {
	ring := func() topology.Ring {
		return topology.New(probe.Text("lspci", strings.NewReader(twoGPUs))).Ring(nil)
	}
	got := inRingOrder([]string{"HOME=/home/me"}, ring)
	want := []string{"HOME=/home/me", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0,1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	chosen := []string{"CUDA_VISIBLE_DEVICES=1"}
	if got := inRingOrder(chosen, ring); !slices.Equal(got, chosen) {
		t.Errorf("the user's choice became %q", got)
	}
	dead := func() topology.Ring {
		text := strings.Replace(twoGPUs, "[L40S] (rev a1)", "[L40S] (rev ff) (prog-if ff)\n\t!!! Unknown header type 7f", 1)
		return topology.New(probe.Text("lspci", strings.NewReader(text))).Ring(nil)
	}
	if got := inRingOrder([]string{"A=b"}, dead); !slices.Equal(got, []string{"A=b"}) {
		t.Errorf("with a GPU that does not answer: %q", got)
	}
	none := func() topology.Ring { return topology.Ring{} }
	if got := inRingOrder([]string{"A=b"}, none); !slices.Equal(got, []string{"A=b"}) {
		t.Errorf("without GPUs: %q", got)
	}
}
