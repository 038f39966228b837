package diagnose

import (
	"strings"
	"testing"

	"ringlane/internal/model/machine"
)

// TestTexts: what is said of a case is true of that case.
func TestTexts(t *testing.T) {
	for _, c := range []struct {
		name, log string
		code      Code
		says, not string
	}{
		{"the port sends more than the device accepts",
			"[  3.2] pci 0000:06:00.0: Max Payload Size 128, but upstream 0000:00:03.0 set to 256; if necessary, use \"pci=pcie_bus_safe\" and report a bug",
			"mps-mismatch", "The port above sends packets of up to 256 bytes, and the device accepts 128.", "The port refuses"},
		{"the device cannot be set",
			"[  3.2] pci 0000:06:00.0: can't set Max Payload Size to 256; if necessary, use \"pci=pcie_bus_safe\" and report a bug",
			"mps-mismatch", "could not be set", "The port refuses"},
		{"a lone link down",
			"[ 900.0] pcieport 0000:00:03.0: pciehp: Slot(5): Link Down",
			"surprise-down", "no removal was announced", "nobody"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := box()
			logged(m, c.log)
			found := withCode(Run(m, DefaultThresholds), c.code)
			if len(found) != 1 {
				t.Fatalf("%d findings", len(found))
			}
			if text := found[0].Explanation; !strings.Contains(text, c.says) || strings.Contains(text, c.not) {
				t.Error(text)
			}
		})
	}
}

// TestUnnumberedBAR: lspci -v does not number what it shows.
func TestUnnumberedBAR(t *testing.T) {
	m := box()
	at(m, nvme).Resources = []machine.Resource{{Kind: machine.BAR, Index: -1, State: machine.Unassigned}}
	found := withCode(Run(m, DefaultThresholds), "bar-unassigned")
	if len(found) != 1 || found[0].Evidence[0] != nvme+": a memory BAR has no address" {
		t.Errorf("%+v", found)
	}
}

// TestBlindInShort: the explanation names what the input lacks, and no code.
func TestBlindInShort(t *testing.T) {
	m := box()
	m.Inputs[0].Kinds = []machine.Kind{machine.KindLspci}
	runs(m, gen1x16, portA, gpuA)
	found := withCode(Run(m, DefaultThresholds), "not-measured")
	if len(found) != 1 || found[0].Detail() != "Not in the input: the kernel log. Seen at rest only: "+linkA+"." {
		t.Errorf("%+v", found)
	}
}
