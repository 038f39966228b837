package probe

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

const topology = `<?xml version="1.0"?>
<!-- made by hand -->
<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="17">
    <pci busid="0000:40:00.0" class="0x060400" vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x100b" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:42:00.0" class="0x030200" vendor="0x10de" device="0x26b9" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="89" rank="0" gdr="1">
          <nvlink target="0000:43:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:43:00.0" class="0x030200" vendor="0x10de" device="0x26b9" link_speed="8 GT/s" link_width="8">
        <gpu dev="1" sm="89" rank="1" gdr="1"/>
      </pci>
      <pci busid="0000:44:00.0" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="" link_width="">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0xab" maxconn="131072" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="ffff0000" arch="x86_64" vendor="AuthenticAMD">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
    </pci>
    <nic><net name="eth0" dev="1" speed="10000"/></nic>
  </cpu>
</system>
`

func TestNCCLXML(t *testing.T) {
	for name, in := range map[string]string{"plain": topology, "crlf": strings.ReplaceAll(topology, "\n", "\r\n"), "after text": "NCCL_TOPO_DUMP_FILE is:\n\n" + topology + "\nend\n"} {
		m := read(in)
		if len(m.Problems) != 0 {
			t.Errorf("%s: %v", name, m.Problems)
		}
		if len(m.GPUs()) != 3 || len(m.NCCL.CPUs) != 2 || len(m.NCCL.Nodes) != 6 || len(m.Devices) != 6 {
			t.Fatalf("%s: %d GPUs, %d nodes", name, len(m.GPUs()), len(m.NCCL.Nodes))
		}
	}
	m := read(topology)
	d := m.Device(pcie.MustParseBDF("0000:43:00.0"))
	if d.Parent == nil || d.Parent.String() != "0000:40:00.0" || *d.NUMA != 0 || *d.NCCLLink != (pcie.Link{Speed: pcie.Gen3, Width: 8}) {
		t.Errorf("GPU %s", asJSON(d))
	}
	if n := m.NCCL.Nodes[1]; n.GPU.NVLinks[0] != (machine.NVLink{Target: "0000:43:00.0", Count: 4, Class: "0x030200"}) || n.CPU != 0 {
		t.Errorf("node %+v", n)
	}
	if nic := m.Device(pcie.MustParseBDF("0000:44:00.0")); !nic.IsRDMA() || !reflect.DeepEqual(nic.Interfaces, []string{"mlx5_0"}) || nic.NCCLLink != nil {
		t.Errorf("NIC %s", asJSON(nic))
	}
	if v := m.Device(pcie.MustParseBDF("ffff:ff:01.0")); !v.Virtual || v.Parent != nil {
		t.Errorf("virtual bridge %+v", v)
	}
	if g := m.Device(pcie.MustParseBDF("0001:00:00.0")); !g.IsGPU() || *g.NUMA != 1 {
		t.Error("a GPU known by class alone is none")
	}
	// Cut anywhere, what came before counts.
	cut := read(topology[:strings.Index(topology, `<pci busid="0000:44`)])
	if len(cut.GPUs()) != 2 || len(cut.Problems) != 1 || cut.Problems[0].Class != machine.Truncated {
		t.Errorf("cut: %d GPUs, %v", len(cut.GPUs()), cut.Problems)
	}
	bad := read(strings.Replace(topology, "0000:40:00.0", "nonsense", 1))
	if len(bad.GPUs()) != 3 || len(bad.Problems) != 1 || bad.Problems[0].Class != machine.Malformed {
		t.Errorf("bad busid: %d GPUs, %v", len(bad.GPUs()), bad.Problems)
	}
}

func TestNCCLLog(t *testing.T) {
	var log strings.Builder
	for r := range 4 {
		fmt.Fprintf(&log, "node7:10%d:11%d [%d] NCCL INFO ncclCommInitRank comm 0x55 rank %d nranks 4 cudaDev %d nvmlDev %d busId %x000 commId 0xc6 - Init START\n", r, r, r, r, r, r, 0x30+r)
		fmt.Fprintf(&log, "node7:10%d:11%d [%d] NCCL INFO Channel 00/0 : %d[%d] -> %d[%d] via SHM/direct/direct\n", r, r, r, r, r, (r+1)%4, (r+1)%4)
		fmt.Fprintf(&log, "[1,%d]<stdout>:node7:10%d:11%d [%d] NCCL INFO Channel 00/02 : 0 1 3 2\n", r, r, r, r)
		fmt.Fprintf(&log, "node7:10%d:11%d [%d] init.cc:100 NCCL WARN Missing \"iommu=pt\" from kernel command line which can lead to system instability or hang!\n", r, r, r)
	}
	log.WriteString("node7:100:110 [0] NCCL INFO NCCL version 2.28.3+cuda13.0\nnode7:100:110 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n")
	m := read(log.String())
	n := m.NCCL
	if len(m.Problems) != 0 || n == nil || n.Version != "2.28.3+cuda13.0" || n.P2PDisabled == "" {
		t.Fatalf("problems %v, NCCL %+v", m.Problems, n)
	}
	if len(n.Ranks) != 4 || n.Ranks[2].BDF.String() != "0000:32:00.0" || n.Ranks[2].Host != "node7" || n.Ranks[2].NVML != 2 || n.Ranks[2].Ranks != 4 {
		t.Errorf("ranks %s", asJSON(n.Ranks))
	}
	if !reflect.DeepEqual(n.Channels, [][]int{{0, 1, 3, 2}}) || len(n.Transports) != 4 || n.Transports[0] != (machine.NCCLTransport{From: 0, To: 1, Via: "SHM/direct/direct"}) {
		t.Errorf("channels %v, transports %v", n.Channels, n.Transports)
	}
	if len(n.Warnings) != 1 || n.Warnings[0].Count != 4 {
		t.Errorf("warnings %v", n.Warnings)
	}
	if len(m.GPUs()) != 4 {
		t.Errorf("%d GPUs", len(m.GPUs()))
	}
	// The addresses of two hosts are not one machine's.
	two := read(log.String() + strings.ReplaceAll(strings.ReplaceAll(log.String(), "node7", "node8"), " rank ", " rank 1"))
	if len(two.GPUs()) != 0 {
		t.Errorf("two hosts: %d GPUs", len(two.GPUs()))
	}
}

func TestNoPassthrough(t *testing.T) {
	m := read("box:7:9 [0] init.cc:1 NCCL WARN Missing \"iommu=pt\" from kernel command line\nbox:7:9 [0] NCCL WARN something else\n")
	if m.NCCL == nil || m.NCCL.NoPassthrough != `Missing "iommu=pt" from kernel command line` {
		t.Errorf("NCCL %s", asJSON(m.NCCL))
	}
	if m = read("box:7:9 [0] NCCL WARN something else\n"); m.NCCL.NoPassthrough != "" {
		t.Errorf("passthrough is missed in %q", m.NCCL.NoPassthrough)
	}
}
