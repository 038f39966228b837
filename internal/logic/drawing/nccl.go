package drawing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
	"ringlane/internal/model/topology"
)

// errNoAddresses is why NCCL's files cannot be written for a machine that is
// known from a matrix alone.
var errNoAddresses = errors.New("write a file for NCCL: the input has no PCI addresses (add the output of lspci, or run on the machine)")

// devices returns nvidia-smi's number of each GPU in ring order.
func (s *Sheet) devices() ([]int, error) {
	var out []int
	for _, n := range s.Ring.Order {
		if n.Device == nil {
			return nil, errNoAddresses
		}
		out = append(out, n.Index)
	}
	if len(out) == 0 {
		return nil, errors.New("write a file for NCCL: the machine has no GPU")
	}
	return out, nil
}

// placed reports whether the tree above every GPU is known: NCCL believes the
// file more than its own eyes.
func (s *Sheet) placed() error {
	for _, n := range s.Graph.GPUs {
		for at := n; at != nil; at = at.Parent {
			if at.Unplaced {
				return fmt.Errorf("write a file for NCCL: no input shows what is above %s (add the output of `lspci -vvv` or `lspci -tv`, or run on the machine)", n.ID)
			}
		}
	}
	return nil
}

// NCCLTopology writes the tree in the form that NCCL_TOPO_FILE takes. Links
// have the speed that calculations use, so an idle GPU does not look slow.
// What it leaves out (the kind of CPU, NVLink, network ports) NCCL finds for
// itself on the machine.
func (s *Sheet) NCCLTopology(w io.Writer) error {
	if _, err := s.devices(); err != nil {
		return err
	}
	if err := s.placed(); err != nil {
		return err
	}
	x := &xml{}
	x.open("system", "version", "1")
	for _, numa := range s.Graph.Root.Children {
		node := -1 // as the kernel says where it knows none
		if numa.Node != nil {
			node = *numa.Node
		}
		attributes := []string{"numaid", fmt.Sprint(node)}
		if n := s.Graph.Machine.NCCL; n != nil {
			for _, c := range n.CPUs {
				if c.NUMA == node && c.Affinity != "" {
					attributes = append(attributes, "affinity", c.Affinity, "arch", c.Arch, "vendor", c.Vendor)
				}
			}
		}
		x.open("cpu", attributes...)
		for _, c := range numa.Children {
			x.node(c)
		}
		x.close("cpu")
	}
	x.close("system")
	_, err := w.Write(x.out.Bytes())
	return err
}

// NCCLGraph writes the ring in the form that NCCL_GRAPH_FILE takes, for jobs
// on this machine alone. NCCL searches its other patterns itself.
func (s *Sheet) NCCLGraph(w io.Writer) error {
	devices, err := s.devices()
	if err != nil {
		return err
	}
	kind, speed := topology.PIX, s.Ring.GBs
	for i, a := range s.Ring.Order {
		p := s.Graph.Path(a, s.Ring.Order[(i+1)%len(s.Ring.Order)])
		if p.Kind != "" && rank(p.Kind) > rank(kind) {
			kind = p.Kind
		}
	}
	if kind == topology.NODE { // NCCL has no word for it
		kind = topology.PHB
	}
	// NCCL counts what is left after packet headers, in whole steps: 12 for
	// Gen3 x16, 24 for Gen4, 48 for Gen5.
	value := max(1, int(speed*0.7622))
	x := &xml{}
	x.open("graphs", "version", "1")
	x.open("graph", "id", "0", "pattern", "4", "crossnic", "0", "nchannels", "1",
		"speedintra", fmt.Sprint(value), "speedinter", fmt.Sprint(value), "latencyinter", "0",
		"typeintra", string(kind), "typeinter", "PIX", "samechannels", "1")
	x.open("channel")
	for _, d := range devices {
		x.leaf("gpu", "dev", fmt.Sprint(d))
	}
	x.close("channel")
	x.close("graph")
	x.close("graphs")
	_, err = w.Write(x.out.Bytes())
	return err
}

func rank(k topology.PathKind) int {
	return strings.Index("PIX PXB PHB NODE SYS", string(k))
}

// xml writes elements, indented.
type xml struct {
	out   bytes.Buffer
	depth int
}

func (x *xml) tag(name, end string, attributes []string) {
	x.out.WriteString(strings.Repeat("  ", x.depth) + "<" + name)
	for i := 0; i+1 < len(attributes); i += 2 {
		fmt.Fprintf(&x.out, ` %s="%s"`, attributes[i], escape(attributes[i+1]))
	}
	x.out.WriteString(end + "\n")
}

func (x *xml) open(name string, attributes ...string) {
	x.tag(name, ">", attributes)
	x.depth++
}

func (x *xml) leaf(name string, attributes ...string) { x.tag(name, "/>", attributes) }

func (x *xml) close(name string) {
	x.depth--
	x.out.WriteString(strings.Repeat("  ", x.depth) + "</" + name + ">\n")
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace

// node writes a switch and what is below it, or a GPU or NIC. NCCL leaves out
// host bridges and root ports.
func (x *xml) node(n *topology.Node) {
	switch n.Kind {
	case topology.HostBridge, topology.RootPort, topology.Bridge:
		for _, c := range n.Children {
			x.node(c)
		}
	case topology.Switch:
		if !has(n, func(e *topology.Node) bool { return e.Kind == topology.GPU || e.Kind == topology.NIC }) {
			return
		}
		x.open("pci", x.attributes(n, 0x060400)...)
		for _, c := range n.Children {
			x.node(c)
		}
		x.close("pci")
	case topology.GPU, topology.NIC:
		if n.Device != nil {
			class := uint32(0x030200)
			if n.Kind == topology.NIC {
				class = 0x020000
			}
			x.leaf("pci", x.attributes(n, class)...)
		}
	}
}

func (x *xml) attributes(n *topology.Node, class uint32) []string {
	d := n.Device
	if d.Class.Known {
		class = d.Class.Code
	}
	out := []string{"busid", n.ID, "class", fmt.Sprintf("0x%06x", class)}
	for _, id := range []struct {
		name string
		id   machine.ID
	}{{"vendor", d.Vendor}, {"device", d.Model}, {"subsystem_vendor", d.SubsystemVendor}, {"subsystem_device", d.SubsystemModel}} {
		if id.id.Known {
			out = append(out, id.name, fmt.Sprintf("0x%04x", id.id.Code))
		}
	}
	if n.Up != nil && n.Up.Effective.Known() {
		out = append(out, "link_speed", ncclSpeed(n.Up.Effective.Speed), "link_width", fmt.Sprint(n.Up.Effective.Width))
	}
	return out
}

// ncclSpeed is the kernel's form, which NCCL compares letter by letter.
func ncclSpeed(s pcie.Speed) string { return fmt.Sprintf("%.1f GT/s PCIe", s.GTs()) }
