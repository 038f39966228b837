// Package topologytest reads machines from short descriptions, for tests.
//
// A description is a tree by indentation, one device a line:
//
//	A sentence about what is odd here. Lines before the first that begins
//	with "machine" are prose.
//
//	machine host=box product="Two sockets"
//	numa 0 socket=0 cpus=0-31
//	  root 0000:00:01.1 32x16
//	    up 0000:01:00.0 32x16 vendor=1000
//	      down 0000:02:00.0 32x16 acs=redirect
//	        gpu 0000:06:00.0 2.5x16/32x16 name="RTX A6000"
//
// A link is negotiated/most, of this end; one value stands for both. What
// other keys mean is told at the code that reads them.
package topologytest

import (
	"fmt"
	"strconv"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// Parse reads a description.
func Parse(text string) (*machine.Machine, error) {
	_, body, ok := strings.Cut("\n"+text, "\nmachine")
	if !ok {
		return nil, fmt.Errorf("read description: it has no line that begins with machine")
	}
	p := &parser{m: &machine.Machine{Version: machine.Version}}
	for i, line := range strings.Split("machine"+body, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if err := p.line(len(line)-len(trimmed), fields(trimmed)); err != nil {
			return nil, fmt.Errorf("read description, line %d of the machine: %w", i+1, err)
		}
	}
	return p.m, nil
}

// fields splits at blanks that are not between quotes.
func fields(s string) []string {
	quoted := false
	words := strings.FieldsFunc(s, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, `"`, "")
	}
	return words
}

// parser keeps the devices that the next line may hang below.
type parser struct {
	m     *machine.Machine
	above []level
	numa  *int
}

type level struct {
	indent int
	device *machine.Device
}

func (p *parser) line(indent int, words []string) error {
	keys := map[string]string{}
	var plain []string
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			keys[k] = v
		} else {
			plain = append(plain, w)
		}
	}
	switch plain[0] {
	case "machine":
		p.m.Host, p.m.Product, p.m.Virtual.Hypervisor = keys["host"], keys["product"], keys["hypervisor"]
		return nil
	case "numa":
		return p.numaNode(plain[1:], keys)
	case "names": // of the matrices below
		p.m.Matrix = &machine.Matrix{Kind: "topology", Names: plain[1:]}
		return nil
	case "row", "p2p":
		p.row(plain, keys)
		return nil
	}
	return p.device(indent, plain, keys)
}

func (p *parser) numaNode(words []string, keys map[string]string) error {
	p.above = nil
	if len(words) == 0 { // a node that is not known
		p.numa = nil
		return nil
	}
	id, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	p.numa = &id
	node := machine.NUMANode{ID: id, CPUs: keys["cpus"]}
	if s, err := strconv.Atoi(keys["socket"]); err == nil {
		node.Socket = &s
	}
	if keys["listed"] != "no" { // the kernel does not list it
		p.m.NUMANodes = append(p.m.NUMANodes, node)
	}
	return nil
}

func (p *parser) row(plain []string, keys map[string]string) {
	r := machine.MatrixRow{Name: plain[1], Cells: plain[2:], CPUs: keys["cpus"]}
	if n, err := strconv.Atoi(keys["numa"]); err == nil {
		r.NUMA = &n
	}
	to := p.m.Matrix
	if plain[0] == "p2p" {
		if len(p.m.P2P) == 0 {
			p.m.P2P = []machine.Matrix{{Kind: "read", Names: p.m.Matrix.Names}}
		}
		to = &p.m.P2P[0]
	}
	to.Rows = append(to.Rows, r)
}

// classes and makers of the kinds of devices.
var kinds = map[string]struct {
	class  uint32
	vendor uint16
	port   pcie.PortType
}{
	"root":  {0x060400, 0x8086, pcie.RootPort},
	"up":    {0x060400, 0x1000, pcie.UpstreamPort},
	"down":  {0x060400, 0x1000, pcie.DownstreamPort},
	"gpu":   {0x030200, 0x10de, pcie.Endpoint},
	"nic":   {0x020000, 0x15b3, pcie.Endpoint},
	"nvme":  {0x010802, 0x144d, pcie.Endpoint},
	"audio": {0x040300, 0x10de, pcie.Endpoint},
	"usb":   {0x0c0330, 0x1b21, pcie.Endpoint},
}

