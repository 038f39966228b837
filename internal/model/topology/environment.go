package topology

import (
	"fmt"
	"strings"

	"ringlane/internal/model/machine"
)

// Environment is the variables that give rank 0 the first GPU of the ring, rank
// 1 the second, and so on, and the library that the GPUs' maker offers for
// collectives. It is nil where GPUs of several makers stand in the ring, which
// no one program runs on, where one does not answer, since the driver then counts
// them otherwise, and for a ring of fewer than two.
func (r Ring) Environment() (variables []string, library string) {
	var numbers []string
	amd := 0
	for _, n := range r.Order {
		numbers = append(numbers, fmt.Sprint(n.Index))
		if n.Device == nil || !n.Device.Vendor.Known {
			continue
		}
		if n.Device.Unreachable() {
			return nil, ""
		}
		switch n.Device.Vendor.Code {
		case machine.VendorNVIDIA:
		case machine.VendorAMD:
			amd++
		default:
			return nil, ""
		}
	}
	list := strings.Join(numbers, ",")
	switch {
	case len(numbers) < 2:
	case amd == 0:
		return []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=" + list}, "NCCL"
	case amd == len(numbers):
		return []string{"HIP_VISIBLE_DEVICES=" + list}, "RCCL"
	}
	return nil, ""
}
