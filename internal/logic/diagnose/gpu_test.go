package diagnose

import (
	"slices"
	"testing"

	"ringlane/internal/model/machine"
)

// TestNameOnlyDrive: the one drive that a log can mean is one lost device.
func TestNameOnlyDrive(t *testing.T) {
	const (
		down = "[ 5.0] nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff\n"
		gone = "[ 5.1] nvme 0000:61:00.0: Unable to change power state from D3cold to D0, device inaccessible\n"
		more = "[ 5.2] nvme 0000:62:00.0: Unable to change power state from D3cold to D0, device inaccessible\n"
	)
	for _, c := range []struct {
		log  string
		want []string
	}{
		{down + gone, []string{"0000:61:00.0"}},
		{down + gone + more, []string{"nvme0", "0000:61:00.0", "0000:62:00.0"}},
		{down, []string{"nvme0"}},
	} {
		m := &machine.Machine{}
		logged(m, c.log)
		var got []string
		for _, f := range withCode(Run(m, DefaultThresholds), "device-lost") {
			got = append(got, f.Component)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("lost %q, want %q of %q", got, c.want, c.log)
		}
	}
}

// TestFaultOfLoggedGPU: the log alone tells that a device is a GPU.
func TestFaultOfLoggedGPU(t *testing.T) {
	const fault = "[ 812.1] DMAR: [DMA Write NO_PASID] Request device [61:00.0] fault addr 0x387fe0000000 [fault reason 0x05] PTE Write access is not set\n"
	for log, want := range map[string]int{
		fault: 0,
		fault + "[ 813.0] NVRM: Xid (PCI:0000:61:00): 31, pid=1, name=python, Ch 00000008\n":                          1,
		"[ 4.0] nvidia 0000:61:00.0: Unable to change power state from D3cold to D0, device inaccessible\n" + fault:   1,
		"[ 4.0] xhci_hcd 0000:61:00.0: Unable to change power state from D3cold to D0, device inaccessible\n" + fault: 0,
		"[ 4.0] nvidia 0000:62:00.0: Unable to change power state from D3cold to D0, device inaccessible\n" + fault:   0,
	} {
		m := &machine.Machine{}
		logged(m, log)
		if got := len(withCode(Run(m, DefaultThresholds), "iommu-page-fault")); got != want {
			t.Errorf("%d findings, want %d of %q", got, want, log)
		}
	}
}
