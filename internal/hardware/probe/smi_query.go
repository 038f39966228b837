package probe

import (
	"strconv"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// smiQuery reads nvidia-smi -q: keys and values, nested by indentation. Keys
// are taken with the heading above them, since many occur more than once.
type smiQuery struct {
	b     *builder
	on    bool
	count int // GPUs so far: nvidia-smi lists them in the order of its index
	d     *machine.Device
	heads []heading
}

type heading struct {
	indent int
	name   string
}

func (q *smiQuery) line(no int, s string) bool {
	if strings.Contains(s, "=NVSMI LOG=") {
		q.b.saw(machine.KindQuery)
		*q = smiQuery{b: q.b, on: true}
		return true
	}
	t := strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(t, "GPU "); ok && (q.on || len(t) == len(s)) {
		if at, err := pcie.ParseBDF(rest); err == nil && len(rest) >= 12 {
			q.gpu(at)
			return true
		}
	}
	if rest, ok := strings.CutPrefix(t, noHandle); ok {
		q.noHandle(rest)
		return true
	}
	if !q.on {
		return false
	}
	if t == "" {
		return true
	}
	indent := len(s) - len(strings.TrimLeft(s, " \t"))
	for len(q.heads) > 0 && q.heads[len(q.heads)-1].indent >= indent {
		q.heads = q.heads[:len(q.heads)-1]
	}
	key, value, ok := strings.Cut(t, ":")
	if !ok {
		if indent == 0 {
			q.on = false // something else begins
			return false
		}
		q.heads = append(q.heads, heading{indent, t})
		return true
	}
	if indent == 0 && q.d != nil {
		q.on = false
		return false
	}
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	q.fact(key, value)
	return true
}

const noHandle = "Unable to determine the device handle for "

// noHandle reads "GPU 0000:65:00.0: Unknown Error", all that nvidia-smi prints
// where a GPU does not answer. "GPU0: " and the like stand in front in newer
// versions. Other reasons, such as a lack of permission, say nothing of the GPU.
func (q *smiQuery) noHandle(s string) {
	i := strings.Index(s, ": ")
	for i >= 0 {
		head, reason := s[:i], s[i+2:]
		at, err := pcie.ParseBDF(strings.TrimLeft(strings.TrimPrefix(strings.ToUpper(head), "GPU"), " "))
		if err == nil && strings.Contains(head, ".") {
			q.b.saw(machine.KindQuery)
			if strings.HasPrefix(reason, "Unknown Error") || strings.Contains(reason, "GPU is lost") {
				q.lost(at, reason)
			}
			return
		}
		s = reason
		i = strings.Index(s, ": ")
	}
}

func (q *smiQuery) lost(at pcie.BDF, reason string) {
	d := q.b.device(at, machine.KindQuery)
	made(&d.GPU).Broken = reason
	if !d.Vendor.Known {
		q.b.setVendor(d, 0, machine.VendorNVIDIA, fromText)
	}
}

func (q *smiQuery) under(name string) bool {
	for i := range q.heads {
		if q.heads[i].name == name {
			return true
		}
	}
	return false
}

func (q *smiQuery) gpu(at pcie.BDF) {
	q.b.saw(machine.KindQuery)
	q.on = true
	q.heads = nil
	q.d = q.b.device(at, machine.KindQuery)
	if q.d.GPU == nil {
		q.d.GPU = &machine.GPU{}
	}
	if !q.d.Vendor.Known {
		q.b.setVendor(q.d, 0, machine.VendorNVIDIA, fromText)
	}
	index := q.count
	q.d.GPU.Index = &index
	q.count++
}

// fact takes one key. Values that nvidia-smi does not have ("N/A", "[N/A]",
// "Requested functionality has been deprecated") are not facts.
func (q *smiQuery) fact(key, value string) {
	if q.d == nil {
		switch key {
		case "Driver Version":
			q.b.m.Driver.Version = value
		case "CUDA Version":
			q.b.m.Driver.CUDA = value
		}
		return
	}
	g := q.d.GPU
	switch {
	case value == "" || value == "N/A" || value == "[N/A]" || strings.HasPrefix(value, "Requested functionality"):
		return
	case strings.Contains(value, "GPU is lost") || value == "Unknown Error" || value == "[Unknown Error]" || value == "ERR!":
		g.Broken = strings.Trim(value, "[]")
		return
	}
	switch key {
	case "Product Name":
		g.Name = value
	case "Serial Number":
		g.Serial = value
	case "GPU UUID":
		g.UUID = value
	case "Minor Number":
		g.Minor = integer(value)
	case "VBIOS Version":
		g.VBIOS = value
	case "Performance State":
		g.PState = value
	case "GPU Recovery Action":
		if value != "None" {
			g.Recovery = value
		}
	case "Virtualization Mode":
		g.Virtualization = value
	case "Device Id", "Sub System Id":
		q.pair(key, value)
	case "Replays Since Reset", "Replays since reset":
		g.Replays = count(value)
	case "Replay Number Rollovers":
		g.Rollovers = count(value)
	case "Current", "Max", "Device Current", "Device Max", "Host Max":
		q.link(key, value)
		if key == "Current" && q.under("MIG Mode") {
			on := value == "Enabled"
			g.MIG = &on
		}
	case "Total":
		if n, ok := strings.CutSuffix(value, " MiB"); ok {
			mib, err := strconv.ParseUint(n, 10, 40)
			if err == nil && q.under("BAR1 Memory Usage") {
				g.BAR1 = mib << 20
			}
			if err == nil && q.under("FB Memory Usage") {
				g.Memory = mib << 20
			}
		}
	}
}

// pair reads "0x2BB510DE": device and vendor.
func (q *smiQuery) pair(key, value string) {
	v, err := strconv.ParseUint(strings.TrimPrefix(value, "0x"), 16, 32)
	if err != nil {
		return
	}
	if key == "Device Id" {
		q.b.setVendor(q.d, 0, uint16(v), fromText)
		q.b.setModel(q.d, 0, uint16(v>>16), fromText)
		return
	}
	q.d.SubsystemVendor.Code, q.d.SubsystemVendor.Known = uint16(v), true
	q.d.SubsystemModel.Code, q.d.SubsystemModel.Known = uint16(v>>16), true
}

func (q *smiQuery) link(key, value string) {
	generation, width := q.under("PCIe Generation"), q.under("Link Width")
	if !generation && !width {
		return
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(value, "x"), 10, 8)
	if err != nil {
		return
	}
	l := made(&q.d.GPU.Link)
	speed := pcie.Speed(n)
	if generation && !speed.Known() {
		return
	}
	switch {
	case generation && key == "Current":
		l.Current.Speed = speed
	case generation && key == "Max":
		l.Max.Speed = speed
	case generation && key == "Device Max":
		l.DeviceMax = speed
	case generation && key == "Host Max":
		l.HostMax = speed
	case width && key == "Current":
		l.Current.Width = uint8(n)
	case width && key == "Max":
		l.Max.Width = uint8(n)
	}
}

func integer(s string) *int {
	if v, err := strconv.Atoi(s); err == nil {
		return &v
	}
	return nil
}

func count(s string) *uint64 {
	if v, err := strconv.ParseUint(s, 10, 64); err == nil {
		return &v
	}
	return nil
}
