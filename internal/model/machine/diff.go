package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"ringlane/internal/model/pcie"
)

// Change is one difference between two documents of a machine.
type Change struct {
	// Device is the address in the newer document (in the older one for a
	// device that is gone), nil for facts of the machine as a whole.
	Device *pcie.BDF `json:"device,omitempty"`
	// Fact names what changed, as the path in the JSON document
	// ("registers.express.lnksta.width"), or is "added", "removed" or "moved".
	Fact string `json:"fact"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// String returns "0000:3b:00.0 registers.express.lnksta.width: 16 -> 8".
func (c Change) String() string {
	s := c.Fact + ": " + c.Old + " -> " + c.New
	if c.Device != nil {
		s = c.Device.String() + " " + s
	}
	return s
}

// Diff lists what changed from a to b. A GPU that kept its UUID or serial
// number is the same GPU at a new address ("moved"), not one removed and one
// added. What the documents were made from, their problems and their logs are
// not compared.
func Diff(a, b *Machine) []Change {
	var out []Change
	same := pairs(a, b)
	taken := map[*Device]bool{}
	for _, d := range b.Devices {
		old := same[d]
		if old == nil {
			out = append(out, Change{Device: &d.BDF, Fact: "added", New: d.Name()})
			continue
		}
		taken[old] = true
		if old.BDF != d.BDF {
			out = append(out, Change{Device: &d.BDF, Fact: "moved", Old: old.BDF.String(), New: d.BDF.String()})
		}
		out = append(out, facts(&d.BDF, "", old, d, "bdf", "sources")...)
	}
	for _, d := range a.Devices {
		if !taken[d] {
			out = append(out, Change{Device: &d.BDF, Fact: "removed", Old: d.Name()})
		}
	}
	return append(out, facts(nil, "", a, b, "version", "inputs", "devices", "problems", "uptime_seconds", "kernel_log")...)
}

// pairs maps each device of b to the same one in a: by the identity of the
// GPU first, then by address.
func pairs(a, b *Machine) map[*Device]*Device {
	identity := func(d *Device) string {
		if d.GPU == nil {
			return ""
		}
		if d.GPU.UUID != "" {
			return d.GPU.UUID
		}
		return d.GPU.Serial
	}
	byIdentity := map[string]*Device{}
	for _, d := range a.Devices {
		if id := identity(d); id != "" {
			byIdentity[id] = d
		}
	}
	same := map[*Device]*Device{}
	used := map[*Device]bool{}
	for _, d := range b.Devices {
		if old := byIdentity[identity(d)]; old != nil && !used[old] {
			same[d], used[old] = old, true
		}
	}
	for _, d := range b.Devices {
		old := a.Device(d.BDF)
		if same[d] != nil || old == nil || used[old] {
			continue
		}
		if o, n := identity(old), identity(d); o != "" && n != "" && o != n {
			continue // another card in the same place
		}
		same[d], used[old] = old, true
	}
	return same
}

// facts compares two values by their JSON form.
func facts(at *pcie.BDF, path string, a, b any, skip ...string) []Change {
	ta, tb := tree(a), tree(b)
	for _, s := range skip {
		delete(ta, s)
		delete(tb, s)
	}
	return compare(at, path, ta, tb)
}

// tree is the JSON form of a value that this package defines, all of which
// can be encoded.
func tree(v any) map[string]any {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out map[string]any
	if json.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}

func compare(at *pcie.BDF, path string, a, b any) []Change {
	ma, isA := a.(map[string]any)
	mb, isB := b.(map[string]any)
	if !isA || !isB {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return []Change{{Device: at, Fact: path, Old: show(a), New: show(b)}}
	}
	keys := slices.Collect(maps.Keys(ma))
	for k := range mb {
		if _, ok := ma[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var out []Change
	for _, k := range keys {
		p := k
		if path != "" {
			p = path + "." + k
		}
		out = append(out, compare(at, p, ma[k], mb[k])...)
	}
	return out
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return v
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
