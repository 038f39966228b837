package probe

import (
	"encoding/xml"
	"io"
	"strconv"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// ncclXML reads NCCL's topology file (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE) as
// a stream of elements. What was read before an error stays.
func (b *builder) ncclXML(line int, r io.Reader) {
	x := ncclTree{b: b, line: line, cpu: -1}
	dec := xml.NewDecoder(r)
	dec.Strict = false
	dec.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	for {
		t, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			b.problem(line, machine.Truncated, "the topology file ends early: %v", err)
			break
		}
		switch t := t.(type) {
		case xml.StartElement:
			x.start(t)
		case xml.EndElement:
			x.end(t.Name.Local)
		}
	}
}

// ncclTree is the state of the element stream.
type ncclTree struct {
	b    *builder
	line int
	cpu  int   // index of the open cpu element, -1 outside
	open []int // indices of the open pci elements in NCCL.Nodes
}

type attributes []xml.Attr

func (a attributes) get(name string) string {
	for i := range a {
		if a[i].Name.Local == name {
			return a[i].Value
		}
	}
	return ""
}

func (a attributes) number(name string, missing int) int {
	if v, err := strconv.Atoi(a.get(name)); err == nil {
		return v
	}
	return missing
}

func (x *ncclTree) nccl() *machine.NCCL { return made(&x.b.m.NCCL) }

func (x *ncclTree) start(e xml.StartElement) {
	a := attributes(e.Attr)
	switch e.Name.Local {
	case "system":
		x.b.saw(machine.KindNCCLXML)
	case "cpu":
		n := x.nccl()
		x.cpu = len(n.CPUs)
		n.CPUs = append(n.CPUs, machine.NCCLCPU{
			NUMA: a.number("numaid", -1), HostHash: a.get("host_hash"), Affinity: a.get("affinity"),
			Arch: a.get("arch"), Vendor: a.get("vendor"),
		})
	case "pci":
		x.pci(a)
	case "gpu":
		if n := x.node(); n != nil {
			n.GPU = &machine.NCCLGPU{Dev: a.number("dev", -1), Rank: a.number("rank", -1), SM: a.get("sm"), GDR: a.get("gdr") == "1"}
			d := x.b.device(n.BDF, machine.KindNCCLXML)
			made(&d.GPU)
			if a.get("gcn") != "" && !d.Vendor.Known { // RCCL: the GPU is AMD's
				x.b.setVendor(d, x.line, machine.VendorAMD, fromXML)
			}
		}
	case "nvlink", "xgmi":
		if n := x.node(); n != nil && n.GPU != nil {
			n.GPU.NVLinks = append(n.GPU.NVLinks, machine.NVLink{
				Target: a.get("target"), Count: a.number("count", 0), Class: a.get("tclass"), XGMI: e.Name.Local == "xgmi",
			})
		}
	case "net":
		if n := x.node(); n != nil {
			n.Nets = append(n.Nets, machine.NCCLNet{
				Name: a.get("name"), Speed: a.number("speed", 0), GUID: a.get("guid"), GDR: a.get("gdr") == "1",
			})
			if d := x.b.device(n.BDF, machine.KindNCCLXML); a.get("name") != "" {
				addName(&d.Interfaces, a.get("name"))
			}
		}
	}
}

// maxNames bounds the interfaces of one device.
const maxNames = 256

func addName(list *[]string, name string) {
	for _, have := range *list {
		if have == name {
			return
		}
	}
	if len(*list) < maxNames {
		*list = append(*list, name)
	}
}

// node is the innermost pci element.
func (x *ncclTree) node() *machine.NCCLNode {
	if len(x.open) == 0 || x.open[len(x.open)-1] < 0 {
		return nil
	}
	return &x.nccl().Nodes[x.open[len(x.open)-1]]
}

func (x *ncclTree) pci(a attributes) {
	at, err := pcie.ParseBDF(a.get("busid"))
	if err != nil {
		x.b.problem(x.line, machine.Malformed, "a pci element has no usable busid: %v", err)
		x.open = append(x.open, -1)
		return
	}
	n := machine.NCCLNode{BDF: at, CPU: x.cpu, Virtual: at.Domain == 0xffff && at.Bus == 0xff}
	for i := len(x.open) - 1; i >= 0 && n.Parent == nil; i-- {
		if x.open[i] >= 0 {
			parent := x.nccl().Nodes[x.open[i]].BDF
			n.Parent = &parent
		}
	}
	d := x.b.device(at, machine.KindNCCLXML)
	d.Virtual = d.Virtual || n.Virtual
	if n.Parent == nil || *n.Parent != at {
		x.b.setParent(d, x.line, n.Parent, fromXML)
	}
	x.identity(d, a)
	if x.cpu >= 0 && x.nccl().CPUs[x.cpu].NUMA >= 0 {
		x.b.setNUMA(d, x.line, x.nccl().CPUs[x.cpu].NUMA, fromXML)
	}
	link := pcie.Link{Speed: speed(a.get("link_speed"))}
	if w := a.number("link_width", 0); w > 0 && w <= 32 {
		link.Width = uint8(w)
	}
	if link != (pcie.Link{}) {
		d.NCCLLink = &link
	}
	x.open = append(x.open, len(x.nccl().Nodes))
	x.b.m.NCCL.Nodes = append(x.b.m.NCCL.Nodes, n)
}

func (x *ncclTree) identity(d *machine.Device, a attributes) {
	code := func(name string) (uint64, bool) {
		v, err := strconv.ParseUint(strings.TrimPrefix(a.get(name), "0x"), 16, 32)
		return v, err == nil && v != 0
	}
	if v, ok := code("class"); ok && v <= 0xffffff {
		x.b.setClass(d, x.line, uint32(v), fromXML)
	}
	if v, ok := code("vendor"); ok {
		x.b.setVendor(d, x.line, uint16(v), fromXML)
	}
	if v, ok := code("device"); ok {
		x.b.setModel(d, x.line, uint16(v), fromXML)
	}
	if v, ok := code("subsystem_vendor"); ok && !d.SubsystemVendor.Known {
		d.SubsystemVendor = machine.ID{Code: uint16(v), Known: true, Name: pcie.VendorName(uint16(v))}
	}
	if v, ok := code("subsystem_device"); ok && !d.SubsystemModel.Known {
		d.SubsystemModel = machine.ID{Code: uint16(v), Known: true}
	}
}

func (x *ncclTree) end(name string) {
	switch {
	case name == "cpu":
		x.cpu = -1
	case name == "pci" && len(x.open) > 0:
		x.open = x.open[:len(x.open)-1]
	}
}