func (p *parser) device(indent int, plain []string, keys map[string]string) error {
	kind, ok := kinds[plain[0]]
	if !ok || len(plain) < 2 {
		return fmt.Errorf("%q is no kind of device with an address", strings.Join(plain, " "))
	}
	at, err := pcie.ParseBDF(plain[1])
	if err != nil {
		return err
	}
	d := p.m.Add(at)
	d.Vendor = machine.ID{Code: kind.vendor, Known: true}
	d.Class = machine.Class{Code: kind.class, Known: true}
	d.NUMA, d.ParentKnown = p.numa, keys["parent"] != "unknown"
	d.Model.Name = keys["name"]
	for len(p.above) > 0 && p.above[len(p.above)-1].indent >= indent {
		p.above = p.above[:len(p.above)-1]
	}
	if n := len(p.above); n > 0 {
		d.Parent = &p.above[n-1].device.BDF
	}
	p.above = append(p.above, level{indent, d})
	if v, err := strconv.ParseUint(keys["vendor"], 16, 16); err == nil {
		d.Vendor.Code = uint16(v)
	}
	if v, err := strconv.ParseUint(keys["device"], 16, 16); err == nil {
		d.Model.Code, d.Model.Known = uint16(v), true
	}
	d.Lost = keys["lost"] == "yes"
	d.IOMMUDomain = keys["iommu"]
	if keys["interface"] != "" {
		d.Interfaces = []string{keys["interface"]}
	}
	if keys["vf-of"] != "" {
		pf := pcie.MustParseBDF(keys["vf-of"])
		d.PhysicalFunction = &pf
	}
	if keys["index"] != "" {
		if n, err := strconv.Atoi(keys["index"]); err == nil {
			d.GPU = &machine.GPU{Index: &n}
		}
	}
	if len(plain) > 2 {
		return p.link(d, kind.port, plain[2], keys)
	}
	return nil
}

// link puts the link where it was seen: seen=sysfs without privilege,
// seen=nccl in NCCL's file alone, else in registers.
func (p *parser) link(d *machine.Device, port pcie.PortType, text string, keys map[string]string) error {
	now, most, two := strings.Cut(text, "/")
	if !two {
		most = now
	}
	current, err := parseLink(now)
	if err != nil {
		return err
	}
	limit, err := parseLink(most)
	if err != nil {
		return err
	}
	switch keys["seen"] {
	case "nccl":
		d.Sources, d.NCCLLink = []machine.Kind{machine.KindNCCLXML}, &limit
		d.Virtual = d.BDF.Domain == 0xffff
		return nil
	case "sysfs":
		d.Link = &machine.KernelLink{Current: current, Max: limit}
		d.Registers.CapabilitiesDenied = true
		return nil
	}
	x := &pcie.Express{Port: port, LnkSta: &pcie.LnkSta{Link: current}, LnkCap: &pcie.LnkCap{Link: limit}}
	if t := keys["target"]; t != "" {
		x.LnkCtl2 = new(pcie.LnkCtl2)
		if x.LnkCtl2.Target, err = pcie.ParseSpeed(t + "GT/s"); err != nil {
			return err
		}
	}
	d.Registers.Express = x
	d.Registers.Capabilities = []pcie.Capability{{ID: pcie.CapExpress}}
	switch keys["acs"] {
	case "redirect":
		d.Registers.ACS = &pcie.ACS{Capable: pcie.ACSRedirect, Enabled: pcie.ACSRedirect}
	case "clear":
		d.Registers.ACS = &pcie.ACS{Capable: pcie.ACSRedirect, Enabled: pcie.ACSSourceValidation | pcie.ACSUpstreamForwarding}
	}
	return nil
}

// parseLink reads "32x16".
func parseLink(s string) (pcie.Link, error) {
	speed, width, ok := strings.Cut(s, "x")
	n, err := strconv.ParseUint(width, 10, 8)
	if !ok || err != nil {
		return pcie.Link{}, fmt.Errorf("%q is no link such as 32x16", s)
	}
	v, err := pcie.ParseSpeed(speed + "GT/s")
	return pcie.Link{Speed: v, Width: uint8(n)}, err
}
